//! One binary for all tests over sockets.

mod suite;
