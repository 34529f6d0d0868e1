//! From what a publisher asks for to what is committed. Pure: no clock, no task, no store.
//!
//! | module | holds |
//! | --- | --- |
//! | `request` | what a publisher asks for |
//! | `prepare` | its checks, and the event to append |
//! | `reply` | what the publisher hears |

mod prepare;
mod reply;
mod request;

pub use prepare::{Checked, Pending, Prepared, Writer, check};
pub use reply::Published;
pub use request::{Payload, Publish};
