//! Publishing with a window of unconfirmed frames, and at a given rate.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Result, bail};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::events::is_ok;
use super::socket::ClientSocket;
use crate::timing::{Epoch, now};

/// How many frames to publish, and how many may be unconfirmed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishWindow {
    pub(crate) frames: u64,
    pub(crate) outstanding: u64,
    /// No frame is sent after this.
    pub(crate) until: Instant,
}

/// Publishes frames with a window until all are confirmed or the time is over; returns how many were
/// confirmed.
pub(crate) async fn pump(
    socket: &mut ClientSocket,
    window: PublishWindow,
    mut put: impl FnMut(&mut Vec<u8>, u64),
) -> Result<u64> {
    let half = (window.outstanding / 2).max(1);
    let (mut sent, mut confirmed) = (0, 0);
    loop {
        let in_time = now() < window.until;
        while in_time && sent < window.frames && sent - confirmed < window.outstanding {
            put(&mut socket.output, sent);
            sent += 1;
            // Half of the window is sent early, so that the server works while the rest is made.
            if (sent - confirmed) % half == 0 {
                socket.flush().await?;
            }
        }
        socket.flush().await?;
        if confirmed == sent && (sent == window.frames || !in_time) {
            return Ok(confirmed);
        }
        socket.fill().await?;
        confirmed += confirmations(socket)?;
    }
}

/// Counts the replies that were read.
pub(crate) fn confirmations(socket: &mut ClientSocket) -> Result<u64> {
    let mut confirmed = 0;
    while let Some(text) = socket.input.next_text()? {
        if !is_ok(text)? {
            bail!("the server answered {}", String::from_utf8_lossy(text));
        }
        confirmed += 1;
    }
    Ok(confirmed)
}

/// Publishes after which replies are read. Reading costs time, and the replies wait in the socket.
const LOOK_AFTER: u64 = 64;

/// The rate and the number of events to publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishPace {
    pub(crate) per_s: u64,
    pub(crate) events: u64,
}

/// Publishes at a rate without waiting for confirmations; each event carries the time it was due. The thread
/// sleeps in between, so it must not have other work. Returns by how many microseconds the latest event was
/// late because of the client.
pub(crate) async fn paced(
    socket: &mut ClientSocket,
    pace: PublishPace,
    epoch: Epoch,
    mut put: impl FnMut(&mut Vec<u8>, u64, u64),
) -> Result<u64> {
    let nanos = 1_000_000_000 / pace.per_s.max(1);
    let pacer = Pacer::new(nanos)?;
    let start = epoch.stamp();
    let (mut sent, mut due, mut confirmed, mut late) = (0, 0, 0, 0);
    while sent < pace.events {
        due = (due + pacer.tick()?).min(pace.events);
        while sent < due {
            let intended = start + (sent + 1) * nanos / 1000;
            late = late.max(epoch.stamp().saturating_sub(intended));
            put(&mut socket.output, intended, sent);
            sent += 1;
        }
        socket.flush().await?;
        if sent - confirmed >= LOOK_AFTER {
            // The runtime slept with the thread: yield, so that it notices the replies.
            tokio::task::yield_now().await;
            while socket.try_fill()? {
                confirmed += confirmations(socket)?;
            }
        }
    }
    while confirmed < sent {
        socket.fill().await?;
        confirmed += confirmations(socket)?;
    }
    Ok(late)
}

/// A timer that is exact to some microseconds: the timers of the runtime are exact to a millisecond.
#[derive(Debug)]
struct Pacer {
    timer: OwnedFd,
}

impl Pacer {
    /// A timer that ticks every `nanos` nanoseconds.
    fn new(nanos: u64) -> Result<Pacer> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let every =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let every = Itimerspec { it_interval: every, it_value: every };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
        Ok(Pacer { timer })
    }

    /// Blocks the thread until a tick; returns the number of ticks since the last call.
    fn tick(&self) -> Result<u64> {
        let mut ticks = [0; 8];
        rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut ticks))?;
        Ok(u64::from_ne_bytes(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_in_time_and_are_counted() {
        let (pacer, start, mut ticks) = (Pacer::new(100_000).unwrap(), now(), 0);
        while ticks < 50 {
            ticks += pacer.tick().unwrap();
        }
        assert!(start.elapsed().as_micros() >= 5_000);
    }
}
