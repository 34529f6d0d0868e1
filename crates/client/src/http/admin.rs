//! Looking at and changing topics, schemas, groups and dead letters.

use std::sync::Arc;

use hyper::Method;
use promethean_model::{EventId, TopicSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::pages::{Listing, pages};
use super::{HttpCall, HttpClient};
use crate::consume::SeekOutcome;
use crate::error::ClientError;
use crate::event::TypedEvent;
use crate::start_from::StartFrom;

/// A topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TopicDescription {
    /// Its name.
    pub topic: String,
    /// The first offset that is kept.
    pub earliest: u64,
    /// The offset that the next event will have.
    pub end: u64,
    /// Its size on the disk.
    pub bytes: u64,
    /// Its settings.
    pub settings: Value,
}

/// The progress of a group on a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TopicProgress {
    /// The topic.
    pub topic: String,
    /// Every event below this offset is finished.
    pub floor: u64,
    /// The end of the topic.
    pub end: u64,
    /// How many events are not finished.
    pub lag: u64,
    /// How many events members have.
    pub in_flight: u64,
    /// How many members there are.
    pub members: u64,
    /// `delivering`, or why not.
    pub reason: String,
    /// Further fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupDescription {
    /// Its name.
    pub group: String,
    /// Its topic or pattern.
    pub topic: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Its progress on its topics.
    pub topics: Vec<TopicProgress>,
    /// Further fields: its options, its members and their partitions.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How far a group is behind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupLag {
    /// In events.
    pub lag: u64,
    /// In milliseconds, if that is known.
    pub lag_ms: Option<i64>,
    /// Every event below this offset is finished.
    pub floor: u64,
    /// The end of the topic.
    pub end: u64,
}

/// An open dead letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenLetter {
    /// The offset of its event in the topic.
    pub offset: u64,
    /// The event that was given up, if it is kept.
    pub event: Option<TypedEvent<Value>>,
    /// Why its last attempt failed.
    pub reason: String,
    /// How often it was delivered.
    pub attempts: u32,
    /// Further fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which dead letters are meant.
#[derive(Debug, Clone)]
pub enum ChosenLetters {
    /// All of them.
    All,
    /// Those of these events.
    Ids(Vec<EventId>),
    /// Those at these offsets of the topic.
    Offsets(Vec<u64>),
    /// Those whose event passes this filter.
    Filter(Value),
}

impl ChosenLetters {
    fn json(&self) -> Map<String, Value> {
        let (name, value) = match self {
            Self::All => ("all", json!(true)),
            Self::Ids(ids) => ("ids", json!(ids)),
            Self::Offsets(offsets) => ("offsets", json!(offsets)),
            Self::Filter(filter) => ("filter", filter.clone()),
        };
        Map::from_iter([(name.to_owned(), value)])
    }
}

/// Where redriven dead letters go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterTarget {
    /// To the group that gave them up, with its attempts counted anew.
    Group,
    /// To the topic, as new events for all groups.
    Topic,
}

/// What became of chosen dead letters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LetterOutcome {
    /// How many letters were chosen.
    pub selected: u64,
    /// How many were redriven.
    pub redriven: u64,
    /// How many were dropped.
    pub dropped: u64,
    /// Further fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The owner of a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenOwner {
    /// Its name.
    pub name: String,
    /// `listed`, `signed`, `open` (the server needs no token) or `other`.
    pub kind: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// When it ends, in milliseconds since 1970, if it does.
    #[serde(default)]
    pub expires: Option<i64>,
}

/// A ticket for one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathTicket {
    /// The value of `ticket` in the query.
    pub ticket: String,
    /// When it ends, in milliseconds since 1970.
    pub expires: i64,
}

/// How a schema is registered.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchemaRegistration {
    /// The number of the version; the next one if left out.
    pub version: Option<u32>,
    /// Register it also if the comparison cannot decide.
    pub force: bool,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// Topics, schemas, groups and dead letters of a server. Changes need the scope `manage`.
#[derive(Clone)]
pub struct Admin {
    http: Arc<HttpClient>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// Topics and schemas.
impl Admin {
    pub(crate) fn new(http: Arc<HttpClient>) -> Self {
        Self { http }
    }

    /// All topics that the token may see.
    pub fn topics(&self) -> Listing<TopicDescription> {
        pages(&self.http, "topics", "next", || HttpCall::get(&["topics"]))
    }

    /// One topic with its settings.
    pub async fn topic(&self, topic: &str) -> Result<TopicDescription, ClientError> {
        self.http.json(HttpCall::get(&["topics", topic])).await
    }

    /// Creates a topic, or replaces all its settings.
    pub async fn set_topic(
        &self,
        topic: &str,
        settings: &TopicSettings,
    ) -> Result<TopicDescription, ClientError> {
        self.http.json(HttpCall::new(Method::PUT, &["topics", topic]).json(settings)?).await
    }

    /// Deletes a topic with its events and groups.
    pub async fn delete_topic(&self, topic: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::new(Method::DELETE, &["topics", topic])).await
    }

    /// The topics that have schemas.
    pub fn schema_topics(&self) -> Listing<Value> {
        pages(&self.http, "topics", "next", || HttpCall::get(&["schemas"]))
    }

    /// The versions of the schema of a topic.
    pub async fn schemas(&self, topic: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::get(&["schemas", topic])).await
    }

    /// One version of the schema of a topic; the latest if left out.
    pub async fn schema(&self, topic: &str, version: Option<u32>) -> Result<Value, ClientError> {
        let version = version.map_or_else(|| "latest".to_owned(), |version| version.to_string());
        self.http.json(HttpCall::get(&["schemas", topic, &version])).await
    }

    /// Registers a schema as the next version.
    pub async fn register_schema(
        &self,
        topic: &str,
        schema: &Value,
        how: SchemaRegistration,
    ) -> Result<Value, ClientError> {
        let call = HttpCall::post(&["schemas", topic]).maybe("version", how.version);
        self.http.json(call.flag("force", how.force).flag("dry_run", how.dry_run).json(schema)?).await
    }

    /// Compares a schema with the registered versions; writes nothing.
    pub async fn check_schema(&self, topic: &str, schema: &Value) -> Result<Value, ClientError> {
        self.http.json(HttpCall::post(&["schemas", topic, "check"]).json(schema)?).await
    }

    /// Checks a payload against the latest version of the schema, or against `version`.
    pub async fn validate(
        &self,
        topic: &str,
        payload: &(impl Serialize + ?Sized),
        version: Option<u32>,
    ) -> Result<Value, ClientError> {
        let call = HttpCall::post(&["schemas", topic, "validate"]).maybe("version", version);
        self.http.json(call.json(payload)?).await
    }

    /// Deletes a version that no event was published with.
    pub async fn delete_schema(&self, topic: &str, version: u32) -> Result<Value, ClientError> {
        self.http.json(HttpCall::new(Method::DELETE, &["schemas", topic, &version.to_string()])).await
    }

    /// Lifts all stored events and tells which fail; writes nothing.
    pub async fn try_migration(&self, topic: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::post(&["schemas", topic, "migrate"])).await
    }
}

/// Groups and dead letters.
impl Admin {
    /// All groups, or the groups of a topic.
    pub fn groups(&self, topic: Option<&str>) -> Listing<GroupDescription> {
        let topic = topic.map(str::to_owned);
        pages(&self.http, "groups", "next", move || HttpCall::get(&["groups"]).maybe("topic", topic.as_ref()))
    }

    /// One group: its options, its progress, and why it delivers nothing.
    pub async fn group(&self, topic: &str, group: &str) -> Result<GroupDescription, ClientError> {
        self.http.json(HttpCall::get(&["groups", group]).query("topic", topic)).await
    }

    /// The cursors of the groups of a topic.
    pub fn cursors(&self, topic: &str) -> Listing<Value> {
        let topic = topic.to_owned();
        pages(&self.http, "cursors", "next", move || HttpCall::get(&["cursors"]).query("topic", &topic))
    }

    /// How far a group is behind.
    pub async fn lag(&self, topic: &str, group: &str) -> Result<GroupLag, ClientError> {
        self.http.json(HttpCall::get(&["lag"]).query("topic", topic).query("group", group)).await
    }

    /// Moves a group; with `dry_run`, only tells what would be replayed and skipped.
    pub async fn seek(
        &self,
        topic: &str,
        group: &str,
        to: StartFrom,
        dry_run: bool,
    ) -> Result<SeekOutcome, ClientError> {
        let mut body =
            Map::from_iter([("to".to_owned(), json!(to.word())), ("dryRun".to_owned(), json!(dry_run))]);
        match to {
            StartFrom::Latest | StartFrom::Earliest => {}
            StartFrom::Ts(ts) => drop(body.insert("ts".to_owned(), json!(ts))),
            StartFrom::AfterId(id) => drop(body.insert("afterId".to_owned(), json!(id))),
            StartFrom::Offset(offset) => drop(body.insert("offset".to_owned(), json!(offset))),
        }
        self.http.json(HttpCall::post(&["groups", group, "seek"]).query("topic", topic).json(&body)?).await
    }

    /// Pauses a group until it is resumed, even after a restart of the server.
    pub async fn pause(&self, topic: &str, group: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::post(&["groups", group, "pause"]).query("topic", topic)).await
    }

    /// Ends the pause of a group.
    pub async fn resume(&self, topic: &str, group: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::post(&["groups", group, "resume"]).query("topic", topic)).await
    }

    /// Deletes a group without members.
    pub async fn delete_group(&self, topic: &str, group: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::new(Method::DELETE, &["groups", group]).query("topic", topic)).await
    }

    /// The open dead letters of a group.
    pub fn dead_letters(&self, topic: &str, group: &str) -> Listing<OpenLetter> {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        pages(&self.http, "letters", "next", move || {
            HttpCall::get(&["dlq"]).query("topic", &topic).query("group", &group)
        })
    }

    /// Delivers dead letters again: to their group, or as new events of the topic.
    pub async fn redrive(
        &self,
        topic: &str,
        group: &str,
        letters: &ChosenLetters,
        to: LetterTarget,
    ) -> Result<LetterOutcome, ClientError> {
        let mut body = letters.json();
        let word = if to == LetterTarget::Group { "group" } else { "topic" };
        body.insert("to".to_owned(), json!(word));
        let call = HttpCall::post(&["dlq", "redrive"]).query("topic", topic).query("group", group);
        self.http.json(call.json(&body)?).await
    }

    /// Publishes one dead letter to its topic with another payload, and closes the letter in the same commit. The
    /// new event has a new id and names the original as its cause.
    pub async fn redrive_edited(
        &self,
        topic: &str,
        group: &str,
        event: EventId,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<LetterOutcome, ClientError> {
        #[derive(Serialize)]
        struct EditedLetter<'a, P: ?Sized> {
            ids: [EventId; 1],
            to: &'static str,
            payload: &'a P,
        }
        let call = HttpCall::post(&["dlq", "redrive"]).query("topic", topic).query("group", group);
        self.http.json(call.json(&EditedLetter { ids: [event], to: "topic", payload })?).await
    }

    /// Closes dead letters.
    pub async fn drop_letters(
        &self,
        topic: &str,
        group: &str,
        letters: &ChosenLetters,
    ) -> Result<LetterOutcome, ClientError> {
        let call = HttpCall::post(&["dlq", "drop"]).query("topic", topic).query("group", group);
        self.http.json(call.json(&letters.json())?).await
    }
}

/// The server.
impl Admin {
    /// Whether the server is well: `status` is `ok` or `degraded`.
    pub async fn health(&self) -> Result<Value, ClientError> {
        self.http.json(HttpCall::get(&["health"])).await
    }

    /// Whether the server accepts work.
    pub async fn is_ready(&self) -> Result<bool, ClientError> {
        match self.http.json::<Value>(HttpCall::get(&["ready"])).await {
            Ok(_) => Ok(true),
            Err(error) if error.details().contains_key("status") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whose token this is, and what it allows.
    pub async fn whoami(&self) -> Result<TokenOwner, ClientError> {
        self.http.json(HttpCall::get(&["whoami"])).await
    }

    /// Makes a ticket for one `GET` of a path such as `/stream/orders.placed`, for where a header cannot be sent: a link
    /// or an `EventSource`. It goes into the query, as `ticket`.
    pub async fn ticket(&self, path: &str) -> Result<PathTicket, ClientError> {
        self.http.json(HttpCall::post(&["tickets"]).json(&json!({"path": path}))?).await
    }

    /// One page of what goes on: groups with their members, projectors, faults. `after` is `next` of the page
    /// before.
    pub async fn ops(&self, after: Option<&str>) -> Result<Value, ClientError> {
        self.http.json(HttpCall::get(&["ops"]).maybe("after", after)).await
    }

    /// The projectors and compactors.
    pub async fn projectors(&self) -> Result<Value, ClientError> {
        self.http.json(HttpCall::get(&["projectors"])).await
    }

    /// Rebuilds the state of a projector.
    pub async fn rebuild_projector(&self, projector: &str, accept_loss: bool) -> Result<Value, ClientError> {
        let call = HttpCall::post(&["projectors", projector, "rebuild"]);
        self.http.json(call.flag("accept_loss", accept_loss)).await
    }

    /// Lets a halted projector continue.
    pub async fn resume_projector(&self, projector: &str) -> Result<Value, ClientError> {
        self.http.json(HttpCall::post(&["projectors", projector, "resume"])).await
    }

    /// Asks any route for JSON: what this client has no call for.
    pub async fn get(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Value, ClientError> {
        let call = query.iter().fold(HttpCall::get(segments), |call, (name, value)| call.query(name, value));
        self.http.json(call).await
    }
}
