//! The reply to a publish.

use promethean_model::{EventId, Offset, TopicName};
use promethean_store::port::{Placed, Receipt};
use serde::Serialize;

use super::prepare::PendingReply;

/// An event that is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    /// Its id.
    pub id: EventId,
    /// Its topic.
    pub topic: TopicName,
    /// Its place; for a duplicate, that of the first.
    pub offset: Offset,
    /// Its time; for a duplicate, that of the first.
    pub ts: i64,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// What the event has survived, in one word.
    pub durability: &'static str,
    /// Whether it was there already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

impl Published {
    /// The reply for one event of a commit.
    pub(crate) fn new(pending: PendingReply, placed: Placed, durability: &'static str) -> Self {
        let PendingReply { id, topic, partition } = pending;
        let Placed { offset, ts, duplicate } = placed;
        Self { id, topic, offset, ts, partition, durability, duplicate }
    }

    /// The replies for a commit whose events are those of `pending`, in that order.
    pub(crate) fn all(pending: Vec<PendingReply>, receipt: &Receipt) -> Vec<Self> {
        let word = receipt.durability_word();
        let placed = receipt.events.iter().copied();
        pending.into_iter().zip(placed).map(|(pending, placed)| Self::new(pending, placed, word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_leaves_out_what_is_absent() {
        let pending = |partition| PendingReply {
            id: EventId::from_bytes([1; 16]),
            topic: "a".parse().unwrap(),
            partition,
        };
        let placed = |duplicate| Placed { offset: Offset(3), ts: 9, duplicate };
        let json = |published: Published| serde_json::to_string(&published).unwrap();
        assert_eq!(
            json(Published::new(pending(None), placed(false), "fsync")),
            r#"{"id":"01010101-0101-0101-0101-010101010101","topic":"a","offset":3,"ts":9,"durability":"fsync"}"#
        );
        let receipt = Receipt { events: vec![placed(true)], durability: None };
        let all = Published::all(vec![pending(Some(2))], &receipt);
        assert_eq!(all.len(), 1);
        assert_eq!(
            json(all[0].clone()),
            r#"{"id":"01010101-0101-0101-0101-010101010101","topic":"a","offset":3,"ts":9,"partition":2,"durability":"memory","duplicate":true}"#
        );
    }
}
