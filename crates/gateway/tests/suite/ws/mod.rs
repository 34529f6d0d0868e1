//! The WebSocket protocol, over real sockets.

mod bad_clients_are_closed;
pub(super) mod client;
mod clients_authenticate;
mod events_are_delivered;
mod fetch_pulls_events;
mod frames_before_the_end_are_done;
mod protocol_document_is_true;
mod publishes_are_answered_in_order;
mod random_clients_lose_nothing;
