//! Single events: the latest of a key, the one at an offset.

use promethean_model::{Offset, TopicName};
use promethean_store::port::{PageLimit, StoredEvent};

use crate::bus::Bus;
use crate::error::BusError;

impl Bus {
    /// The latest event of each key, in the order of the keys; `None` for a key without one.
    pub async fn latest_by_key(
        &self,
        topic: &TopicName,
        keys: &[String],
    ) -> Result<Vec<Option<StoredEvent>>, BusError> {
        Ok(self.groups.base.store.latest_by_keys(topic, keys).await?)
    }

    /// The event at an offset, unless it is gone or not there yet.
    pub async fn event_at(&self, topic: &TopicName, offset: Offset) -> Result<Option<StoredEvent>, BusError> {
        let limit = PageLimit { events: 1, ..PageLimit::default() };
        let page = self.groups.base.store.read(topic, offset, limit).await?;
        Ok(page.events.into_iter().next().filter(|event| event.offset == offset))
    }

    /// The durable end of a topic: the offset its next event will get.
    pub fn end_of(&self, topic: &TopicName) -> Offset {
        self.groups.base.store.durable_end(topic)
    }
}
