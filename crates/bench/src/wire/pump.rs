//! Publishing with a window, as fast as confirmations come, and at a given rate.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Result, bail};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::events::is_ok;
use super::socket::ClientSocket;
use crate::timing::{Epoch, now};

/// How many publishes, and how they follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishWindow {
    pub(crate) frames: u64,
    pub(crate) outstanding: u64,
    /// Nothing is begun after this.
    pub(crate) until: Instant,
}

/// Keeps so many frames unconfirmed until all are confirmed or time is up; how many were.
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
            // So that the server has something to do while the rest is made.
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

/// How many replies have come.
pub(crate) fn confirmations(socket: &mut ClientSocket) -> Result<u64> {
    let mut confirmed = 0;
    while let Some(text) = socket.input.next_text()? {
        if !is_ok(text)? {
            bail!("the server said {}", String::from_utf8_lossy(text));
        }
        confirmed += 1;
    }
    Ok(confirmed)
}

/// Publishes at a rate after which replies are looked for: each look costs, and the replies wait in the socket.
const LOOK_AFTER: u64 = 64;

/// What is published at a rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishPace {
    pub(crate) per_s: u64,
    pub(crate) events: u64,
}

/// Publishes at a rate whether confirmations come or not, each event stamped with the moment it was due; in a thread of
/// its own, which sleeps in between. Says by how many microseconds the latest was late, which is the client's fault.
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
            // The thread slept, and the runtime with it: let it see which replies have come.
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
    /// Ticks every so many nanoseconds from now on.
    fn new(nanos: u64) -> Result<Pacer> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let every =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let every = Itimerspec { it_interval: every, it_value: every };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
        Ok(Pacer { timer })
    }

    /// Waits for a tick, and with it the whole thread; how many there were since the last.
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
