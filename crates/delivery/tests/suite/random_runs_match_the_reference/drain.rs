//! The end of a run: a member that acks everything lets the machine finish all events.

use super::*;

impl Sim {
    pub(super) fn drain(&mut self) {
        self.reference.paused = false;
        self.step(Input::Resume(None), Vec::new(), Vec::new());
        let limits = MemberLimits { batch_size: 50, ack_timeout_ms: 1 << 40, auto_ack: false, paused: false };
        let willing = self.join_as(limits, Allowance::of(1_000));
        if let Some(count) = self.options.partitions {
            self.assign_to(vec![Some(willing); count as usize], Vec::new());
        }
        self.announce();
        for _ in 0..100_000 {
            let status = self.machine.status();
            let busy = self.read.is_some() || self.reference.sent.is_some();
            let settled = self.machine.is_settled() && self.reference.pend_replies.is_empty();
            self.deliver_mail();
            if status.lag == 0 && status.redriven == 0 && !busy && settled {
                break;
            }
            self.answer_read();
            self.answer_commit();
            for member in self.reference.members.keys().copied().collect::<Vec<_>>() {
                self.written_to(member);
                let leases: Vec<LeaseRef> = (self.reference.leases.iter())
                    .filter(|(_, lease)| lease.member == member)
                    .map(|(offset, lease)| LeaseRef { offset: Offset(*offset), serial: lease.serial })
                    .collect();
                self.ack_these(member, leases);
            }
            if let Some(at) = self.machine.next_deadline(self.now) {
                self.now.monotonic_ms = self.now.monotonic_ms.max(at);
            }
            self.step(Input::Tick, Vec::new(), Vec::new());
        }
        self.judge_the_end();
    }

    fn judge_the_end(&self) {
        let (reference, status) = (&self.reference, self.machine.status());
        let end = reference.log.len() as u64;
        assert_eq!(reference.undone, BTreeSet::new(), "lost: {status:?} {:?}", self.machine.reason(self.now));
        assert!(status.floor.0 >= end && status.in_flight == 0 && status.ranges == 0, "{status:?}");
        assert_eq!(self.machine.reason(self.now), Some(Reason::CaughtUp));
        assert_eq!(self.machine.next_deadline(self.now), None);
        for member in reference.members.values() {
            assert_eq!(member.allowance.credit.free(), member.allowance.credit.max());
        }
        assert!(
            reference.store.letters.values().all(|letter| !letter.redriving),
            "a redriven letter is open still"
        );
        let mut open = reference.store.letters.keys().filter(|offset| reference.exists(**offset));
        let acked = open.find(|offset| reference.acked.contains(offset));
        assert_eq!(acked, None, "an event is acked, and its letter is open");
        let owed: Vec<&u64> = reference.owed.keys().filter(|offset| reference.exists(**offset)).collect();
        assert!(owed.is_empty(), "redrives that were not served: {owed:?}");
        let behind = OffsetRange::new(Offset(reference.store.floor), Offset(end)).len();
        assert!(
            behind < self.options.bounds.page as u64
                && reference.done.iter().all(|o| reference.store.has(*o))
        );
        let left: Vec<&u64> = reference.store.attempts.keys().filter(|o| reference.exists(**o)).collect();
        assert!(left.is_empty(), "failed attempts of finished events: {left:?}");
    }
}
