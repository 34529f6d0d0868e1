//! The task of one connection.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::upgrade::Upgraded;
use promethean_bus::{BusError, Lease, Settled};
use promethean_model::TopicName;
use promethean_model::wire::{Reply, server};
use serde_json::value::RawValue;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::debug;
use tungstenite::protocol::frame::coding::CloseCode;

use super::deadlines::{Deadlines, Due};
use super::output::Output;
use super::publish::{Publishes, refuse};
use super::requests::Answer;
use super::socket::{End, Incoming, Socket};
use super::subscribe::{Came, Subscriptions};
use crate::app::App;
use crate::auth::{AuthRecheck, AuthSession};
use crate::http::metrics::OPS;
use crate::usage::accounts::QuotaPermit;

/// Bytes to be written beyond which nothing more is read or taken.
const UNWRITTEN_MAX: usize = 256 << 10;
/// Acks and the like under way at a time; beyond, nothing more is read.
const SETTLING_MAX: usize = 4_096;
/// How long the events of a client that has gone may take to be committed.
const FINISH: Duration = Duration::from_secs(5);
/// Deliveries taken before the others have their turn.
const TURN_MAX: usize = 256;
/// Messages read before the others have their turn. Few: the first events of a burst are on their way to the disk while
/// the next are read.
const READ_TURN_MAX: usize = 128;
/// Closes a connection whose client is not or no longer known.
pub(super) const UNKNOWN: CloseCode = CloseCode::Library(4401);
/// Closes a connection that is one too many, of its token or its address.
pub(super) const TOO_MANY: CloseCode = CloseCode::Library(4429);

pub(super) type SavedCorr = Option<Box<RawValue>>;
type Settling = Pin<Box<dyn Future<Output = (SavedCorr, usize, Result<Settled, BusError>)> + Send>>;

/// A connection and all it is about.
pub(super) struct Connection {
    pub(super) app: App,
    pub(super) socket: Socket,
    /// Where it comes from.
    pub(super) peer: IpAddr,
    /// Who the client is, once that is known.
    pub(super) session: Option<AuthSession>,
    /// Asks again who it is, because tokens have changed. Until that is known nothing is read or delivered.
    pub(super) asking_again: Option<AuthRecheck>,
    /// Not to be asked again before, because tokens cannot be looked at.
    pub(super) ask_after_ms: u64,
    /// Tokens that were refused.
    pub(super) failures: u32,
    /// Its place among the connections of its token, if those are limited.
    pub(super) place: Option<QuotaPermit>,
    pub(super) publishing: Publishes,
    /// The topic published to last, which the client may publish to.
    pub(super) last_topic: Option<TopicName>,
    pub(super) subscriptions: Subscriptions,
    /// Acks and the like that wait for a commit.
    pub(super) settling: FuturesUnordered<Settling>,
    /// Each `FETCH` under way, by the number of its subscription.
    pub(super) fetching: FuturesUnordered<Pin<Box<dyn Future<Output = u64> + Send>>>,
    /// Subscriptions with acks that nobody waits for.
    pub(super) acked: Vec<u64>,
    /// Something that must be done before the next frame is looked at.
    pub(super) first: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Output read since they were last counted, by op.
    pub(super) frames: [u64; OPS.len()],
    /// Leases whose frames are queued.
    queued: Vec<(u64, Vec<Lease>)>,
    pub(super) out: Output,
    pub(super) deadlines: Deadlines,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    /// How the connection is to be closed, once everything is written.
    pub(super) closing: Option<(CloseCode, &'static str)>,
    close_sent: bool,
    abandoned: bool,
    /// Whether it is the server that goes.
    stopped: bool,
}

impl Connection {
    pub(super) fn new(
        app: App,
        upgraded: Upgraded,
        peer: IpAddr,
        known_as: Option<(AuthSession, Option<QuotaPermit>)>,
    ) -> Self {
        let known = known_as.is_some();
        let options = &app.options;
        let bytes_max = if known { options.message_bytes_max } else { options.unknown_message_bytes_max };
        let mut connection = Self {
            socket: Socket::new(upgraded, bytes_max),
            peer,
            session: None,
            asking_again: None,
            ask_after_ms: 0,
            failures: 0,
            place: None,
            publishing: Publishes::new(app.bus.publisher(options.publish_rate)),
            last_topic: None,
            subscriptions: Subscriptions::default(),
            settling: FuturesUnordered::new(),
            fetching: FuturesUnordered::new(),
            acked: Vec::new(),
            first: None,
            frames: [0; OPS.len()],
            queued: Vec::new(),
            out: Output::default(),
            deadlines: Deadlines::new(options, app.clock.monotonic_ms(), known, app.auth.is_open()),
            stopping: Box::pin(app.stopping.clone().cancelled_owned()),
            closing: None,
            close_sent: false,
            abandoned: false,
            stopped: false,
            app,
        };
        if let Some((session, place)) = known_as {
            connection.place = place;
            connection.known(session);
            if !connection.app.auth.is_open() {
                connection.record("connect", "ok", None);
            }
        }
        connection
    }

    /// Serves until either side has had enough.
    pub(super) async fn run(mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        debug!(?end, "a WebSocket ended");
        // What reached a client that went away counts as an attempt; what the server takes back does not.
        match self.stopped {
            true => self.subscriptions.release(),
            false => self.subscriptions.lose(),
        }
        self.finish_publishing().await;
        if self.close_sent && !self.abandoned {
            self.socket.linger().await;
        }
    }

    /// Events that were read are published, though nobody hears of it: their client sent them before it went.
    async fn finish_publishing(&mut self) {
        let done = poll_fn(|cx| {
            self.publishing.poll(cx, &mut self.out);
            if self.publishing.is_idle() { Poll::Ready(()) } else { Poll::Pending }
        });
        if tokio::time::timeout(FINISH, done).await.is_err() {
            debug!("events of a client that has gone were not committed in time");
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let was_shut = !self.may_write_more();
            let mut did = self.poll_standing(cx);
            did |= self.poll_first(cx);
            did |= self.poll_publishing(cx);
            did |= self.poll_settling(cx);
            did |= self.poll_fetching(cx);
            did |= self.poll_deliveries(cx);
            match self.poll_read(cx) {
                Ok(read) => did |= read,
                Err(End::Gone) => return Poll::Ready(End::Gone),
                Err(End::Broken(code, why)) => self.close(code, why),
            }
            self.poll_deadlines(cx);
            if let Err(end) = self.write(cx) {
                return Poll::Ready(end);
            }
            if self.abandoned || self.close_sent && self.socket.unwritten() == 0 {
                return Poll::Ready(End::Gone);
            }
            // What was not looked at while there was no room has nobody to wake us.
            did |= was_shut && self.may_write_more();
            if !did {
                return Poll::Pending;
            }
        }
    }

    /// Closes the connection when everything under way is answered.
    pub(super) fn close(&mut self, code: CloseCode, why: &'static str) {
        self.closing.get_or_insert((code, why));
    }

    fn may_write_more(&self) -> bool {
        self.socket.unwritten() + self.out.bytes() < UNWRITTEN_MAX
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(first) = &mut self.first else { return false };
        let Poll::Ready(answer) = first.as_mut().poll(cx) else { return false };
        self.first = None;
        self.answer(answer);
        true
    }

    fn poll_publishing(&mut self, cx: &mut Context<'_>) -> bool {
        self.publishing.poll(cx, &mut self.out)
    }

    fn poll_settling(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some((corr, stale, settled))) = self.settling.poll_next_unpin(cx) {
            any = true;
            let reply = Reply { corr: corr.as_deref() };
            match settled {
                Ok(settled) => self.settled(&reply, settled.stale + stale),
                Err(error) => refuse(&mut self.out, &reply, &error.into()),
            }
        }
        any
    }

    fn poll_fetching(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        // Nobody is given anything once it is known that he may not have it.
        while self.asking_again.is_none()
            && self.closing.is_none()
            && let Poll::Ready(Some(number)) = self.fetching.poll_next_unpin(cx)
        {
            any = true;
            self.fetched(number);
        }
        any
    }

    fn poll_deliveries(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        for _ in 0..TURN_MAX {
            if !self.may_write_more() || self.closing.is_some() || self.asking_again.is_some() {
                break;
            }
            let Poll::Ready(came) = self.subscriptions.poll(cx) else { break };
            any = true;
            self.came(came);
        }
        any
    }

    /// Leases begin when what was queued is written.
    pub(super) fn queue(&mut self, number: u64, leases: Vec<Lease>) {
        self.queued.push((number, leases));
    }

    pub(super) fn came(&mut self, came: Came) {
        match came {
            Came::Nothing => {}
            Came::Leases(number, leases) => {
                let Some(sub) = self.subscriptions.get_mut(number) else { return };
                if let Some(fetch) = &mut sub.fetch {
                    return fetch.put(leases);
                }
                sub.deliver(&leases, &mut self.out);
                self.queue(number, leases);
            }
            Came::Rebalance(number, epoch, assigned, revoked) => {
                if let Some(sub) = self.subscriptions.get_mut(number) {
                    let write = |buffer: &mut Vec<u8>| {
                        server::rebalance(buffer, &sub.topic, &sub.group, epoch, &assigned, &revoked);
                    };
                    self.out.add(write);
                }
            }
            Came::Ended(mut sub, error) => {
                self.unfetched(&mut sub, error.code());
                let message =
                    format!("the subscription to `{}` in `{}` ended: {error}", sub.topic, sub.group);
                self.out.add(|buffer| Reply { corr: None }.err(buffer, error.code(), &message, None));
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let (mut any, mut end) = (false, Ok(()));
        let mut shut = false;
        for _ in 0..READ_TURN_MAX {
            let full = !self.publishing.has_room() || self.settling.len() >= SETTLING_MAX;
            let asks = self.first.is_some() || self.asking_again.is_some();
            if full || asks || !self.may_write_more() || self.closing.is_some() {
                shut = true;
                break;
            }
            let Poll::Ready(incoming) = self.socket.poll_read(cx) else { break };
            any = true;
            match incoming {
                Ok(Incoming::Text(text)) => self.request(&text),
                Ok(Incoming::Alive) => {}
                Ok(Incoming::Binary) => {
                    self.close(CloseCode::Unsupported, "send JSON text, not binary messages");
                }
                Err(ended) => {
                    end = Err(ended);
                    break;
                }
            }
        }
        // Also when the connection has ended: what came before that was asked for.
        self.publishing.hand_over();
        self.hand_over_acks();
        if any {
            self.app.metrics.frames(&mut self.frames);
        }
        // A client cannot be heard while it is not listened to.
        if any || shut {
            self.deadlines.heard(self.app.clock.monotonic_ms());
        }
        end.map(|()| any)
    }

    /// Nothing comes right after.
    pub(super) fn hand_over_acks(&mut self) {
        for number in self.acked.drain(..) {
            if let Some(sub) = self.subscriptions.get_mut(number) {
                sub.hand_over_acks();
            }
        }
    }

    fn poll_deadlines(&mut self, cx: &mut Context<'_>) {
        if self.closing.is_none() && self.stopping.as_mut().poll(cx).is_ready() {
            self.stopped = true;
            self.close(CloseCode::Away, "the server is stopping");
        }
        let now_ms = self.app.clock.monotonic_ms();
        self.deadlines.stuck(now_ms, self.socket.unwritten() > 0);
        while let Poll::Ready(due) = self.deadlines.poll(cx, now_ms) {
            match due {
                Due::Ping => {
                    if self.socket.ping(cx).is_err() {
                        return;
                    }
                }
                Due::Silent => return self.abandon("no answer to a ping"),
                Due::Slow => return self.abandon("too slow to read"),
                Due::Unknown => return self.give_up(UNKNOWN, "no AUTH in time"),
                Due::Expired => return self.give_up(UNKNOWN, "the token expired"),
                // Whatever wakes the connection makes it look.
                Due::Look => cx.waker().wake_by_ref(),
            }
        }
    }

    /// Ends the connection at once: nobody reads what is written.
    fn abandon(&mut self, why: &'static str) {
        self.give_up(CloseCode::Policy, why);
        self.abandoned = true;
    }

    /// Closes the connection whatever is under way.
    pub(super) fn give_up(&mut self, code: CloseCode, why: &'static str) {
        self.closing = Some((code, why));
        (self.first, self.asking_again) = (None, None);
        self.deadlines.over();
    }

    /// Writes what is queued, and says goodbye if it is time.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if !self.out.is_empty() {
            // Nothing follows a goodbye.
            for frame in self.out.take().filter(|_| !self.close_sent) {
                self.socket.write(cx, frame)?;
            }
        }
        if let Some((code, why)) = self.closing
            && !self.close_sent
            && self.has_answered(code)
        {
            self.close_sent = true;
            self.socket.close(cx, code, why)?;
        }
        if self.socket.poll_flush(cx)?.is_ready() {
            for (number, leases) in self.queued.drain(..) {
                if let Some(sub) = self.subscriptions.get_mut(number) {
                    sub.subscription.written(&leases);
                }
            }
        }
        Ok(())
    }

    /// Whether everything the client asked for has its answer, or will have none.
    fn has_answered(&self, code: CloseCode) -> bool {
        // A FETCH under way is given up: what came for it goes back without having been seen.
        let quiet = self.publishing.is_idle() && self.settling.is_empty() && self.first.is_none();
        quiet || matches!(code, CloseCode::Policy | CloseCode::Library(_))
    }
}
