//! Frames of the protocol as text: `encode` writes those of a client, `decode` reads those of a server.
//! `fixtures/protocol/` has one example of each.

pub(crate) mod decode;
pub(crate) mod encode;

#[cfg(test)]
mod tests;
