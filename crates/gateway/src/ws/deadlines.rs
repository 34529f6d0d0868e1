//! When to ping a client, and when to close its connection. Times are of the monotonic clock.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use promethean_model::Clock;
use tokio::time::{Instant, Sleep};

use crate::options::GatewayOptions;

/// How often members of partitioned groups are pinged: while a member is gone unnoticed, its partitions stand
/// still.
const MEMBER_PING_MS: u64 = 5_000;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Ping the client.
    Ping,
    /// The client did not answer a ping.
    Silent,
    /// The client showed no token in time.
    Unknown,
    /// The client did not send the rest of a message.
    Unfinished,
    /// The client does not read.
    Slow,
    /// The token expired.
    Expired,
    /// Check whether tokens have changed.
    CheckToken,
}

/// The deadlines of a connection.
#[derive(Debug)]
pub(super) struct Deadlines {
    ping_every_ms: u64,
    write_timeout_ms: u64,
    message_timeout_ms: u64,
    heard_at_ms: u64,
    pinged_at_ms: u64,
    /// When the client must have shown its token.
    auth_until_ms: Option<u64>,
    /// Since when bytes wait to be written.
    unwritten_since_ms: Option<u64>,
    /// The message that is not whole yet, and since when.
    unfinished: Option<(u64, u64)>,
    /// When the token expires, by its own time, and by the monotonic clock.
    expires: Option<(i64, u64)>,
    /// How often to check whether tokens have changed, if nothing else wakes the connection.
    check_every_ms: Option<u64>,
    checked_at_ms: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadlines {
    pub(super) fn new(options: &GatewayOptions, now_ms: u64, is_known: bool, is_open: bool) -> Self {
        Self {
            ping_every_ms: options.ping_every_ms,
            write_timeout_ms: options.write_timeout_ms,
            message_timeout_ms: options.body_timeout_ms,
            heard_at_ms: now_ms,
            pinged_at_ms: now_ms,
            auth_until_ms: (!is_known).then_some(now_ms + options.auth_timeout_ms),
            unwritten_since_ms: None,
            unfinished: None,
            expires: None,
            check_every_ms: (!is_open).then_some(options.auth_check_every_ms.max(10).saturating_mul(2)),
            checked_at_ms: now_ms,
            sleep: None,
        }
    }

    /// Notes that the client sent something.
    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_at_ms = now_ms;
    }

    /// The client showed a token, which expires at this time (epoch ms) if at all.
    pub(super) fn known(&mut self, now_ms: u64, wall_ms: i64, expires_ms: Option<i64>) {
        self.auth_until_ms = None;
        self.expires = expires_ms.map(|expires_ms| {
            let for_ms = u64::try_from(expires_ms.saturating_sub(wall_ms)).unwrap_or(0);
            let at_ms = now_ms.saturating_add(for_ms);
            // A wall clock that was set back does not make the life of a token longer.
            let before = self.expires.filter(|(before_ms, _)| *before_ms == expires_ms);
            (expires_ms, before.map_or(at_ms, |(_, before_ms)| before_ms.min(at_ms)))
        });
    }

    /// Whether the token has expired by one of the clocks: the wall clock may have been set forward or back.
    pub(super) fn is_expired(&self, clock: &dyn Clock) -> bool {
        let is_over = |(wall_ms, at_ms)| clock.wall_ms() >= wall_ms || clock.monotonic_ms() >= at_ms;
        self.expires.is_some_and(is_over)
    }

    /// The client is a member of a partitioned group.
    pub(super) fn is_member(&mut self) {
        self.ping_every_ms = self.ping_every_ms.min(MEMBER_PING_MS);
    }

    /// Whether bytes wait to be written.
    pub(super) fn unwritten(&mut self, now_ms: u64, waits: bool) {
        self.unwritten_since_ms = waits.then(|| self.unwritten_since_ms.unwrap_or(now_ms));
    }

    /// The message of this number is not whole yet; `None` if there is none.
    pub(super) fn receiving(&mut self, now_ms: u64, number: Option<u64>) {
        if self.unfinished.map(|(number, _)| number) != number {
            self.unfinished = number.map(|number| (number, now_ms));
        }
    }

    /// The connection closes: from now on only a client that does not read is due.
    pub(super) fn close(&mut self) {
        self.auth_until_ms = None;
        self.expires = None;
        self.unwritten_since_ms = None;
        self.unfinished = None;
        self.check_every_ms = None;
        self.heard_at_ms = u64::MAX / 2;
    }

    /// What is due now; otherwise the task is woken when something is.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now_ms: u64) -> Poll<Due> {
        let (due, at_ms) = self.next();
        if at_ms <= now_ms {
            match due {
                Due::Ping => self.pinged_at_ms = now_ms,
                Due::CheckToken => self.checked_at_ms = now_ms,
                _ => {}
            }
            return Poll::Ready(due);
        }
        let at = Instant::now() + Duration::from_millis(at_ms - now_ms);
        match &mut self.sleep {
            // Waking too early is harmless, and resetting the timer for every message costs time.
            Some(sleep) if sleep.deadline() <= at && !sleep.is_elapsed() => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        let woke = self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if woke {
            // The timer was set for an earlier deadline: poll once more, to set it again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn next(&self) -> (Due, u64) {
        let answered = self.heard_at_ms >= self.pinged_at_ms;
        let alive = if answered {
            (Due::Ping, self.heard_at_ms.max(self.pinged_at_ms) + self.ping_every_ms)
        } else {
            (Due::Silent, self.pinged_at_ms + self.ping_every_ms)
        };
        let unknown = self.auth_until_ms.map(|at| (Due::Unknown, at));
        let slow = self.unwritten_since_ms.map(|at| (Due::Slow, at + self.write_timeout_ms));
        let unfinished = self
            .unfinished
            .map(|(_, since)| (Due::Unfinished, since.saturating_add(self.message_timeout_ms)));
        let expired = self.expires.map(|(_, at)| (Due::Expired, at));
        let check =
            self.check_every_ms.map(|every| (Due::CheckToken, self.checked_at_ms.saturating_add(every)));
        [unknown, slow, unfinished, expired, check]
            .into_iter()
            .flatten()
            .fold(alive, |a, b| if b.1 < a.1 { b } else { a })
    }
}
