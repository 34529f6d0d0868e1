//! Which member of a partitioned group owns which partition. Pure: told of members and of time, it says what changes.
//!
//! | module | holds |
//! | --- | --- |
//! | `state` | members, owners and the epoch |
//! | `view` | what operators see of them |

mod state;
mod view;

#[cfg(test)]
mod tests;

pub use state::{
    Coordinator, HEARTBEAT_TTL_MS, Joining, Liveness, MemberChange, RECOMPUTE_EVERY_MS, Rebalance,
};
pub use view::{CoordinatorView, MemberView};
