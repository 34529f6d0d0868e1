//! How much clients use, and what they may.
//!
//! | module | holds |
//! | --- | --- |
//! | `accounts` | what each identity uses: connections, subscriptions, what is in flight, new topics, events and bytes published |
//! | `failures` | which addresses show tokens that are not valid |

pub(crate) mod accounts;
pub(crate) mod failures;
