//! What clients use, against their quotas.
//!
//! | module | holds |
//! | --- | --- |
//! | `accounts` | what each identity uses: connections, subscriptions, events in flight, new topics, events and bytes published |
//! | `failures` | the invalid tokens that each address has shown |

pub(crate) mod accounts;
pub(crate) mod failures;
