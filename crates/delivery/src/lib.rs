//! The delivery of events to consumer groups as pure code: no I/O, no clock, no tasks.
//!
//! One [`Machine`] delivers one claim, which is one group's part of one topic; see `docs/adr/0002-claims.md`. Its owner
//! task in `bus` gives it each [`Input`] together with the time, and carries out each [`Effect`] that comes back.
//!
//! | module | holds |
//! | --- | --- |
//! | `machine` | the state machine; `Machine::step` is its only door |
//! | `types` | what goes into the machine and what comes out |
//! | `config` | what a machine is built from |
//! | `credit`, `turns` | how many leases a member may hold over all its machines, and whose turn it is |
//! | `cursor_data` | the bytes of the finished ranges of a cursor |
//! | `coordinator` | which member of a partitioned group owns which partition |
//! | `pattern`, `filter` | which topics and which events a group receives |
//! | `small_map` | a map for few entries |
//! | `error` | every refusal, with its code |

mod config;
mod coordinator;
mod credit;
mod cursor_data;
mod error;
mod filter;
mod machine;
mod pattern;
mod small_map;
mod turns;
mod types;

pub use config::{Bounds, Config, EventTest, Start};
pub use coordinator::{
    Coordinator, CoordinatorView, HEARTBEAT_TTL_MS, Joining, Liveness, MemberChange, MemberView,
    RECOMPUTE_EVERY_MS, Rebalance,
};
pub use credit::{Allowance, Credit, Fill, Rate};
pub use cursor_data::{CursorDataError, decode_finished, encode_finished};
pub use error::DeliveryError;
pub use filter::{FILTER_VALUE_BYTES_MAX, FILTER_VALUES_MAX, Filter};
pub use machine::{BlockedKey, Counts, Machine, Status};
pub use pattern::{Pattern, Subject};
pub use small_map::SmallMap;
pub use types::{
    Attempts, Delivery, Effect, Failure, Input, LeaseRef, Leaving, MemberLimits, MemberNo, Now, Order,
    Progress, Reason, ReplyNo, Scope,
};
