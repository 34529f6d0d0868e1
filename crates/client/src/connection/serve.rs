//! An open connection at work: it reads many frames at a time, takes them under one lock, and writes together
//! what is to be sent.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use promethean_model::Clock;
use promethean_model::wire::Op;
use tokio::time::{Instant, Sleep};
use tungstenite::Utf8Bytes;

use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::frames::encode;
use crate::shared::ClientShared;
use crate::socket::{SocketEnd, SocketItem, WsSocket};
use crate::token::renew_after;

/// The most frames that are read before others get a turn.
const READ_FRAMES_MAX: usize = 256;
/// How long the server may take to answer a goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long the answer to a renewed token may take.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The waits between renewals that failed.
const RENEWAL_WAITS: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(30) };
/// Refused renewals after which the old token is used until it ends.
const RENEWALS_REFUSED_MAX: u32 = 2;
/// A timer without an end.
const FAR: Duration = Duration::from_secs(86_400);

/// Works until the connection ends, or the client is closed.
pub(super) async fn serve(shared: &Arc<ClientShared>, socket: WsSocket, token: Option<String>) -> SocketEnd {
    let now = Instant::now();
    let renewal = Renewal::plan(shared, token.as_deref());
    let mut open = LiveConnection {
        shared,
        socket,
        texts: Vec::new(),
        heard_at: now,
        pinged_at: None,
        ticked_at: now,
        renewal,
    };
    shared.set_open();
    let mut timer = pin!(tokio::time::sleep_until(now));
    let end = std::future::poll_fn(|cx| open.poll(cx, timer.as_mut())).await;
    match end {
        Some(end) => end,
        None => {
            open.say_goodbye().await;
            SocketEnd { code: 1000, reason: String::new() }
        }
    }
}

struct LiveConnection<'a> {
    shared: &'a Arc<ClientShared>,
    socket: WsSocket,
    /// Frames that were read and not taken yet; empty between turns.
    texts: Vec<Utf8Bytes>,
    heard_at: Instant,
    pinged_at: Option<Instant>,
    ticked_at: Instant,
    renewal: Renewal,
}

/// What a turn left.
struct Turn {
    /// Whether the client is closed.
    is_over: bool,
    /// When something must be done, at the latest.
    next_look: Option<Instant>,
}

impl LiveConnection<'_> {
    /// One turn after the other, until there is nothing to do. `None`: the client is closed.
    fn poll(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<Option<SocketEnd>> {
        self.shared.connection.register(cx.waker());
        let now = Instant::now();
        let (is_drained, ended) = self.read(cx, now);
        let turn = match (ended, self.take_and_write(cx, now)) {
            (None, Ok(turn)) => turn,
            (Some(end), _) | (None, Err(end)) => return Poll::Ready(Some(end)),
        };
        if turn.is_over {
            return Poll::Ready(None);
        }
        if let Err(end) = self.keep_alive(cx, now) {
            return Poll::Ready(Some(end));
        }
        self.renewal.poll(self.shared, cx);
        let was_full = !self.socket.has_room();
        if let Poll::Ready(Err(end)) = self.socket.poll_flush(cx) {
            return Poll::Ready(Some(end));
        }
        let has_room_again = was_full && self.socket.has_room();
        let look = [turn.next_look, self.renewal.at()].into_iter().flatten();
        timer.as_mut().reset(look.fold(now + self.ping_look(), Instant::min));
        if !is_drained || has_room_again || timer.as_mut().poll(cx).is_ready() {
            // There is more to do; others get a turn first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Reads what has come. Returns whether that was all, and the end of the connection.
    fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> (bool, Option<SocketEnd>) {
        for _ in 0..READ_FRAMES_MAX {
            match self.socket.poll_read(cx) {
                Poll::Ready(Ok(item)) => {
                    self.heard_at = now;
                    if let SocketItem::Text(text) = item {
                        self.texts.push(text);
                    }
                }
                Poll::Ready(Err(end)) => return (true, Some(end)),
                Poll::Pending => return (true, None),
            }
        }
        (false, None)
    }

    /// Takes the frames that were read, and writes what is to be sent.
    fn take_and_write(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<Turn, SocketEnd> {
        let Self { shared, socket, texts, .. } = self;
        shared.change(|core, effects| {
            for text in texts.drain(..) {
                core.receive(text, now, effects);
            }
            core.tick(now, effects);
            while socket.has_room() {
                let Some(text) = core.next_frame(now) else { break };
                socket.write(cx, text)?;
            }
            Ok(Turn { is_over: core.is_over(), next_look: core.next_look(now) })
        })
    }

    /// Asks a silent server whether it is there, and gives a connection up that answers nothing.
    fn keep_alive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), SocketEnd> {
        let options = &self.shared.options;
        // A process that did not run has not looked for answers either.
        let is_late = now - self.ticked_at > self.ping_look() * 2 + Duration::from_secs(1);
        self.ticked_at = now;
        if now - self.heard_at < options.ping_every {
            self.pinged_at = None;
            return Ok(());
        }
        match self.pinged_at.filter(|_| !is_late) {
            None => {
                self.pinged_at = Some(now);
                self.socket.ping(cx)
            }
            Some(pinged_at) if now - pinged_at >= options.ping_timeout => {
                let silent = (now - self.heard_at).as_millis();
                Err(SocketEnd {
                    code: crate::socket::NO_GOODBYE,
                    reason: format!("no answer for {silent} ms"),
                })
            }
            Some(_) => Ok(()),
        }
    }

    fn ping_look(&self) -> Duration {
        self.shared.options.ping_every.min(self.shared.options.ping_timeout) / 2
    }

    /// Closes the connection. A server that does not answer must not keep the process alive.
    async fn say_goodbye(&mut self) {
        let mut is_said = false;
        let goodbye = std::future::poll_fn(|cx| {
            if !is_said {
                is_said = true;
                if self.socket.close(cx).is_err() {
                    return Poll::Ready(());
                }
            }
            // The connection ends either way.
            let _ = self.socket.poll_flush(cx);
            loop {
                match self.socket.poll_read(cx) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        let _ = tokio::time::timeout(GOODBYE, goodbye).await;
    }
}

/// Renews a token before it expires, if it comes from a function. A renewal that fails is tried again after a wait
/// that grows.
struct Renewal {
    state: RenewalState,
    tries: u32,
    /// How many tokens the server has refused on this connection.
    refused: u32,
}

enum RenewalState {
    Never,
    At(Instant),
    Running(BoxFuture<'static, Result<Option<Duration>, ClientError>>),
}

impl Renewal {
    fn plan(shared: &ClientShared, token: Option<&str>) -> Self {
        let after = token.and_then(|token| renew_after(token, shared.clock.wall_ms()));
        let after = after.filter(|_| shared.options.token.is_renewable());
        Self { state: RenewalState::after(after), tries: 0, refused: 0 }
    }

    fn at(&self) -> Option<Instant> {
        match self.state {
            RenewalState::At(at) => Some(at),
            RenewalState::Never | RenewalState::Running(_) => None,
        }
    }

    fn poll(&mut self, shared: &Arc<ClientShared>, cx: &mut Context<'_>) {
        if self.at().is_some_and(|at| at <= Instant::now()) {
            self.state = RenewalState::Running(Box::pin(renew(Arc::clone(shared))));
        }
        let RenewalState::Running(work) = &mut self.state else { return };
        let Poll::Ready(done) = work.as_mut().poll(cx) else { return };
        match done {
            Ok(after) => {
                *self = Self { state: RenewalState::after(after), tries: 0, refused: 0 };
            }
            Err(error) => {
                self.state = RenewalState::after(self.wait_after(&error));
                shared.report(error);
            }
        }
    }

    /// How long to wait after a failure; `None` if the old token serves until it ends.
    fn wait_after(&mut self, error: &ClientError) -> Option<Duration> {
        self.tries += 1;
        self.refused += u32::from(error.is("bad_token") || error.is("unauthorized"));
        // The server closes a connection that shows it one bad token more.
        (self.refused < RENEWALS_REFUSED_MAX).then(|| RENEWAL_WAITS.after(self.tries))
    }
}

impl RenewalState {
    fn after(wait: Option<Duration>) -> Self {
        wait.map_or(Self::Never, |wait| Self::At(Instant::now() + wait.min(FAR)))
    }
}

/// Shows a new token on the open connection. Returns when to do so again.
pub(crate) async fn renew(shared: Arc<ClientShared>) -> Result<Option<Duration>, ClientError> {
    let token = shared.options.token.read().await?;
    let answer = shared.begin(Op::Auth, |_| Some(encode::auth(token.as_deref())))?;
    shared.answer_in_time(Op::Auth, answer, RENEWAL_TIMEOUT).await?;
    shared.http.token.keep(token.clone());
    Ok(token.and_then(|token| renew_after(&token, shared.clock.wall_ms())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_that_fail_wait_longer_and_stop_before_the_server_closes_the_connection() {
        let mut renewal = Renewal { state: RenewalState::Never, tries: 0, refused: 0 };
        let (away, bad) = (ClientError::new("auth_unavailable", "m"), ClientError::new("bad_token", "m"));
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(renewal.wait_after(&away).unwrap());
        }
        assert!(waits[0] >= Duration::from_secs(1) && waits[7] >= Duration::from_secs(15), "{waits:?}");
        assert!(renewal.wait_after(&bad).is_some());
        assert_eq!(renewal.wait_after(&bad), None);
    }
}
