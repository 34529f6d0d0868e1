//! ACK, NACK and MODACK.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use promethean_bus::{BusError, Held, Settled, Subscription};
use promethean_model::EventId;
use promethean_model::wire::Corr;
use promethean_model::wire::client::FrameTarget;
use serde::Serialize;
use serde_json::value::RawValue;

use super::connection::SavedCorr;
use super::output::Output;
use super::subscribe::Subscriptions;
use super::subscription::ClientSubscription;
use crate::refusal::Refusal;

/// Frames of this family that wait for a commit, at most; above that nothing more is read.
const SETTLING_MAX: usize = 4_096;
/// Ids of one frame, at most.
const IDS_MAX: usize = 10_000;
/// Stale ids that a reply names, at most.
const STALE_IDS_MAX: usize = 1_000;

/// The number of a subscription, and the deliveries that it no longer holds.
type Taken = (u64, Vec<Held>);
type Settling = Pin<Box<dyn Future<Output = Result<Settled, BusError>> + Send>>;
/// Also has the stale ids, which no subscription held.
type SettledFrame = (SavedCorr, Vec<EventId>, Result<Settled, BusError>);

/// Acks, nacks and lease extensions on their way to the owners of the groups.
#[derive(Default)]
pub(super) struct Acks {
    /// Frames whose reply waits for a commit.
    settling: FuturesUnordered<Pin<Box<dyn Future<Output = SettledFrame> + Send>>>,
    /// Subscriptions with acks that ask for no reply and are not flushed yet.
    unflushed: Vec<u64>,
}

/// The reason of a NACK, and the name of the member that gave it.
type NackWords<'a> = (&'a str, Option<&'a str>);

impl Acks {
    pub(super) fn has_room(&self) -> bool {
        self.settling.len() < SETTLING_MAX
    }

    pub(super) fn is_idle(&self) -> bool {
        self.settling.is_empty()
    }

    pub(super) fn ack(
        &mut self,
        subscriptions: &mut Subscriptions,
        out: &mut Output,
        corr: Corr<'_>,
        target: &FrameTarget<'_>,
        ids: &[Cow<'_, str>],
    ) -> Result<(), Refusal> {
        let (taken, stale) = take(subscriptions, target, ids)?;
        if corr.is_some() {
            let settling = settle(subscriptions, &taken, |sub, held| Box::pin(sub.ack_held_durably(held)));
            self.wait_for(out, corr, settling, stale);
            return Ok(());
        }
        for (number, held) in taken {
            let Some(sub) = subscriptions.get_mut(number) else { continue };
            if sub.acked.is_empty() {
                self.unflushed.push(number);
            }
            sub.acked.extend(held);
        }
        Ok(())
    }

    pub(super) fn nack(
        &mut self,
        subscriptions: &mut Subscriptions,
        out: &mut Output,
        corr: Corr<'_>,
        target: &FrameTarget<'_>,
        (ids, delay_ms, said): (&[Cow<'_, str>], Option<u64>, NackWords<'_>),
    ) -> Result<(), Refusal> {
        let (taken, stale) = take(subscriptions, target, ids)?;
        let settling =
            settle(subscriptions, &taken, |sub, held| Box::pin(sub.nack_held(held, delay_ms, said)));
        self.wait_for(out, corr, settling, stale);
        Ok(())
    }

    /// Extends the leases of the events that are held. Refused if none of them is.
    pub(super) fn modack(
        &mut self,
        subscriptions: &mut Subscriptions,
        out: &mut Output,
        corr: Corr<'_>,
        target: &FrameTarget<'_>,
        (ids, extend_ms): (&[Cow<'_, str>], Option<u64>),
    ) -> Result<(), Refusal> {
        let mut ids = parse(ids)?;
        ids.sort_unstable();
        ids.dedup();
        let among = subscriptions.find_all(target)?;
        let mut held: Vec<(&ClientSubscription, &Held)> = Vec::new();
        let mut stale = Vec::new();
        for id in ids {
            match subscriptions.holder(&among, &target.topic, &id) {
                Some(one) => held.push(one),
                None => stale.push(id),
            }
        }
        if held.is_empty() && !stale.is_empty() {
            let message = "no such event is in flight here; it was settled, or its lease is over";
            return Err(Refusal::new(StatusCode::NOT_FOUND, "unknown_id", message));
        }
        held.sort_by_key(|(sub, _)| sub.number);
        let mut settling: Vec<Settling> = Vec::new();
        for held in held.chunk_by(|a, b| a.0.number == b.0.number) {
            let all: Vec<&Held> = held.iter().map(|(_, held)| *held).collect();
            if let Some((sub, _)) = held.first() {
                settling.push(Box::pin(sub.subscription.extend_held(&all, extend_ms)));
            }
        }
        self.wait_for(out, corr, settling, stale);
        Ok(())
    }

    /// Replies to a frame when every owner has answered.
    fn wait_for(&mut self, out: &mut Output, corr: Corr<'_>, settling: Vec<Settling>, stale: Vec<EventId>) {
        if settling.is_empty() {
            return reply(out, corr, &stale, 0);
        }
        let corr = corr.map(RawValue::to_owned);
        self.settling.push(Box::pin(async move {
            let mut all = Ok(Settled { stale: 0 });
            // The messages to the owners are sent already, so no owner waits for another.
            for one in settling {
                all = match (all, one.await) {
                    (Ok(all), Ok(one)) => Ok(Settled { stale: all.stale + one.stale }),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            (corr, stale, all)
        }));
    }

    /// Writes the replies of settled frames; whether there were any.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut Output) -> bool {
        let mut any = false;
        while let Poll::Ready(Some((corr, stale, settled))) = self.settling.poll_next_unpin(cx) {
            any = true;
            match settled {
                Ok(settled) => reply(out, corr.as_deref(), &stale, settled.stale),
                Err(error) => out.refuse(corr.as_deref(), &error.into()),
            }
        }
        any
    }

    /// Flushes the acks collected in this read turn to their owners.
    pub(super) fn flush(&mut self, subscriptions: &mut Subscriptions) {
        for number in self.unflushed.drain(..) {
            if let Some(sub) = subscriptions.get_mut(number) {
                sub.flush_acks();
            }
        }
    }
}

/// Takes the named events from the subscriptions that hold them; also gives the events that none holds.
fn take(
    subscriptions: &mut Subscriptions,
    target: &FrameTarget<'_>,
    ids: &[Cow<'_, str>],
) -> Result<(Vec<Taken>, Vec<EventId>), Refusal> {
    let ids = parse(ids)?;
    let among = subscriptions.find_all(target)?;
    let mut taken: Vec<Taken> = Vec::new();
    let mut stale = Vec::new();
    for id in ids {
        match subscriptions.take(&among, &target.topic, &id) {
            None => stale.push(id),
            Some((number, held)) => match taken.iter_mut().find(|(other, _)| *other == number) {
                Some((_, all)) => all.push(held),
                None => taken.push((number, vec![held])),
            },
        }
    }
    Ok((taken, stale))
}

/// Sends the deliveries taken from each subscription to their owner.
fn settle(
    subscriptions: &mut Subscriptions,
    taken: &[Taken],
    send: impl Fn(&Subscription, &[Held]) -> Settling,
) -> Vec<Settling> {
    let sent = taken
        .iter()
        .filter_map(|(number, held)| subscriptions.get_mut(*number).map(|sub| send(&sub.subscription, held)));
    sent.collect()
}

/// Replies to a frame, if the client asked for a reply. `stale` are the events that no subscription held; `more` leases ended
/// while the frame was on its way.
fn reply(out: &mut Output, corr: Corr<'_>, stale: &[EventId], more: usize) {
    #[derive(Serialize)]
    struct Stale<'a> {
        stale: bool,
        #[serde(skip_serializing_if = "<[EventId]>::is_empty")]
        stale_ids: &'a [EventId],
    }
    match (corr, stale.len() + more) {
        (None, _) => {}
        (Some(_), 0) => out.ok(corr),
        (Some(_), _) => {
            let stale_ids = stale.get(..stale.len().min(STALE_IDS_MAX)).unwrap_or_default();
            out.ok_with(corr, &Stale { stale: true, stale_ids });
        }
    }
}

fn parse(ids: &[Cow<'_, str>]) -> Result<Vec<EventId>, Refusal> {
    if ids.len() > IDS_MAX {
        return Err(Refusal::bad_request(format!("`ids` has more than {IDS_MAX}; send several frames")));
    }
    let parse =
        |id: &Cow<'_, str>| id.parse().map_err(|error| Refusal::bad_request(format!("`id`: {error}")));
    ids.iter().map(parse).collect()
}
