//! The gateway from outside, over sockets.

mod suite;
