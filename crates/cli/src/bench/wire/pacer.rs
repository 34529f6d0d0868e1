//! A clock for open loops, exact to some microseconds: the timers of the runtime are to a millisecond.

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

#[derive(Debug)]
pub(crate) struct Pacer {
    timer: OwnedFd,
}

impl Pacer {
    /// Ticks every so many nanoseconds from now on.
    pub(crate) fn new(nanos: u64) -> Result<Pacer> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let every =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let every = Itimerspec { it_interval: every, it_value: every };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
        Ok(Pacer { timer })
    }

    /// Waits for a tick, and with it the whole thread; how many there were since the last.
    pub(crate) fn tick(&self) -> Result<u64> {
        let mut ticks = [0; 8];
        rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut ticks))?;
        Ok(u64::from_ne_bytes(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::timing::now;

    #[test]
    fn ticks_come_in_time_and_are_counted() {
        let (pacer, start, mut ticks) = (Pacer::new(100_000).unwrap(), now(), 0);
        while ticks < 50 {
            ticks += pacer.tick().unwrap();
        }
        assert!(start.elapsed().as_micros() >= 5_000);
    }
}
