//! Options in frames. An unknown option is refused: to ignore it would be to do something else than the
//! client asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id::EventId;
use crate::offset::Offset;

/// Options of a publish.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishOpts<'a> {
    /// The event's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    /// Its time, epoch ms.
    #[serde(default, deserialize_with = "exact")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<i64>,
    /// Its key.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// Texts by name.
    #[serde(default, deserialize_with = "each_once")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Words to filter by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The events that led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<Vec<EventId>>,
    /// The publisher's session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// A label for routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// The topic's next offset must be this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_offset: Option<Offset>,
    /// The key's latest event must have this offset; `null` if there must be none.
    #[serde(default, deserialize_with = "present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_key_offset: Option<Option<Offset>>,
}

/// Options of a subscription, of the group and of the member.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscribeOpts<'a> {
    /// Where a new group begins: `latest`, `earliest`, `ts`, `afterId` or `offset`.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Cow<'a, str>>,
    /// With `from: "ts"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<i64>,
    /// With `from: "afterId"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_id: Option<EventId>,
    /// With `from: "offset"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// Which events the group is given; the bus defines its form.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<&'a RawValue>,
    /// `none` or `key`.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Cow<'a, str>>,
    /// The number of partitions that the members share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// The number of attempts before an event becomes a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The number of events handed over at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// The number of events that may be unfinished at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<usize>,
    /// How long a member may work on an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timeout_ms: Option<u64>,
    /// Whether the client acks; if not, an event is finished when its frame is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual_ack: Option<bool>,
    /// The member's name, in partitioned groups; like all names here, not parsed yet.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_id: Option<Cow<'a, str>>,
    /// The member's description of itself.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<&'a RawValue>,
    /// Whether the member is given events only when it sends FETCH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<bool>,
    /// Whether old events are lifted to the latest schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
}

/// Options of a seek.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeekOpts<'a> {
    /// The new position: `latest`, `earliest`, `ts`, `afterId` or `offset`.
    #[serde(borrow)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Cow<'a, str>>,
    /// With `from: "ts"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<i64>,
    /// With `from: "afterId"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_id: Option<EventId>,
    /// With `from: "offset"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// Whether only to report what a seek would do.
    #[serde(default)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Reads a time that every language can represent exactly, as all times that the server writes.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    const EXACT_MAX: u64 = (1 << 53) - 1;
    match Option::<i64>::deserialize(deserializer)? {
        Some(number) if number.unsigned_abs() > EXACT_MAX => {
            Err(D::Error::custom("`ts` is beyond 2^53 - 1; give milliseconds since 1970"))
        }
        number => Ok(number),
    }
}

/// Reads texts by name. A name that comes twice is refused, because readers would disagree on its value.
fn each_once<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct EachOnce;

    impl<'de> Visitor<'de> for EachOnce {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, String>()? {
                if all.insert(name, value).is_some() {
                    return Err(A::Error::custom("a header comes twice; give each name once"));
                }
            }
            Ok(all)
        }
    }

    struct Texts(BTreeMap<String, String>);

    impl<'de> Deserialize<'de> for Texts {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(EachOnce).map(Self)
        }
    }

    Ok(Option::<Texts>::deserialize(deserializer)?.map(|Texts(all)| all))
}

/// Reads a field so that `null` differs from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Offset>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
