//! The WebSocket protocol: one task per connection, which reads frames, hands events to the bus and writes what comes
//! back. Nothing in it waits for one thing while another could be done.
//!
//! | module | does |
//! | --- | --- |
//! | `upgrade` | makes a WebSocket of a request |
//! | `socket` | messages over the connection |
//! | `frames` | frames to be written, in one buffer |
//! | `connection` | the task: what is ready is done, in turns |
//! | `requests` | what each frame of a client asks for |
//! | `knowing` | who the client is, and whether that still holds |
//! | `settling` | acks, nacks and extensions |
//! | `publishing` | events that came together go to the bus together |
//! | `fetching` | subscriptions that are given events only when they ask |
//! | `subscriptions` | what the client is subscribed to, and what it holds |
//! | `asking` | from the options of a frame to what the bus is asked |
//! | `timing` | when the client must be heard, asked or closed |

mod asking;
mod connection;
mod fetching;
mod frames;
mod knowing;
mod publishing;
mod requests;
mod settling;
mod socket;
mod subscriptions;
mod timing;
mod upgrade;

pub(crate) use upgrade::{is_upgrade, upgrade};
