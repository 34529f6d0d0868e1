//! Acks, nacks and extensions.

use std::borrow::Cow;
use std::pin::Pin;

use axum::http::StatusCode;
use promethean_bus::{BusError, Held, Settled, Subscription};
use promethean_model::EventId;
use promethean_model::wire::client::Target;
use promethean_model::wire::{Corr, Reply};
use serde::Serialize;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::requests::not_subscribed;
use super::subscribe::ClientSubscription;
use crate::refusal::Refusal;

/// The reply to an ack and the like.
#[derive(Serialize)]
struct Stale {
    stale: bool,
}

type Texts<'a> = Vec<Cow<'a, str>>;
/// The number of a subscription, and what is no longer held of it.
type Taken = (u64, Vec<Held>);
type Asked = Pin<Box<dyn Future<Output = Result<Settled, BusError>> + Send>>;

impl Connection {
    fn find_all(&mut self, target: &Target<'_>) -> Result<Vec<u64>, Refusal> {
        let found = self.subscriptions.find_all(&target.topic, &target.group);
        if found.is_empty() { Err(not_subscribed(target)) } else { Ok(found) }
    }

    /// What is held of the named events, by subscription, which is held no longer, and how many are not held.
    fn take(&mut self, target: &Target<'_>, ids: &Texts<'_>) -> Result<(Vec<Taken>, usize), Refusal> {
        let ids = parse(ids)?;
        let subs = self.find_all(target)?;
        let mut taken: Vec<Taken> = Vec::new();
        let mut stale = 0;
        for id in &ids {
            match self.subscriptions.take(&subs, &target.topic, id) {
                None => stale += 1,
                Some((number, held)) => match taken.iter_mut().find(|(other, _)| *other == number) {
                    Some((_, all)) => all.push(held),
                    None => taken.push((number, vec![held])),
                },
            }
        }
        Ok((taken, stale))
    }

    pub(super) fn ack(
        &mut self,
        corr: Corr<'_>,
        target: &Target<'_>,
        ids: &Texts<'_>,
    ) -> Result<(), Refusal> {
        let (taken, stale) = self.take(target, ids)?;
        if corr.is_some() {
            self.settle(corr, &taken, stale, |sub, held| Box::pin(sub.ack_held_durably(held)));
            return Ok(());
        }
        for (number, held) in taken {
            let Some(sub) = self.subscriptions.get_mut(number) else { continue };
            if sub.acked.is_empty() {
                self.acked.push(number);
            }
            sub.acked.extend(held);
        }
        Ok(())
    }

    pub(super) fn nack(
        &mut self,
        corr: Corr<'_>,
        target: &Target<'_>,
        ids: &Texts<'_>,
        delay_ms: Option<u64>,
    ) -> Result<(), Refusal> {
        let (taken, stale) = self.take(target, ids)?;
        self.settle(corr, &taken, stale, |sub, held| Box::pin(sub.nack_held(held, delay_ms)));
        Ok(())
    }

    pub(super) fn extend(
        &mut self,
        corr: Corr<'_>,
        target: &Target<'_>,
        ids: &Texts<'_>,
        extend_ms: Option<u64>,
    ) -> Result<(), Refusal> {
        let mut ids = parse(ids)?;
        ids.sort_unstable();
        ids.dedup();
        let subs = self.find_all(target)?;
        let mut asked: Vec<Asked> = Vec::new();
        let held: Option<Vec<(&ClientSubscription, &Held)>> =
            ids.iter().map(|id| self.subscriptions.holder(&subs, &target.topic, id)).collect();
        let Some(mut held) = held else {
            let message = "no such event is in flight here; it was settled, or its lease is over";
            return Err(Refusal::new(StatusCode::NOT_FOUND, "unknown_id", message));
        };
        held.sort_by_key(|(sub, _)| sub.number);
        for held in held.chunk_by(|a, b| a.0.number == b.0.number) {
            let all: Vec<&Held> = held.iter().map(|(_, held)| *held).collect();
            if let Some((sub, _)) = held.first() {
                asked.push(Box::pin(sub.subscription.extend_held(&all, extend_ms)));
            }
        }
        self.wait_for(corr, asked, 0);
        Ok(())
    }

    /// Asks each subscription about what was taken from it, and waits for the answers.
    fn settle(
        &mut self,
        corr: Corr<'_>,
        taken: &[Taken],
        stale: usize,
        ask: impl Fn(&Subscription, &[Held]) -> Asked,
    ) {
        let subscriptions = &mut self.subscriptions;
        let asked = taken.iter().filter_map(|(number, held)| {
            subscriptions.get_mut(*number).map(|sub| ask(&sub.subscription, held))
        });
        let asked = asked.collect();
        self.wait_for(corr, asked, stale);
    }

    /// Answers when everything that was asked is answered.
    fn wait_for(&mut self, corr: Corr<'_>, asked: Vec<Asked>, stale: usize) {
        if asked.is_empty() {
            return self.settled(&Reply { corr }, stale);
        }
        let corr = corr.map(RawValue::to_owned);
        self.settling.push(Box::pin(async move {
            let mut all = Ok(Settled { stale: 0 });
            // They were asked already, so none waits for another.
            for asked in asked {
                all = match (all, asked.await) {
                    (Ok(all), Ok(one)) => Ok(Settled { stale: all.stale + one.stale }),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            (corr, stale, all)
        }));
    }

    /// Answers an ack and the like, if the client wants to hear.
    pub(super) fn settled(&mut self, reply: &Reply<'_>, stale: usize) {
        match (reply.corr, stale) {
            (None, _) => {}
            (Some(_), 0) => self.out.add(|buffer| reply.ok(buffer)),
            (Some(_), _) => self.out.add(|buffer| reply.ok_with(buffer, &Stale { stale: true })),
        }
    }
}

/// Ids of one frame.
const IDS_MAX: usize = 10_000;

fn parse(ids: &Texts<'_>) -> Result<Vec<EventId>, Refusal> {
    if ids.len() > IDS_MAX {
        return Err(Refusal::bad_request(format!("`ids` has more than {IDS_MAX}; send several frames")));
    }
    let parse =
        |id: &Cow<'_, str>| id.parse().map_err(|error| Refusal::bad_request(format!("`id`: {error}")));
    ids.iter().map(parse).collect()
}
