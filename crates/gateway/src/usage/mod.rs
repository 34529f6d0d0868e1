//! What clients use, against their quotas.
//!
//! | module | holds |
//! | --- | --- |
//! | `accounts` | what each identity uses: connections, subscriptions, events in flight, new topics, events and bytes published |
//! | `receiving` | the bytes that are being received, of all clients and of each token |
//! | `failures` | the invalid tokens that each address has shown |

pub(crate) mod accounts;
pub(crate) mod failures;
pub(crate) mod receiving;
