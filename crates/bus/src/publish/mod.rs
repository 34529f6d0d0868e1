//! From what a publisher asks for to what is committed. Pure: no clock, no task, no store.
//!
//! | module | holds |
//! | --- | --- |
//! | `json` | one pass that checks JSON text and drops its insignificant whitespace |
//! | `request` | what a publisher asks for |
//! | `prepare` | its checks, and the event to append |
//! | `reply` | what the publisher hears |

mod json;
mod prepare;
mod reply;
mod request;

pub use json::{JSON_DEPTH_MAX, JsonError, JsonFault, minify};
pub use prepare::{Checked, Pending, Prepared, Writer, check};
pub use reply::Published;
pub use request::{Payload, Publish};
