//! When a client must be heard, asked or closed. Times are of the monotonic clock.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::options::GatewayOptions;

/// How often members of partitioned groups are pinged: their partitions wait for them.
const MEMBER_PING_MS: u64 = 5_000;

/// What it is time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask the client whether it lives.
    Ping,
    /// It was asked and did not answer.
    Silent,
    /// It did not say who it is.
    Unknown,
    /// It does not read what is written.
    Slow,
    /// It is no longer known.
    Expired,
    /// Look whether tokens have changed.
    Look,
}

/// The deadlines of a connection.
#[derive(Debug)]
pub(super) struct Deadlines {
    ping_every_ms: u64,
    write_timeout_ms: u64,
    heard_at_ms: u64,
    pinged_at_ms: u64,
    /// Until when it must say who it is.
    unknown_until_ms: Option<u64>,
    /// Since when something waits to be written.
    stuck_since_ms: Option<u64>,
    /// Until when it is known.
    known_until_ms: Option<u64>,
    /// How often to look whether tokens have changed, where nothing else wakes the connection.
    look_every_ms: Option<u64>,
    looked_at_ms: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadlines {
    pub(super) fn new(options: &GatewayOptions, now_ms: u64, is_known: bool, is_open: bool) -> Self {
        Self {
            ping_every_ms: options.ping_every_ms,
            write_timeout_ms: options.write_timeout_ms,
            heard_at_ms: now_ms,
            pinged_at_ms: now_ms,
            unknown_until_ms: (!is_known).then_some(now_ms + options.auth_timeout_ms),
            stuck_since_ms: None,
            known_until_ms: None,
            look_every_ms: (!is_open).then_some(options.auth_check_every_ms.max(10).saturating_mul(2)),
            looked_at_ms: now_ms,
            sleep: None,
        }
    }

    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_at_ms = now_ms;
    }

    /// It said who it is; that holds for so long.
    pub(super) fn known(&mut self, now_ms: u64, for_ms: Option<u64>) {
        self.unknown_until_ms = None;
        self.known_until_ms = for_ms.map(|for_ms| now_ms.saturating_add(for_ms));
    }

    /// It is a member of a partitioned group.
    pub(super) fn is_member(&mut self) {
        self.ping_every_ms = self.ping_every_ms.min(MEMBER_PING_MS);
    }

    /// Whether something waits to be written.
    pub(super) fn stuck(&mut self, now_ms: u64, stuck: bool) {
        self.stuck_since_ms = stuck.then(|| self.stuck_since_ms.unwrap_or(now_ms));
    }

    /// The connection is being closed; only that it takes too long matters now.
    pub(super) fn over(&mut self) {
        self.unknown_until_ms = None;
        self.known_until_ms = None;
        self.stuck_since_ms = None;
        self.look_every_ms = None;
        self.heard_at_ms = u64::MAX / 2;
    }

    /// What it is time for, if anything; wakes when there will be something.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now_ms: u64) -> Poll<Due> {
        let (due, at_ms) = self.next();
        if at_ms <= now_ms {
            match due {
                Due::Ping => self.pinged_at_ms = now_ms,
                Due::Look => self.looked_at_ms = now_ms,
                _ => {}
            }
            return Poll::Ready(due);
        }
        let at = Instant::now() + Duration::from_millis(at_ms - now_ms);
        match &mut self.sleep {
            // Ringing too early is harmless, and setting it anew for every message is not free.
            Some(sleep) if sleep.deadline() <= at && !sleep.is_elapsed() => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        let rang = self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if rang {
            // Too early for what is due now: look again.
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
        let unknown = self.unknown_until_ms.map(|at| (Due::Unknown, at));
        let slow = self.stuck_since_ms.map(|at| (Due::Slow, at + self.write_timeout_ms));
        let expired = self.known_until_ms.map(|at| (Due::Expired, at));
        let look = self.look_every_ms.map(|every| (Due::Look, self.looked_at_ms.saturating_add(every)));
        [unknown, slow, expired, look].into_iter().flatten().fold(alive, |a, b| if b.1 < a.1 { b } else { a })
    }
}
