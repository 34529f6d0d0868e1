//! The WebSocket protocol. One task per connection reads frames, hands them to the bus and writes the
//! replies.
//!
//! | module | holds |
//! | --- | --- |
//! | `upgrade` | from an HTTP request to a WebSocket |
//! | `socket` | the messages of a WebSocket, polled |
//! | `output` | frames that wait to be written |
//! | `deadlines` | when to ping a client, and when to close its connection |
//! | `connection` | the task: the socket loop, and the state of each family |
//! | `dispatch` | which family answers a frame |
//! | `auth` | AUTH: who the client is, and whether its token is still valid |
//! | `publish` | PUBLISH: events on their way to the log |
//! | `subscribe` | SUBSCRIBE, UNSUBSCRIBE, PAUSE, RESUME: all subscriptions of a connection |
//! | `subscribe_options` | from the options of SUBSCRIBE to a request to the bus |
//! | `subscription` | one subscription: its deliveries, and the events that wait for an ack |
//! | `ack` | ACK, NACK, MODACK |
//! | `fetch` | FETCH, for subscriptions that pull |
//! | `seek` | SEEK, and the start positions that it shares with SUBSCRIBE |
//!
//! Each family of ops has a struct with its state; `connection` owns these structs and hands them to each
//! other. **Invariant**: nothing waits for one thing while another could be done, and every buffer has a
//! bound.

mod ack;
mod auth;
mod connection;
mod deadlines;
mod dispatch;
mod fetch;
mod message_meter;
mod output;
mod publish;
mod seek;
mod socket;
mod subscribe;
mod subscribe_options;
mod subscription;
mod upgrade;

pub(crate) use upgrade::{is_upgrade, upgrade};
