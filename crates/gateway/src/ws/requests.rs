//! What each frame of a client asks for.

use std::sync::Arc;

use axum::http::StatusCode;
use promethean_bus::BusError;
use promethean_bus::groups::SeekReport;
use promethean_bus::publish::Publish;
use promethean_delivery::Subject;
use promethean_model::wire::client::Target;
use promethean_model::wire::{ClientFrame, Corr, Item, Reply, SeekOpts, SubscribeOpts};
use promethean_model::{GroupName, TopicName};
use serde_json::value::RawValue;

use super::asking;
use super::connection::{Connection, Kept, TOO_MANY, UNKNOWN};
use super::publishing::refuse;
use super::subscriptions::Subscribed;
use crate::audit::Record;
use crate::auth::{Access, AuthError, Standing};
use crate::events;
use crate::http::metrics::OPS;
use crate::refusal::Refusal;
use crate::usage::accounts::Account;

/// Tokens that may be wrong before the connection is closed.
const FAILURES_MAX: u32 = 3;

/// What came of something that had to be done first.
pub(super) enum Answer {
    Known(Kept, Result<Box<Standing>, AuthError>),
    Subscribed(Kept, Result<Box<Subscribed>, Refusal>),
    Done(Kept, Result<(), Refusal>),
    Sought(Kept, Result<SeekReport, Refusal>),
}

impl Connection {
    /// Does what a frame asks for, or begins to.
    pub(super) fn request(&mut self, text: &str) {
        let (corr, frame) = ClientFrame::read(text);
        let op = number(frame.as_ref().ok());
        if let Some(count) = self.frames.get_mut(op) {
            *count += 1;
        }
        let result = match frame {
            Err(error) => Err(Refusal::new(StatusCode::BAD_REQUEST, error.code(), error.to_string())),
            Ok(ClientFrame::Auth { token }) => {
                self.authenticate(corr, token.as_deref());
                Ok(())
            }
            Ok(_) if self.standing.is_none() => Err(AuthError::Missing.into()),
            Ok(ClientFrame::Publish(item)) => self.publish(corr, item, text.len()),
            Ok(frame) => {
                // Whatever it is, what was published before it comes first.
                self.publishing.hand_over();
                self.other(corr, frame, text.len())
            }
        };
        if let Err(refusal) = result {
            if refusal.code == "forbidden" {
                // The message names what was asked for, by the scope that it needs.
                self.record(OPS.get(op).copied().unwrap_or_default(), refusal.code, Some(&refusal.message));
            }
            self.refuse(corr, &refusal);
        }
    }

    fn other(&mut self, corr: Corr<'_>, frame: ClientFrame<'_>, bytes: usize) -> Result<(), Refusal> {
        match frame {
            ClientFrame::PublishMany(items) => self.publish_many(corr, items, bytes),
            ClientFrame::Subscribe { topic, group, batch, opts } => {
                self.subscribe(corr, &topic, &group, batch, &opts)
            }
            ClientFrame::Unsubscribe(target) => {
                let number = self.find(&target)?.0;
                self.hand_over_acks();
                if let Some(mut removed) = self.subscriptions.remove(number) {
                    removed.subscription.unsubscribe();
                    self.unfetched(&mut removed, "not_subscribed");
                }
                self.out.add(|buffer| Reply { corr }.ok(buffer));
                Ok(())
            }
            ClientFrame::Ack(target, ids) => self.ack(corr, &target, &ids),
            ClientFrame::Nack { target, ids, delay_ms } => self.nack(corr, &target, &ids, delay_ms),
            ClientFrame::Modack { target, ids, extend_ms } => self.extend(corr, &target, &ids, extend_ms),
            ClientFrame::Pause(target) => self.pause(corr, &target, true),
            ClientFrame::Resume(target) => self.pause(corr, &target, false),
            ClientFrame::Fetch { target, max, wait_ms } => self.fetch(corr, &target, max, wait_ms),
            ClientFrame::Seek(target, opts) => self.seek(corr, &target, &opts),
            ClientFrame::Auth { .. } | ClientFrame::Publish(_) => Ok(()),
        }
    }

    /// Takes what came of something that had to be done first.
    pub(super) fn answer(&mut self, answer: Answer) {
        let (corr, result) = match answer {
            Answer::Known(corr, Ok(standing)) => (corr, self.admit(*standing)),
            Answer::Known(corr, Err(error)) => {
                // Whoever could not be looked at did not guess.
                self.failures += u32::from(matches!(error, AuthError::BadToken(_) | AuthError::Missing));
                if matches!(error, AuthError::TooMany { .. }) && self.standing.is_none() {
                    self.close(TOO_MANY, "too many tokens that are not valid came from this address");
                } else if self.failures >= FAILURES_MAX {
                    self.close(UNKNOWN, "too many tokens that are not valid");
                }
                (corr, Err(error.into()))
            }
            Answer::Subscribed(corr, Ok(subscribed)) => (corr, self.subscribed(*subscribed)),
            Answer::Subscribed(corr, Err(refusal)) => (corr, Err(refusal)),
            Answer::Done(corr, result) => (corr, result),
            Answer::Sought(corr, Ok(report)) => {
                let reply = Reply { corr: corr.as_deref() };
                return self.out.add(|buffer| reply.ok_with(buffer, &report));
            }
            Answer::Sought(corr, Err(refusal)) => (corr, Err(refusal)),
        };
        match result {
            Ok(()) => self.out.add(|buffer| Reply { corr: corr.as_deref() }.ok(buffer)),
            Err(refusal) => self.refuse(corr.as_deref(), &refusal),
        }
    }

    pub(super) fn refuse(&mut self, corr: Corr<'_>, refusal: &Refusal) {
        refuse(&mut self.out, &Reply { corr }, refusal);
    }

    fn publish(&mut self, corr: Corr<'_>, item: Item<'_>, bytes: usize) -> Result<(), Refusal> {
        let event = self.event(item)?;
        match self.pay_for(std::slice::from_ref(&event), bytes) {
            Ok(()) => self.publishing.one(event, corr, bytes),
            Err(refusal) => self.publishing.refused(refusal, corr, bytes),
        }
        Ok(())
    }

    fn publish_many(&mut self, corr: Corr<'_>, items: Vec<Item<'_>>, bytes: usize) -> Result<(), Refusal> {
        if items.is_empty() {
            return Err(Refusal::bad_request("`events` is empty; give at least one event"));
        }
        let events: Vec<_> = items.into_iter().map(|item| self.event(item)).collect::<Result<_, _>>()?;
        match self.pay_for(&events, bytes) {
            Ok(()) => self.publishing.batch(events, corr, bytes),
            Err(refusal) => self.publishing.refused(refusal, corr, bytes),
        }
        Ok(())
    }

    /// Whether the token may publish so much now.
    fn pay_for(&self, events: &[Publish<'_>], bytes: usize) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        self.app.pay_for(account, events.iter().map(Publish::topic), events.len(), bytes)
    }

    fn event<'a>(&mut self, item: Item<'a>) -> Result<Publish<'a>, Refusal> {
        let topic = match &self.last_topic {
            Some(last) if last.as_str() == &*item.topic => last.clone(),
            _ => self.may_publish(&item.topic)?,
        };
        Ok(events::publish(topic, item.payload, item.opts))
    }

    fn may_publish(&mut self, topic: &str) -> Result<TopicName, Refusal> {
        let topic: TopicName = topic.parse().map_err(BusError::from)?;
        if !self.may(&Access::Publish(&topic)) {
            return Err(Refusal::forbidden_on("publish", &Subject::Topic(topic)));
        }
        self.last_topic = Some(topic.clone());
        Ok(topic)
    }

    fn subscribe(
        &mut self,
        corr: Corr<'_>,
        topic: &str,
        group: &str,
        batch: bool,
        opts: &SubscribeOpts<'_>,
    ) -> Result<(), Refusal> {
        let subject: Subject = topic.parse()?;
        let group_name: GroupName = group.parse().map_err(BusError::from)?;
        if !self.may(&Access::Subscribe(&subject, Some(&group_name))) {
            return Err(Refusal::forbidden_on("subscribe", &subject));
        }
        if self.subscriptions.number(topic, group).is_some() {
            let message = format!("`{topic}` in group `{group}` is subscribed to already; unsubscribe first");
            return Err(Refusal::new(StatusCode::CONFLICT, "already_subscribed", message));
        }
        let max = self.app.options.subscriptions_max;
        if self.subscriptions.len() >= max {
            let message =
                format!("this connection has {max} subscriptions; use patterns or another connection");
            return Err(Refusal::new(StatusCode::CONFLICT, "too_many_subscriptions", message));
        }
        let request =
            asking::subscribe(subject, group_name, opts, &self.app.options, &self.subscriptions.backlog)?;
        request.validate()?;
        let max_in_flight = request.member.max_in_flight;
        let places = self.account().map(|account| account.subscription(max_in_flight)).transpose();
        let places = places.inspect_err(|_| self.app.metrics.over_quota("subscriptions"))?;
        if request.member.member_id.is_some() {
            self.timing.is_member();
        }
        let (manual_ack, ack_timeout_ms) = (request.member.manual_ack, request.member.ack_timeout_ms);
        let pulls = request.member.pull;
        let (bus, corr) = (self.app.bus.clone(), corr.map(RawValue::to_owned));
        let (topic, group) = (topic.to_owned(), group.to_owned());
        self.first = Some(Box::pin(async move {
            let subscribed = bus.subscribe(request).await.map(|subscription| {
                let mut subscribed = Subscribed::new(&topic, &group, subscription);
                (subscribed.batch, subscribed.manual_ack) = (batch, manual_ack);
                (subscribed.ack_timeout_ms, subscribed.pulls) = (ack_timeout_ms, pulls);
                (subscribed.max_in_flight, subscribed.places) = (max_in_flight, places);
                Box::new(subscribed)
            });
            Answer::Subscribed(corr, subscribed.map_err(Refusal::from))
        }));
        Ok(())
    }

    /// Whoever asked may have become another meanwhile, or may no longer do so.
    fn subscribed(&mut self, mut subscribed: Subscribed) -> Result<(), Refusal> {
        let subscription = &subscribed.subscription;
        if !self.may(&Access::Subscribe(subscription.subject(), Some(subscription.group()))) {
            subscription.unsubscribe();
            return Err(Refusal::forbidden_on("subscribe", subscription.subject()));
        }
        let counted_on = subscribed.places.as_ref().map(|places| Arc::as_ptr(places.account()));
        if counted_on != self.account().map(Arc::as_ptr) {
            let places = |account: &Arc<Account>| account.old_subscription(subscribed.max_in_flight);
            subscribed.places = self.account().map(places);
        }
        self.subscriptions.add(subscribed);
        Ok(())
    }

    pub(super) fn find(&mut self, target: &Target<'_>) -> Result<(u64, &mut Subscribed), Refusal> {
        let number = self.subscriptions.number(&target.topic, &target.group);
        let found = number.and_then(|number| Some((number, self.subscriptions.get_mut(number)?)));
        found.ok_or_else(|| not_subscribed(target))
    }

    fn pause(&mut self, corr: Corr<'_>, target: &Target<'_>, paused: bool) -> Result<(), Refusal> {
        let subscription = Arc::clone(&self.find(target)?.1.subscription);
        let corr = corr.map(RawValue::to_owned);
        self.first = Some(Box::pin(async move {
            let result = if paused { subscription.pause().await } else { subscription.resume().await };
            Answer::Done(corr, result.map_err(Refusal::from))
        }));
        Ok(())
    }

    /// Moves a group. The client need not be subscribed with it.
    fn seek(&mut self, corr: Corr<'_>, target: &Target<'_>, opts: &SeekOpts<'_>) -> Result<(), Refusal> {
        let subject: Subject = target.topic.parse()?;
        if !self.may(&Access::Manage(&subject)) {
            return Err(Refusal::forbidden_on("manage", &subject));
        }
        let Subject::Topic(topic) = subject else {
            return Err(Refusal::bad_request(
                "a group is moved on one topic at a time; name a topic, not a pattern",
            ));
        };
        let group: GroupName = target.group.parse().map_err(BusError::from)?;
        let Some(from) = &opts.from else {
            return Err(Refusal::bad_request("`opts.from` is missing; say where to move the group"));
        };
        let to = asking::start(from, opts.ts, opts.after_id, opts.offset)?;
        let (bus, corr, dry_run) = (self.app.bus.clone(), corr.map(RawValue::to_owned), opts.dry_run);
        let (app, from) = (self.app.clone(), self.peer);
        let who = self.standing.as_ref().map(|standing| Arc::clone(&standing.identity.name));
        self.first = Some(Box::pin(async move {
            let report = bus.seek(&topic, &group, to, dry_run).await;
            let outcome = report.as_ref().err().map_or("ok", BusError::code);
            app.record(|| Record {
                who,
                on: Some(format!("{topic} {group}")),
                ..Record::new(from, "SEEK", outcome)
            });
            Answer::Sought(corr, report.map_err(Refusal::from))
        }));
        Ok(())
    }
}

/// The number of an op among those that are counted.
const fn number(frame: Option<&ClientFrame<'_>>) -> usize {
    match frame {
        Some(ClientFrame::Auth { .. }) => 0,
        Some(ClientFrame::Publish(_) | ClientFrame::PublishMany(_)) => 1,
        Some(ClientFrame::Subscribe { .. }) => 2,
        Some(ClientFrame::Unsubscribe(_)) => 3,
        Some(ClientFrame::Ack(..)) => 4,
        Some(ClientFrame::Nack { .. }) => 5,
        Some(ClientFrame::Modack { .. }) => 6,
        Some(ClientFrame::Pause(_)) => 7,
        Some(ClientFrame::Resume(_)) => 8,
        Some(ClientFrame::Fetch { .. }) => 9,
        Some(ClientFrame::Seek(..)) => 10,
        None => 11,
    }
}

pub(super) fn not_subscribed(target: &Target<'_>) -> Refusal {
    let Target { topic, group, .. } = target;
    let message = format!("`{topic}` in group `{group}` is not subscribed to; SUBSCRIBE first");
    Refusal::new(StatusCode::CONFLICT, "not_subscribed", message)
}
