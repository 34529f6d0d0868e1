//! Durable state: the ports that the rest of the system uses, and the adapters that implement them.
//!
//! | module | holds |
//! | --- | --- |
//! | [`port`] | reads by capability, [`port::Batch`], errors |
//! | [`value`] | values of document fields |
//! | [`embedded`] | the adapter over the log and a state engine, in a directory |
//! | [`memory`] | the adapter that keeps everything in memory |
//! | `state` | keys, planning of batches and reads, shared by the adapters |

pub mod embedded;
pub mod memory;
pub mod port;
mod state;
pub mod value;
mod watch;
