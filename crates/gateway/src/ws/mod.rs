//! The WebSocket protocol: one task per connection, which reads frames, hands events to the bus and writes what comes
//! back. Nothing in it waits for one thing while another could be done.
//!
//! | module | does |
//! | --- | --- |
//! | `upgrade` | makes a WebSocket of a request |
//! | `socket` | messages over the connection |
//! | `output` | frames to be written, in one buffer |
//! | `connection` | the task: what is ready is done, in turns |
//! | `requests` | what each frame of a client asks for |
//! | `auth` | who the client is, and whether that still holds |
//! | `ack` | acks, nacks and extensions |
//! | `publish` | events that came together go to the bus together |
//! | `fetch` | subscriptions that are given events only when they ask |
//! | `subscribe` | what the client is subscribed to, and what it holds |
//! | `subscribe_options` | from the options of a frame to what the bus is asked |
//! | `deadlines` | when the client must be heard, asked or closed |

mod ack;
mod auth;
mod connection;
mod deadlines;
mod fetch;
mod output;
mod publish;
mod requests;
mod socket;
mod subscribe;
mod subscribe_options;
mod upgrade;

pub(crate) use upgrade::{is_upgrade, upgrade};
