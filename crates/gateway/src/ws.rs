//! The WebSocket protocol.
