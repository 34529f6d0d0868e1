//! Options of groups, set when a group is created.

use promethean_delivery::{Filter, Order};
use promethean_model::limits::{ATTEMPTS_MAX, PARTITIONS_MAX};
use promethean_model::{EventId, GroupName, Offset};
use serde::{Deserialize, Serialize};

use crate::error::BusError;

/// Where a new group begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartPosition {
    /// After the last event there is.
    #[default]
    Latest,
    /// With the first event there is.
    Earliest,
    /// With the lowest offset whose event has this time or a later one, epoch ms.
    Ts(i64),
    /// After the event with this id.
    AfterId(EventId),
    /// With this offset.
    Offset(Offset),
}

/// What a group was created with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupOptions {
    /// Where it began.
    #[serde(default)]
    pub from: StartPosition,
    /// Which events it is given.
    #[serde(default, skip_serializing_if = "Filter::is_empty")]
    pub filter: Filter,
    /// In which order.
    #[serde(default, with = "order_word")]
    pub order: Order,
    /// How many partitions its members share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Attempts before an event is a dead letter.
    pub max_attempts: u32,
}

/// What a subscriber asks for; what is left out is kept, or has its default in a new group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedOptions {
    /// Where to begin.
    pub from: Option<StartPosition>,
    /// Which events to be given.
    pub filter: Option<Filter>,
    /// In which order.
    pub order: Option<Order>,
    /// How many partitions to share.
    pub partitions: Option<u32>,
    /// Attempts before an event is a dead letter.
    pub max_attempts: Option<u32>,
}

impl AskedOptions {
    /// Refuses options that cannot work.
    pub fn validate(&self) -> Result<(), BusError> {
        if let Some(filter) = &self.filter {
            filter.validate()?;
        }
        within("partitions", self.partitions, PARTITIONS_MAX, "give a number from 1 to 4096, or none")?;
        within("maxAttempts", self.max_attempts, ATTEMPTS_MAX, "give a number from 1 to 1000")
    }

    /// The options of a new group. `max_attempts` is the topic's, for where none is asked for.
    pub fn create(self, max_attempts: u32) -> GroupOptions {
        GroupOptions {
            from: self.from.unwrap_or_default(),
            filter: self.filter.unwrap_or_default(),
            order: self.order.unwrap_or_default(),
            partitions: self.partitions,
            max_attempts: self.max_attempts.unwrap_or(max_attempts),
        }
    }
}

impl GroupOptions {
    /// Refuses what differs from what the group was created with. A number of partitions is not looked at: it may
    /// change while the group has no members, which the coordinator knows.
    pub fn agree(&self, group: &GroupName, asked: &AskedOptions) -> Result<(), BusError> {
        same(group, "from", asked.from.as_ref(), &self.from)?;
        same(group, "filter", asked.filter.as_ref(), &self.filter)?;
        same(group, "order", asked.order.map(word).as_ref(), &word(self.order))?;
        same(group, "maxAttempts", asked.max_attempts.as_ref(), &self.max_attempts)
    }
}

fn same<T: PartialEq + Serialize>(
    group: &GroupName,
    option: &'static str,
    asked: Option<&T>,
    actual: &T,
) -> Result<(), BusError> {
    let json = |value: &T| serde_json::to_string(value).unwrap_or_default();
    match asked {
        Some(asked) if asked != actual => Err(BusError::GroupConflict {
            group: group.clone(),
            option,
            asked: json(asked),
            actual: json(actual),
        }),
        _ => Ok(()),
    }
}

fn within(option: &'static str, given: Option<u32>, max: u32, fix: &'static str) -> Result<(), BusError> {
    match given {
        Some(given) if !(1..=max).contains(&given) => {
            Err(BusError::BadOption { option, given: given.to_string(), fix })
        }
        _ => Ok(()),
    }
}

const fn word(order: Order) -> &'static str {
    match order {
        Order::None => "none",
        Order::Key => "key",
    }
}

/// `order` as users write it.
mod order_word {
    use promethean_delivery::Order;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(order: &Order, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(super::word(*order))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Order, D::Error> {
        match &*std::borrow::Cow::<'de, str>::deserialize(deserializer)? {
            "none" => Ok(Order::None),
            "key" => Ok(Order::Key),
            other => Err(de::Error::unknown_variant(other, &["none", "key"])),
        }
    }
}

const _: () = assert!(PARTITIONS_MAX == 4096 && ATTEMPTS_MAX == 1000, "the messages say so");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_kept_and_what_differs_is_refused() {
        let asked = AskedOptions { order: Some(Order::Key), ..AskedOptions::default() };
        let options = asked.clone().create(7);
        assert_eq!(
            (options.max_attempts, options.from, options.order),
            (7, StartPosition::Latest, Order::Key)
        );
        let group: GroupName = "g".parse().unwrap();
        for agreed in [AskedOptions::default(), asked] {
            assert_eq!(options.agree(&group, &agreed), Ok(()));
        }
        let check = |asked: AskedOptions, message: &str| {
            let error = options.agree(&group, &asked).unwrap_err();
            assert_eq!((error.code(), error.to_string().as_str()), ("conflict", message));
        };
        let end = "leave the option out to keep it, or use another group";
        check(
            AskedOptions { order: Some(Order::None), ..AskedOptions::default() },
            &format!("group `g` has `order` = \"key\", not \"none\"; {end}"),
        );
        check(
            AskedOptions { from: Some(StartPosition::Offset(Offset(3))), ..AskedOptions::default() },
            &format!("group `g` has `from` = \"latest\", not {{\"offset\":3}}; {end}"),
        );
        check(
            AskedOptions { max_attempts: Some(5), ..AskedOptions::default() },
            &format!("group `g` has `maxAttempts` = 7, not 5; {end}"),
        );
        check(
            AskedOptions { filter: Some(Filter::default().key("k")), ..AskedOptions::default() },
            &format!("group `g` has `filter` = {{}}, not {{\"key\":\"k\"}}; {end}"),
        );
    }

    #[test]
    fn options_that_cannot_work() {
        for asked in [
            AskedOptions { partitions: Some(0), ..AskedOptions::default() },
            AskedOptions { partitions: Some(4097), ..AskedOptions::default() },
            AskedOptions { max_attempts: Some(0), ..AskedOptions::default() },
        ] {
            assert_eq!(asked.validate().unwrap_err().code(), "bad_option");
        }
        assert_eq!(AskedOptions::default().validate(), Ok(()));
    }
}
