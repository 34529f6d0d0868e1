//! One request, as a handler gets it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use promethean_bus::Publisher;
use promethean_delivery::Subject;
use promethean_model::json::minify;
use promethean_model::plain::json_reason;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_projections::Projections;
use serde::de::DeserializeOwned;

use super::args::Args;
use super::operation::{Need, Operation};
use super::request_body::RequestBody;
use crate::app::App;
use crate::audit::AuditRecord;
use crate::auth::{Access, AuthSession, Identity, Secret};
use crate::listen::connection_list::ListedConnection;
use crate::listen::slots::SlotHandle;
use crate::metrics::UsageLimit;
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, QuotaPermit};

/// One request. Its parameters are checked, and its client may do what it asks for.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) app: App,
    pub(super) args: Args,
    pub(super) headers: HeaderMap,
    pub(super) request_body: RequestBody,
    /// `None` if the operation needs no token.
    pub(super) identity: Option<Identity>,
    /// Counts the request as a connection of the client; a long answer takes it along.
    pub(super) permit: Option<QuotaPermit>,
    /// The token that the client showed, itself or by a ticket.
    pub(super) token: Option<Secret>,
    /// The authenticator's revision before it checked the token.
    pub(super) seen: u64,
    /// The publisher of the connection; `None` without a connection, as in tests.
    pub(super) publisher: Option<Arc<Publisher>>,
    /// The address of the client.
    pub(super) peer: IpAddr,
    /// The place of the connection.
    pub(super) slot: SlotHandle,
    /// The connection in the list that admins see; `None` without a connection, as in tests.
    pub(super) listed: Option<Arc<ListedConnection>>,
}

/// A client, as far as it matters for what it may see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) app: &'a App,
    identity: Option<&'a Identity>,
}

impl Viewer<'_> {
    /// Whether the client may do this.
    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.identity.is_some_and(|identity| self.app.may(identity, access))
    }

    /// Whether the client may see that a topic or pattern exists.
    pub(super) fn may_see(&self, subject: &Subject) -> bool {
        let publish = || subject.topic().is_some_and(|topic| self.may(&Access::Publish(topic)));
        self.may(&Access::Subscribe(subject, None)) || self.may(&Access::Manage(subject)) || publish()
    }

    /// Whether the client may see that a group exists.
    pub(super) fn may_see_group(&self, subject: &Subject, group: &GroupName) -> bool {
        self.may(&Access::Subscribe(subject, Some(group))) || self.may(&Access::Manage(subject))
    }
}

impl Call {
    /// The parameter `topic`, a topic.
    pub(super) fn topic(&self) -> Result<TopicName, Refusal> {
        self.args.need("topic")
    }

    /// The parameter `topic`, a topic or pattern.
    pub(super) fn subject(&self) -> Result<Subject, Refusal> {
        self.args.need("topic")
    }

    /// The parameter `group`.
    pub(super) fn group(&self) -> Result<GroupName, Refusal> {
        self.args.need("group")
    }

    /// The projections, if the server has any.
    pub(super) fn state(&self) -> Result<&Projections, Refusal> {
        let none = || {
            let message = "this server keeps no collections; declare them in its configuration";
            Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
        };
        self.app.projections.as_ref().ok_or_else(none)
    }

    /// The parameter `collection`; the default collection if it is missing.
    pub(super) fn collection(&self) -> Result<CollectionName, Refusal> {
        match self.args.parse("collection")? {
            Some(name) => Ok(name),
            None => Ok(self.state()?.default_collection()?),
        }
    }

    /// The account of the client, if it has a quota.
    fn account(&self) -> Option<Arc<Account>> {
        self.identity.as_ref().and_then(|identity| self.app.account(identity))
    }

    /// Takes a topic that does not exist yet from the client's quota of new topics.
    pub(super) fn pay_for_new(&self, topic: &TopicName) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        account.forget_topic(topic);
        self.app.pay_for(&account, self.may(&Access::Admin), [topic].into_iter(), (0, 0))
    }

    /// Takes events for a topic, and the topic if it is new, from the client's quota.
    pub(super) fn pay_for(&self, topic: &TopicName, events: usize, bytes: usize) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        self.app.pay_for(&account, self.may(&Access::Admin), [topic].into_iter(), (events, bytes))
    }

    /// Counts the request as a connection of the client, if its quota has room.
    pub(super) fn connection_permit(&self) -> Result<Option<QuotaPermit>, Refusal> {
        let permit = self.account().map(|account| account.connection()).transpose();
        permit.inspect_err(|_| self.app.metrics.over_quota(UsageLimit::Connections))
    }

    /// Writes an audit record if the operation manages something or was forbidden.
    pub(super) fn record(&self, operation: &Operation, outcome: &'static str, id: &HeaderValue) {
        if !operation.is_managing() && outcome != "forbidden" {
            return;
        }
        self.app.record(|| {
            let names = ["topic", "group", "collection", "projector", "version"];
            let on: Vec<&str> = names.iter().filter_map(|name| self.args.get(name)).collect();
            let mut record = AuditRecord::new(self.peer, operation.id, outcome).by(self.identity.as_ref());
            record.on = (!on.is_empty()).then(|| on.join(" "));
            record.request_id = id.to_str().ok().map(str::to_owned);
            record
        });
    }

    /// The client as the reader of a long answer. Its token is checked again while it reads.
    pub(super) fn reader(&self, subject: Subject) -> ReadGrant {
        let token = self.token.as_ref().and_then(Secret::reveal_text);
        let known = |identity| AuthSession::known(&self.app.auth, token, self.seen, identity);
        let session = self.identity.clone().map(known);
        let clock = &self.app.clock;
        let expires_ms = self.identity.as_ref().and_then(|identity| identity.expires_ms);
        let left_ms = expires_ms.map(|at| u64::try_from(at.saturating_sub(clock.wall_ms())).unwrap_or(0));
        let until_ms = left_ms.map(|left_ms| clock.monotonic_ms().saturating_add(left_ms));
        ReadGrant { session, subject, expires: expires_ms.zip(until_ms) }
    }

    /// What the client may see. Unlike the whole request, it can be shared while a handler waits.
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer { app: &self.app, identity: self.identity.as_ref() }
    }

    /// Whether the client may do this. A request without an identity may do nothing.
    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.viewer().may(access)
    }

    /// Whether the client may see that a topic or pattern exists.
    pub(super) fn may_see(&self, subject: &Subject) -> bool {
        self.viewer().may_see(subject)
    }

    /// Refuses a client that lacks the access of an operation. Only names are checked, so that the answer is
    /// the same whether the thing exists or not.
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
                self.outside_audit(&Access::Publish(&topic), &topic)?;
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
                if let Some(topic) = subject.topic() {
                    self.outside_audit(&Access::Manage(&subject), topic)?;
                }
                deny(self.may(&Access::Manage(&subject)), "manage", &subject)
            }
            Need::ManageLetters => self
                .with_letters()?
                .iter()
                .try_for_each(|subject| deny(self.may(&Access::Manage(subject)), "manage", subject)),
        }
    }

    /// Names the audit topic as the cause, where the token itself would allow the access.
    fn outside_audit(&self, access: &Access<'_>, topic: &TopicName) -> Result<(), Refusal> {
        let is_granted = self.identity.as_ref().is_some_and(|identity| identity.may(access));
        if is_granted && !self.may(access) { Err(Refusal::audit_topic(topic)) } else { Ok(()) }
    }

    fn allow_group(&self, subject: &Subject) -> Result<(), Refusal> {
        let group = self.group()?;
        match self.may(&Access::Subscribe(subject, Some(&group))) {
            true => Ok(()),
            false => Err(Refusal::forbidden_in(subject, &group)),
        }
    }

    /// The topic and its dead-letter topic. Access to the first includes the second, unless a rule denies it.
    fn with_letters(&self) -> Result<Vec<Subject>, Refusal> {
        let topic = self.topic()?;
        // A topic whose name is too long for the suffix has no dead-letter topic.
        let letters = topic.dlq().ok();
        Ok([Some(topic), letters].into_iter().flatten().map(Subject::Topic).collect())
    }

    /// The body, of any media type.
    pub(super) async fn body(&mut self) -> Result<Bytes, Refusal> {
        self.refuse_encoding()?;
        self.request_body.read().await
    }

    /// The body as JSON of this type. The media type of forms is accepted too, because `curl -d` sends it.
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
                "the body is not what this request needs: {reason}; see /openapi.json"
            ))
        };
        // serde would also read a list as an object.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(bad("it is not an object".to_owned()));
        }
        // `minify` refuses an object with the same name twice; serde would take the last value.
        let text = str::from_utf8(&body).map_err(|_| bad("it is not UTF-8".to_owned()))?;
        let text = minify(text).map_err(|error| bad(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| bad(json_reason(&error)))
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

/// The reader of a long answer. Its token is checked again while it reads.
#[derive(Debug)]
pub(super) struct ReadGrant {
    session: Option<AuthSession>,
    subject: Subject,
    /// When the token that began the answer expires, by its own time, and by the monotonic clock.
    expires: Option<(i64, u64)>,
}

impl ReadGrant {
    /// Whether its token is still valid and allows reading.
    pub(super) async fn may_read_on(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let known = session.refresh().await.is_ok();
        known && session.identity.may(&Access::Subscribe(&self.subject, None))
    }

    /// Whether its token has expired, also if the wall clock was set forward or back. An answer that has an end
    /// is still sent to its end.
    pub(super) fn is_expired(&self, app: &App) -> bool {
        let expires_ms = self.session.as_ref().and_then(|session| session.identity.expires_ms);
        let by_wall = expires_ms.is_some_and(|expires_ms| app.clock.wall_ms() >= expires_ms);
        // A token may get another `expires` meanwhile.
        let began = self.expires.filter(|(began_ms, _)| Some(*began_ms) == expires_ms);
        by_wall || began.is_some_and(|(_, until_ms)| app.clock.monotonic_ms() >= until_ms)
    }
}

pub(super) fn unsupported(message: String) -> Refusal {
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}
