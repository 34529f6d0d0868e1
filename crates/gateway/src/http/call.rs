//! What a handler is given.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use promethean_bus::Publisher;
use promethean_delivery::Subject;
use promethean_model::json::minify;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_projections::Projections;
use serde::de::DeserializeOwned;

use super::args::Args;
use super::dispatch::bearer;
use super::operation::{Need, Operation};
use super::request_body::RequestBody;
use crate::app::App;
use crate::audit::Record;
use crate::auth::{Access, AuthSession, Identity};
use crate::metrics::UsageLimit;
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, QuotaPermit};

/// One request whose parameters are checked and whose client may.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) app: App,
    pub(super) args: Args,
    pub(super) headers: HeaderMap,
    pub(super) request_body: RequestBody,
    /// `None` where nobody needs to be known.
    pub(super) identity: Option<Identity>,
    /// The authenticator's generation before it was asked.
    pub(super) seen: u64,
    /// That of the connection; `None` where there is none, as in tests.
    pub(super) publisher: Option<Arc<Publisher>>,
    /// Where it comes from.
    pub(super) peer: IpAddr,
}

impl Call {
    /// The topic it is about.
    pub(super) fn topic(&self) -> Result<TopicName, Refusal> {
        self.args.need("topic")
    }

    /// The topic or pattern it is about.
    pub(super) fn subject(&self) -> Result<Subject, Refusal> {
        self.args.need("topic")
    }

    /// The group it is about.
    pub(super) fn group(&self) -> Result<GroupName, Refusal> {
        self.args.need("group")
    }

    /// What is derived from events.
    pub(super) fn state(&self) -> Result<&Projections, Refusal> {
        let none = || {
            let message = "this server keeps no collections; declare them in its configuration";
            Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
        };
        self.app.projections.as_ref().ok_or_else(none)
    }

    /// The collection it is about; the default one where none is named.
    pub(super) fn collection(&self) -> Result<CollectionName, Refusal> {
        match self.args.parse("collection")? {
            Some(name) => Ok(name),
            None => Ok(self.state()?.default_collection()?),
        }
    }

    /// What the client's token uses, if it is limited.
    fn account(&self) -> Option<Arc<Account>> {
        self.identity.as_ref().and_then(|identity| self.app.account(identity))
    }

    /// Refuses a client that begins too many topics. This one is not there.
    pub(super) fn pay_for_new(&self, topic: &TopicName) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        account.forget_topic(topic);
        self.app.pay_for(&account, [topic].into_iter(), 0, 0)
    }

    /// Refuses a client that publishes more to the topic than its token may, or begins too many topics.
    pub(super) fn pay_for(&self, topic: &TopicName, events: usize, bytes: usize) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        self.app.pay_for(&account, [topic].into_iter(), events, bytes)
    }

    /// The client's place among the connections of its token, for an answer without an end.
    pub(super) fn place(&self) -> Result<Option<QuotaPermit>, Refusal> {
        let place = self.account().map(|account| account.connection()).transpose();
        place.inspect_err(|_| self.app.metrics.over_quota(UsageLimit::Connections))
    }

    /// What is written down of it, if anything: what manages, and what is forbidden.
    pub(super) fn record(&self, operation: &Operation, outcome: &'static str, id: &HeaderValue) {
        if !operation.is_managing() && outcome != "forbidden" {
            return;
        }
        self.app.record(|| {
            let names = ["topic", "group", "collection", "projector", "version"];
            let on: Vec<&str> = names.iter().filter_map(|name| self.args.get(name)).collect();
            let mut record = Record::new(self.peer, operation.id, outcome);
            record.who = self.identity.as_ref().map(|identity| Arc::clone(&identity.name));
            record.on = (!on.is_empty()).then(|| on.join(" "));
            record.request_id = id.to_str().ok().map(str::to_owned);
            record
        });
    }

    /// The client as the reader of a long answer. Its token is checked again while it reads.
    pub(super) fn reader(&self, subject: Subject) -> Reader {
        let token = bearer(&self.headers).ok();
        let session = token
            .zip(self.identity.clone())
            .map(|(token, identity)| AuthSession::known(&self.app.auth, token, self.seen, identity));
        Reader { session, subject }
    }

    /// Whether the client may. Nobody may anything.
    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.identity.as_ref().is_some_and(|identity| self.app.may(identity, access))
    }

    /// Whether the client may see a topic or pattern at all.
    pub(super) fn may_see(&self, subject: &Subject) -> bool {
        let publish = || subject.topic().is_some_and(|topic| self.may(&Access::Publish(topic)));
        self.may(&Access::Subscribe(subject, None)) || self.may(&Access::Manage(subject)) || publish()
    }

    /// Whether the client may see a group.
    pub(super) fn may_see_group(&self, subject: &Subject, group: &GroupName) -> bool {
        self.may(&Access::Subscribe(subject, Some(group))) || self.may(&Access::Manage(subject))
    }

    /// Refuses a client that lacks what the operation needs. Looks at nothing but names, so that the answer is the
    /// same for what exists and what does not.
    pub(super) fn allow(&self, need: Need) -> Result<(), Refusal> {
        let deny = |allowed: bool, verb: &str, subject: &Subject| {
            if allowed { Ok(()) } else { Err(Refusal::forbidden_on(verb, subject)) }
        };
        match need {
            Need::Nothing | Need::Known => Ok(()),
            Need::Admin if self.may(&Access::Admin) => Ok(()),
            Need::Admin => Err(Refusal::forbidden("admin")),
            Need::Publish => {
                let topic = self.topic()?;
                deny(self.may(&Access::Publish(&topic)), "publish", &Subject::Topic(topic.clone()))
            }
            Need::Subscribe => {
                let subject = self.subject()?;
                deny(self.may(&Access::Subscribe(&subject, None)), "subscribe", &subject)
            }
            Need::SubscribeAs => self.allow_group(&self.subject()?),
            Need::ReadLetters => {
                self.with_letters()?.iter().try_for_each(|subject| self.allow_group(subject))
            }
            Need::Any => {
                let subject = self.subject()?;
                deny(self.may_see(&subject), "subscribe", &subject)
            }
            Need::ReadCollection => {
                let collection = self.collection()?;
                match self.may(&Access::Read(collection.as_str())) {
                    true => Ok(()),
                    false => Err(Refusal::forbidden(&format!("read:{collection}"))),
                }
            }
            Need::Manage => {
                let subject = self.subject()?;
                deny(self.may(&Access::Manage(&subject)), "manage", &subject)
            }
            Need::ManageLetters => self
                .with_letters()?
                .iter()
                .try_for_each(|subject| deny(self.may(&Access::Manage(subject)), "manage", subject)),
        }
    }

    fn allow_group(&self, subject: &Subject) -> Result<(), Refusal> {
        let group = self.group()?;
        match self.may(&Access::Subscribe(subject, Some(&group))) {
            true => Ok(()),
            false => Err(Refusal::forbidden(&format!("subscribe:{subject}@{group}"))),
        }
    }

    /// The topic and that of its dead letters. Whoever may the one may the other, unless it is denied.
    fn with_letters(&self) -> Result<Vec<Subject>, Refusal> {
        let topic = self.topic()?;
        // A name too long to have letters has none to deny.
        let letters = topic.dlq().ok();
        Ok([Some(topic), letters].into_iter().flatten().map(Subject::Topic).collect())
    }

    /// The body, whatever it says it is.
    pub(super) async fn body(&mut self) -> Result<Bytes, Refusal> {
        self.refuse_encoding()?;
        self.request_body.read().await
    }

    /// The body as JSON of a known form. Form data passes too, because that is what `curl -d` calls everything.
    pub(super) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        let media = self.media_type();
        let known = ["", "application/json", "text/json", "application/x-www-form-urlencoded"];
        if !known.contains(&media.as_str()) && !media.ends_with("+json") {
            let media: String = media.chars().take(80).collect();
            return Err(unsupported(format!("`{media}` is not understood here; send `application/json`")));
        }
        let body = self.body().await?;
        let bad = |reason: String| {
            Refusal::bad_request(format!(
                "the body is not the JSON that is wanted: {reason}; see /openapi.json"
            ))
        };
        // Lists pass for objects with serde.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(bad("it is not an object".to_owned()));
        }
        // What comes twice is refused wherever it is: serde takes the last one where it reads a map.
        let text = str::from_utf8(&body).map_err(|_| bad("it is not UTF-8".to_owned()))?;
        let text = minify(text).map_err(|error| bad(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| bad(error.to_string()))
    }

    /// The media type without its parameters, in lower case.
    pub(super) fn media_type(&self) -> String {
        let value =
            self.headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("unreadable"));
        let media = value.unwrap_or_default().split(';').next().unwrap_or_default();
        media.trim().to_ascii_lowercase()
    }

    fn refuse_encoding(&self) -> Result<(), Refusal> {
        match self.headers.get(header::CONTENT_ENCODING) {
            Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
                Err(unsupported("compressed bodies are not accepted; send the body as it is".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// A client, and what it reads.
#[derive(Debug)]
pub(super) struct Reader {
    session: Option<AuthSession>,
    subject: Subject,
}

impl Reader {
    /// Whether its token was not taken out, and still allows it.
    pub(super) async fn may_read_on(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let known = session.look().await.is_ok();
        known && session.identity.may(&Access::Subscribe(&self.subject, None))
    }

    /// Whether its token has expired. What has an end is read to its end nevertheless.
    pub(super) fn is_expired(&self, app: &App) -> bool {
        let expires_ms = self.session.as_ref().and_then(|session| session.identity.expires_ms);
        expires_ms.is_some_and(|expires_ms| app.clock.wall_ms() >= expires_ms)
    }
}

pub(super) fn unsupported(message: String) -> Refusal {
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}
