//! The task of one connection: its life and its socket loop.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::Upgraded;
use promethean_bus::groups::SeekReport;
use serde_json::value::RawValue;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::debug;
use tungstenite::protocol::frame::coding::CloseCode;

use super::ack::Acks;
use super::auth::ClientAuth;
use super::deadlines::{Deadlines, Due};
use super::fetch::Fetches;
use super::output::Output;
use super::publish::Publishes;
use super::socket::{End, Incoming, Socket};
use super::subscribe::Subscriptions;
use super::subscription::ClientSubscription;
use crate::app::App;
use crate::auth::{AuthError, AuthSession};
use crate::listen::connection_list::ListedConnection;
use crate::listen::slots::ConnectionSlot;
use crate::metrics::FrameCounts;
use crate::refusal::Refusal;
use crate::usage::accounts::QuotaPermit;

/// Bytes that wait to be written; above that nothing more is read or delivered.
const UNWRITTEN_MAX: usize = 256 << 10;
/// How long the events of a client that has gone may take to be committed.
const FINISH: Duration = Duration::from_secs(5);
/// Deliveries taken in one turn of the loop.
const TURN_MAX: usize = 256;
/// Messages read in one turn of the loop. Few, so that the first events of a burst are on their way to the
/// disk while the next are read.
const READ_TURN_MAX: usize = 128;
/// A frame of more bytes is counted at once as received and not answered.
const COUNTED_AT_ONCE: usize = 4 << 10;
/// Closes a connection whose client has shown no valid token, or no longer has one.
pub(super) const UNKNOWN: CloseCode = CloseCode::Library(4401);
/// Closes a connection above the limit of its token or its address.
pub(super) const TOO_MANY: CloseCode = CloseCode::Library(4429);

/// The `corr` of a frame that is answered later.
pub(super) type SavedCorr = Option<Box<RawValue>>;
/// An op that must end before the next frame is read.
pub(super) type PendingOp = Pin<Box<dyn Future<Output = PendingOutcome> + Send>>;

/// The outcome of a [`PendingOp`].
pub(super) enum PendingOutcome {
    Authenticated(Result<Box<AuthSession>, AuthError>),
    Subscribed(Result<Box<ClientSubscription>, Refusal>),
    Sought(Result<SeekReport, Refusal>),
    Done(Result<(), Refusal>),
}

/// A WebSocket with the state of each family of ops.
pub(super) struct Connection {
    pub(super) app: App,
    pub(super) socket: Socket,
    pub(super) auth: ClientAuth,
    pub(super) publishes: Publishes,
    pub(super) subscriptions: Subscriptions,
    pub(super) acks: Acks,
    pub(super) fetches: Fetches,
    /// The op that must end before the next frame is read.
    pub(super) pending: Option<(SavedCorr, PendingOp)>,
    pub(super) out: Output,
    pub(super) deadlines: Deadlines,
    /// Frames read since the metrics last took them.
    pub(super) frame_counts: FrameCounts,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The place of the connection; `None` without a listener, as in tests.
    pub(super) slot: Option<Arc<ConnectionSlot>>,
    /// The connection in the list that admins see; `None` without a listener, as in tests.
    pub(super) listed: Option<Arc<ListedConnection>>,
    /// Ends when the connection must make room for another one.
    evicted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// How to close the connection, after everything is written.
    pub(super) closing: Option<(CloseCode, &'static str)>,
    close_sent: bool,
    /// Whether the connection ends without a goodbye.
    abandoned: bool,
    /// Whether the connection ends because the server stops.
    stopped: bool,
}

/// Life of the connection.
impl Connection {
    /// `known_as` is the session of a client that showed its token with the request.
    pub(super) fn new(
        app: App,
        upgraded: Upgraded,
        (peer, slot, listed): (IpAddr, Option<Arc<ConnectionSlot>>, Option<Arc<ListedConnection>>),
        known_as: Option<(AuthSession, Option<QuotaPermit>)>,
    ) -> Self {
        let known = known_as.is_some();
        let (session, permit) = known_as.unzip();
        let options = &app.options;
        let bytes_max = if known { options.message_bytes_max } else { options.unknown_message_bytes_max };
        let mut connection = Self {
            socket: Socket::new(upgraded, bytes_max, app.receiving.begin()),
            auth: ClientAuth::new(app.clone(), peer, permit.flatten()),
            publishes: Publishes::new(app.bus.publisher(options.publish_rate)),
            subscriptions: Subscriptions::default(),
            acks: Acks::default(),
            fetches: Fetches::default(),
            pending: None,
            out: Output::default(),
            deadlines: Deadlines::new(options, app.clock.monotonic_ms(), known, app.auth.is_open()),
            frame_counts: FrameCounts::default(),
            stopping: Box::pin(app.stopping.clone().cancelled_owned()),
            evicted: slot.as_ref().map(|slot| Box::pin(slot.evicted())),
            slot,
            listed,
            closing: None,
            close_sent: false,
            abandoned: false,
            stopped: false,
            app,
        };
        connection.listed.iter().for_each(|listed| listed.upgraded());
        if let Some(session) = session {
            connection.set_session(session);
            if !connection.app.auth.is_open() {
                connection.auth.record("connect", "ok", None);
            }
        }
        connection
    }

    /// Serves until the client or the server ends the connection.
    pub(super) async fn run(mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        debug!(?end, "a WebSocket ended");
        match self.stopped {
            true => self.subscriptions.release(),
            false => self.subscriptions.lose(),
        }
        self.finish_publishing().await;
        if self.close_sent && !self.abandoned {
            self.socket.linger().await;
        }
    }

    /// Waits until the events that were read are committed: the client sent them before it went away.
    async fn finish_publishing(&mut self) {
        let done = poll_fn(|cx| {
            self.publishes.poll(cx, &mut self.out);
            if self.publishes.is_idle() { Poll::Ready(()) } else { Poll::Pending }
        });
        if tokio::time::timeout(FINISH, done).await.is_err() {
            debug!("events of a client that has gone were not committed in time");
        }
    }

    /// Closes the connection after everything under way is answered.
    pub(super) fn close(&mut self, code: CloseCode, why: &'static str) {
        self.closing.get_or_insert((code, why));
    }

    /// Closes the connection without waiting for anything under way.
    fn give_up(&mut self, code: CloseCode, why: &'static str) {
        self.closing = Some((code, why));
        self.pending = None;
        self.auth.cancel_recheck();
        self.deadlines.close();
    }

    /// Ends the connection at once: the client does not read.
    fn abandon(&mut self, why: &'static str) {
        self.give_up(CloseCode::Policy, why);
        self.abandoned = true;
    }

    /// Whether every frame of the client is answered, or will get no answer.
    fn has_answered(&self, code: CloseCode) -> bool {
        // A FETCH under way gets no answer: the events that came for it go back unseen.
        let quiet = self.publishes.is_idle() && self.acks.is_idle() && self.pending.is_none();
        quiet || matches!(code, CloseCode::Policy | CloseCode::Library(_))
    }
}

/// The socket loop.
impl Connection {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            // Before anything is read: no frame is handled after the end of its token.
            if self.deadlines.is_expired(&*self.app.clock) {
                self.give_up(UNKNOWN, "the token expired");
            }
            let was_full = !self.may_write_more();
            let mut did = self.poll_recheck(cx);
            did |= self.poll_pending(cx);
            if self.publishes.poll(cx, &mut self.out) {
                self.socket.set_unanswered(self.publishes.unanswered_bytes());
                did = true;
            }
            did |= self.acks.poll(cx, &mut self.out);
            did |= self.poll_fetches(cx);
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
            // While there was no room, sources were not polled, so none of them will wake this task.
            did |= was_full && self.may_write_more();
            if !did {
                self.listed.iter().for_each(|listed| listed.subscribed(self.subscriptions.count()));
                return Poll::Pending;
            }
        }
    }

    fn may_write_more(&self) -> bool {
        self.socket.unwritten() + self.out.bytes() < UNWRITTEN_MAX
    }

    /// Whether events may be delivered: not while the token is checked again, and not when the connection
    /// closes.
    fn may_deliver(&self) -> bool {
        self.closing.is_none() && !self.auth.is_rechecking()
    }

    /// Whether more events may be read. Events that are not answered wake this task when they are. So where
    /// there is no room the connection waits for its own events, and for nothing else.
    fn may_receive(&self) -> bool {
        self.publishes.has_room() && (self.publishes.unanswered_bytes() == 0 || self.socket.has_room())
    }

    fn poll_recheck(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(result) = self.auth.poll_recheck(cx, self.closing.is_none()) else { return false };
        match result {
            Ok(session) => {
                self.auth.count_open(&session, &mut self.subscriptions);
                self.set_session(session);
            }
            // The token stays valid until it can be checked.
            Err(AuthError::Unavailable) => {}
            Err(_) => self.give_up(UNKNOWN, "the token is no longer valid"),
        }
        true
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> bool {
        let Some((_, op)) = &mut self.pending else { return false };
        let Poll::Ready(outcome) = op.as_mut().poll(cx) else { return false };
        let corr = self.pending.take().and_then(|(corr, _)| corr);
        self.finish_pending(corr.as_deref(), outcome);
        true
    }

    fn poll_fetches(&mut self, cx: &mut Context<'_>) -> bool {
        self.may_deliver() && self.fetches.poll(cx, &mut self.subscriptions, &mut self.out)
    }

    fn poll_deliveries(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        for _ in 0..TURN_MAX {
            let may = self.may_write_more() && self.may_deliver();
            if !may || self.subscriptions.poll(cx, &mut self.out).is_pending() {
                break;
            }
            any = true;
        }
        any
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let (mut any, mut end) = (false, Ok(()));
        let mut is_deaf = false;
        for _ in 0..READ_TURN_MAX {
            let has_room = self.may_receive() && self.acks.has_room() && self.may_write_more();
            if !has_room || self.pending.is_some() || !self.may_deliver() {
                is_deaf = true;
                break;
            }
            let Poll::Ready(incoming) = self.socket.poll_read(cx) else { break };
            any = true;
            match incoming {
                Ok(Incoming::Text(text)) => {
                    self.request(&text);
                    // Small frames are counted together below.
                    if text.len() > COUNTED_AT_ONCE {
                        self.socket.set_unanswered(self.publishes.unanswered_bytes());
                    }
                }
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
        // Also at the end of the connection: the client sent these frames before it went away.
        self.publishes.hand_over();
        self.acks.flush(&mut self.subscriptions);
        if any {
            self.socket.set_unanswered(self.publishes.unanswered_bytes());
            self.app.metrics.count_frames(&mut self.frame_counts);
        }
        let now_ms = self.app.clock.monotonic_ms();
        // A client that the server does not read cannot answer a ping, nor send the rest of a message.
        if any || is_deaf {
            self.deadlines.heard(now_ms);
        }
        self.deadlines.receiving(now_ms, self.socket.unfinished().filter(|_| !is_deaf));
        end.map(|()| any)
    }

    fn poll_deadlines(&mut self, cx: &mut Context<'_>) {
        if self.closing.is_none() && self.stopping.as_mut().poll(cx).is_ready() {
            self.stopped = true;
            self.close(CloseCode::Away, "the server is stopping");
        }
        if self.evicted.as_mut().is_some_and(|evicted| evicted.as_mut().poll(cx).is_ready()) {
            return self.abandon("made room for another connection");
        }
        let now_ms = self.app.clock.monotonic_ms();
        self.deadlines.unwritten(now_ms, self.socket.unwritten() > 0);
        while let Poll::Ready(due) = self.deadlines.poll(cx, now_ms) {
            match due {
                Due::Ping => {
                    if self.socket.ping(cx).is_err() {
                        return;
                    }
                }
                Due::Silent => return self.abandon("no answer to a ping"),
                Due::Slow => return self.abandon("too slow to read"),
                Due::Unfinished => return self.give_up(CloseCode::Policy, "a message did not come in time"),
                Due::Unknown => return self.give_up(UNKNOWN, "no AUTH in time"),
                Due::Expired => return self.give_up(UNKNOWN, "the token expired"),
                // Every turn of the loop begins with that check.
                Due::CheckToken => cx.waker().wake_by_ref(),
            }
        }
    }

    /// Writes the queued frames, and a goodbye if the connection closes and everything is answered.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if !self.out.is_empty() {
            // No frame follows a goodbye.
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
            self.subscriptions.written();
        }
        Ok(())
    }
}
