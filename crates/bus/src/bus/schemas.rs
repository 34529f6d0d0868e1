//! Schemas of topics.

use promethean_model::TopicName;
use promethean_schema::{Compared, SchemaText};
use promethean_store::port::StoredEvent;

use super::Bus;
use crate::error::BusError;
use crate::schemas::folder::{FolderError, FolderReport, SchemaFolder};
use crate::schemas::{
    DualWrite, Lifted, RegisterOptions, Registered, SchemaInfo, SchemaTopics, StoredSchema, Upcaster,
    WhichSchema,
};

impl Bus {
    /// Registers a schema as the topic's next version.
    ///
    /// Every publish that begins after the answer is checked against it. A publish that is under way is checked against this
    /// version or the one before, and its event says against which. A schema that means the same as the latest version is not
    /// registered again.
    pub async fn register_schema(
        &self,
        topic: &TopicName,
        text: SchemaText,
        options: RegisterOptions,
    ) -> Result<Registered, BusError> {
        self.groups.schemas.register(topic, text, options).await
    }

    /// Compares a schema with the versions of a topic as registering would, and writes nothing. Refuses only a text that is
    /// not a schema.
    pub async fn check_schema(&self, topic: &TopicName, text: SchemaText) -> Result<Vec<Compared>, BusError> {
        self.groups.schemas.check(topic, text).await
    }

    /// The versions of a topic, ascending, without their texts.
    pub fn schemas(&self, topic: &TopicName) -> Vec<SchemaInfo> {
        self.groups.schemas.list(topic)
    }

    /// One version with its text.
    pub async fn schema(&self, topic: &TopicName, which: WhichSchema) -> Result<StoredSchema, BusError> {
        self.groups.schemas.find(topic, which).await
    }

    /// Topics with schemas, in the order of their names, after `after`, at most `limit` and 1,000.
    pub fn all_schemas(&self, after: Option<&TopicName>, limit: usize) -> SchemaTopics {
        self.groups.schemas.page(after, limit)
    }

    /// Deletes a version that no event can have, because none was published since the version was registered.
    pub async fn delete_schema(&self, topic: &TopicName, version: u32) -> Result<(), BusError> {
        self.groups.schemas.delete(topic, version).await
    }

    /// Checks a payload against a version, or the latest. Returns the number of that version, or `None` if the topic has no
    /// schema. The topic's setting `schema` does not matter here. A tombstone always fits.
    pub async fn validate(
        &self,
        topic: &TopicName,
        payload: &str,
        version: Option<u32>,
    ) -> Result<Option<u32>, BusError> {
        self.groups.schemas.validate(topic, payload, version).await
    }

    /// Sets the upcasters of a topic, in place of those before. A version without an upcaster is taken for one of the next
    /// version, if it fits.
    pub fn set_upcasters(&self, topic: &TopicName, upcasters: Vec<Upcaster>) -> Result<(), BusError> {
        self.groups.schemas.set_upcasters(topic, upcasters)
    }

    /// Publishes the events of a topic in an old form too, or no longer. The version must be registered by the time
    /// something is published.
    pub fn set_dual_write(&self, topic: &TopicName, dual: Option<DualWrite>) -> Result<(), BusError> {
        self.groups.schemas.set_dual_write(topic, dual)
    }

    /// Registers the versions of a folder that are missing, in their order, and sets its programs. Doing it again changes
    /// nothing. A version that is registered with another text is refused; what came before it in the folder is done.
    pub async fn apply_schemas(&self, folder: SchemaFolder) -> Result<FolderReport, FolderError> {
        self.groups.schemas.apply(folder).await
    }

    /// Lifts an event to the latest version of its topic.
    pub async fn lift(&self, event: StoredEvent) -> Lifted {
        self.groups.schemas.lift(event).await
    }

    /// Lifts events. An event that cannot be lifted stays as it is, with the header `x-normalize-error`.
    pub async fn lift_all(&self, events: Vec<StoredEvent>) -> Vec<StoredEvent> {
        self.groups.schemas.lift_all(events).await
    }
}
