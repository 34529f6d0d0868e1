//! The types of the domain, shared by server and clients. No I/O beyond reading the clock and seeding ids, no
//! async.
//!
//! | module | holds |
//! | --- | --- |
//! | `name` | names of topics, groups, members and collections, parsed once at the edge |
//! | `id` | event ids and the mint that makes them |
//! | `offset` | positions in a topic and ranges of them |
//! | `event`, `stored_event` | the event as users see it, and as a store returns it |
//! | `meta` | the optional fields of an event beside its key, with their bytes |
//! | `partition` | key to partition, partition to member |
//! | `time` | the clock, lengths of time, and moments as people write them |
//! | `durability` | what an acknowledgement promises |
//! | `settings` | the settings of a topic |
//! | `wire` | the frames of the WebSocket protocol |
//! | `limits` | every cap, and the checks of a publish against them |
//! | `json` | one pass that checks JSON text and drops its insignificant whitespace |
//! | `plain` | errors of reading JSON and TOML, in plain words |
//! | `lock` | taking locks after a panic |

pub mod durability;
pub mod event;
pub mod id;
pub mod json;
pub mod limits;
pub mod lock;
pub mod meta;
pub mod name;
pub mod offset;
pub mod partition;
pub mod plain;
pub mod settings;
pub mod stored_event;
pub mod time;
pub mod wire;

pub use durability::Durability;
pub use event::Event;
pub use id::{EventId, IdMint};
pub use limits::{LimitError, Limits};
pub use lock::IgnorePoison;
pub use meta::{EventMeta, MetaError};
pub use name::{CollectionName, GroupName, MemberId, NameError, SystemSuffix, TopicName};
pub use offset::{Offset, OffsetRange};
pub use partition::{assign, jump_hash, partition_of, rendezvous_owner};
pub use settings::{Compat, Retention, SchemaRule, SettingsError, TopicSettings, Undeclared};
pub use stored_event::{EventBody, EventRef, StoredEvent};
pub use time::{Clock, Millis, Moment, SteadyClock, SteadyTime, SystemClock};
