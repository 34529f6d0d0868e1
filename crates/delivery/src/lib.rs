//! The delivery of events to consumer groups as pure code: no I/O, no clock, no tasks.
//!
//! One [`Machine`] delivers one claim, which is a group's part of a topic; see `docs/adr/0002-claims.md`. Its
//! owner task in `bus` gives it each [`Input`] together with the time, and carries out each [`Effect`] that
//! comes back.
//!
//! | module | holds |
//! | --- | --- |
//! | `machine` | the state machine; [`Machine::step`] is its only door |
//! | `input`, `effect` | what the owner tells the machine, and what the machine tells the owner to do |
//! | `config` | what a machine is built from |
//! | `credit`, `credit_queue` | how many leases a member may hold over all its machines, and which machine may take next |
//! | `cursor_data` | the bytes of the finished ranges of a cursor |
//! | `coordinator`, `rebalance` | which member of a partitioned group owns which partition, and how that changes |
//! | `pattern`, `filter` | which topics and which events a group receives |
//! | `small_map` | a map for few entries |
//! | `error` | every refusal, with its code |

mod config;
mod coordinator;
mod credit;
mod credit_queue;
mod cursor_data;
mod effect;
mod error;
mod filter;
mod input;
mod machine;
mod pattern;
mod rebalance;
mod small_map;

pub use config::{EventTest, MachineBounds, MachineConfig, Order, SavedProgress, Scope};
pub use coordinator::{
    Coordinator, CoordinatorView, HEARTBEAT_TTL_MS, Joining, Liveness, MemberView, RECOMPUTE_EVERY_MS,
};
pub use credit::{Allowance, Credit, DeliveryRate, Fill};
pub use cursor_data::{CursorDataError, decode_finished, encode_finished};
pub use effect::{Attempts, DeadEvent, Delivery, DeliveryFailure, Effect, LetterRef, Progress};
pub use error::DeliveryError;
pub use filter::{FILTER_VALUE_BYTES_MAX, FILTER_VALUES_MAX, Filter};
pub use input::{FailureNote, Input, LeaseRef, Leaving, MemberLimits, MemberNo, Now, ReplyNo};
pub use machine::{BlockedKey, DeliveryCounts, DeliveryStatus, Machine, Reason};
pub use pattern::{Pattern, Subject};
pub use rebalance::{MemberChange, Rebalance};
pub use small_map::SmallMap;
