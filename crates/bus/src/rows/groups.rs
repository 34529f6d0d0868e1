//! The row of a group.

use promethean_model::GroupName;
use serde::{Deserialize, Serialize};

use super::options::GroupOptions;
use super::{RowError, bad};
use crate::error::BusError;

const TABLE: &str = "Groups";
const VERSION: u32 = 1;

/// The value of a row, as JSON: `{"v":1,"options":{...},"paused":false,"created":ms,"epoch":n}`. It is JSON
/// because releases add options. An unknown option is refused: for example, ignoring a filter would deliver
/// events that it excludes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRow {
    /// The options that the group was created with.
    pub options: GroupOptions,
    /// Whether the whole group is paused.
    pub paused: bool,
    /// When the group was created, epoch ms.
    pub created: i64,
    /// The last reserved epoch of its partitions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Whether the group is a follower: only the server itself may use it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub follower: bool,
    /// Whether the group is being deleted: it is hidden, and its rows are being removed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleting: bool,
}

#[derive(Serialize)]
struct WrittenGroup<'a> {
    v: u32,
    #[serde(flatten)]
    row: &'a GroupRow,
}

#[derive(Deserialize)]
struct RowVersion {
    v: u32,
}

impl GroupRow {
    /// The row of a new group.
    pub const fn new(options: GroupOptions, created: i64) -> Self {
        Self { options, paused: false, created, epoch: 0, follower: false, deleting: false }
    }

    /// Returns an error if the group is a follower, which consumers may not use.
    pub fn open_to_consumers(&self, group: &GroupName) -> Result<(), BusError> {
        if self.follower { Err(BusError::ProjectorGroup { group: group.clone() }) } else { Ok(()) }
    }

    /// Encodes the row.
    pub fn encode(&self) -> Result<Vec<u8>, RowError> {
        serde_json::to_vec(&WrittenGroup { v: VERSION, row: self })
            .map_err(|error| bad(TABLE, error.to_string()))
    }

    /// Decodes a row that `encode` wrote.
    pub fn decode(value: &[u8]) -> Result<Self, RowError> {
        let fail = |error: serde_json::Error| bad(TABLE, error.to_string());
        let version: RowVersion = serde_json::from_slice(value).map_err(fail)?;
        if version.v != VERSION {
            return Err(bad(TABLE, format!("version {}", version.v)));
        }
        let mut map: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(value).map_err(fail)?;
        map.remove("v");
        serde_json::from_value(map.into()).map_err(fail)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use promethean_delivery::{Filter, Order};
    use promethean_model::Offset;
    use proptest::prelude::*;

    use super::*;
    use crate::rows::{AskedOptions, StartPosition};

    fn row() -> GroupRow {
        GroupRow::new(AskedOptions::default().create(5), 9)
    }

    #[test]
    fn the_json_never_changes() {
        let least = r#"{"v":1,"options":{"from":"latest","order":"none","maxAttempts":5},"paused":false,"created":9}"#;
        assert_eq!(String::from_utf8(row().encode().unwrap()).unwrap(), least);
        assert_eq!(GroupRow::decode(least.as_bytes()), Ok(row()));
        let options = AskedOptions {
            from: Some(StartPosition::Ts(-4)),
            filter: Some(Filter::default().key("k")),
            order: Some(Order::Key),
            partitions: Some(8),
            max_attempts: Some(2),
        };
        let most = GroupRow { paused: true, epoch: 3, ..GroupRow::new(options.create(5), 1) };
        let json = r#"{"v":1,"options":{"from":{"ts":-4},"filter":{"key":"k"},"order":"key","partitions":8,"maxAttempts":2},"paused":true,"created":1,"epoch":3}"#;
        assert_eq!(String::from_utf8(most.encode().unwrap()).unwrap(), json);
        assert_eq!(GroupRow::decode(json.as_bytes()), Ok(most));
        let own = GroupRow { follower: true, ..row() };
        let json = r#"{"v":1,"options":{"from":"latest","order":"none","maxAttempts":5},"paused":false,"created":9,"follower":true}"#;
        assert_eq!(String::from_utf8(own.encode().unwrap()).unwrap(), json);
        assert_eq!(GroupRow::decode(json.as_bytes()), Ok(own));
        let going = GroupRow { deleting: true, ..row() };
        let json = r#"{"v":1,"options":{"from":"latest","order":"none","maxAttempts":5},"paused":false,"created":9,"deleting":true}"#;
        assert_eq!(String::from_utf8(going.encode().unwrap()).unwrap(), json);
        assert_eq!(GroupRow::decode(json.as_bytes()), Ok(going));
    }

    #[test]
    fn unknown_versions_and_fields_are_refused() {
        for json in [
            "",
            "{}",
            r#"{"v":2}"#,
            r#"{"v":1,"options":{"order":"none","maxAttempts":5},"paused":false,"created":9,"x":1}"#,
            r#"{"v":1,"options":{"order":"other","maxAttempts":5},"paused":false,"created":9}"#,
            r#"{"v":1,"options":{"maxAttempts":5,"only":1},"paused":false,"created":9}"#,
            r#"{"v":1,"options":{"maxAttempts":5,"filter":{"x":1}},"paused":false,"created":9}"#,
        ] {
            assert!(GroupRow::decode(json.as_bytes()).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(offset in any::<u64>(), paused in any::<bool>(), epoch in any::<u64>(), key in any::<String>()) {
            let mut row = GroupRow { paused, epoch, ..row() };
            row.options.from = StartPosition::Offset(Offset(offset));
            row.options.filter = Filter::default().key(key);
            prop_assert_eq!(GroupRow::decode(&row.encode().unwrap()), Ok(row));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(GroupRow::decode(&bytes).is_err());
        }
    }
}
