//! The random actions of a run.

use super::*;

impl Sim {
    pub(super) fn act(&mut self) {
        // Messages come in order, so a message about a redrive is seldom overtaken.
        if !self.reference.mail.is_empty() && self.rng.chance(40) {
            self.deliver_mail();
        }
        if self.options.restless && self.rng.chance(12) {
            return if self.rng.chance(70) { self.redrive() } else { self.seek() };
        }
        match self.rng.range(0..100) {
            0..12 => self.publish(),
            12..20 => self.announce(),
            20..34 => self.answer_read(),
            34..46 => self.answer_commit(),
            46..57 => self.written(),
            57..71 => self.ack(),
            71..77 => self.nack(),
            77..80 => self.extend(),
            80..86 => self.pass_time(),
            86..90 => self.join(),
            90..92 => self.leave(),
            92..94 => self.pause(),
            94..95 => self.assign(),
            95..97 => self.redrive(),
            97..98 => self.remove(),
            98 => self.seek(),
            _ if self.rng.chance(40) => self.restart(),
            _ if self.rng.chance(50) => self.miss_time(),
            _ => self.step(Input::Credit, Vec::new(), Vec::new()),
        }
    }

    fn publish(&mut self) {
        for _ in 0..self.rng.range(1..5) {
            let offset = self.reference.log.len() as u64;
            let key = [None, Some("a"), Some("b"), Some("c")][self.rng.range(0..4) as usize];
            let stored = event(offset, key);
            let in_scope = self
                .options
                .scope
                .as_ref()
                .is_none_or(|(n, p)| p.contains(&partition_of(key, &stored.id, *n)));
            let wanted = in_scope && (!self.options.filtered || wanted(&stored));
            let partition = self.options.partitions.map_or(0, |n| partition_of(key, &stored.id, n));
            let exists = !self.rng.chance(8);
            if exists && wanted && offset >= self.reference.sought_to {
                self.reference.undone.insert(offset);
            }
            self.reference.log.push(Event { stored, wanted, partition, exists });
        }
    }

    pub(super) fn announce(&mut self) {
        let end = self.reference.log.len() as u64;
        self.reference.end = self.reference.end.max(end);
        self.step(Input::End(Offset(end)), Vec::new(), Vec::new());
    }

    pub(super) fn answer_read(&mut self) {
        let Some((request, from, limit)) = self.read.take() else { return };
        if self.rng.chance(8) {
            let retry_at_ms = self.now.monotonic_ms + self.rng.range(0..50);
            self.retry_until = self.retry_until.max(retry_at_ms);
            return self.step(Input::ReadFailed { request, retry_at_ms }, Vec::new(), Vec::new());
        }
        self.page(request, from, limit);
    }

    pub(super) fn page(&mut self, request: u64, from: u64, limit: usize) {
        // A page may be cut short by its limit of bytes.
        let limit = if self.rng.chance(20) { self.rng.range(1..limit as u64 + 1) as usize } else { limit };
        let expired = self.reference.earliest.saturating_sub(from);
        let there: Vec<u64> = (from..self.reference.log.len() as u64)
            .filter(|o| self.reference.exists(*o))
            .take(limit)
            .collect();
        let next = if there.len() == limit { there[limit - 1] + 1 } else { self.reference.log.len() as u64 };
        let events = there.iter().map(|o| self.reference.log[*o as usize].stored.clone()).collect();
        // A read of known events tells nothing new, nor does one of an event that was finished before the restart: it is
        // redriven. The machine ignores an answer from before a seek.
        let finished = self.restored.iter().any(|range| range.contains(Offset(from)));
        if from >= self.machine.status().scanned.0 && !finished && !self.abandoned {
            self.reference.end = self.reference.end.max(next);
        }
        self.step(Input::Page { request, events, next: Offset(next), expired }, Vec::new(), Vec::new());
    }

    fn some_member(&mut self) -> Option<MemberNo> {
        let all: Vec<MemberNo> = self.reference.members.keys().copied().collect();
        self.rng.choose(&all).copied()
    }

    pub(super) fn written(&mut self) {
        let Some(member) = self.some_member() else { return };
        self.written_to(member);
    }

    pub(super) fn written_to(&mut self, no: MemberNo) {
        let member = self.reference.members.get_mut(&no).unwrap();
        let leases = std::mem::take(&mut member.unwritten);
        let (auto_ack, deadline) = (member.auto_ack, self.now.monotonic_ms + member.timeout);
        for lease in
            leases.iter().filter(|lease| self.reference.current(no, **lease)).copied().collect::<Vec<_>>()
        {
            if auto_ack {
                self.reference.finish(lease.offset.0);
            } else {
                self.reference.leases.get_mut(&lease.offset.0).unwrap().deadline.get_or_insert(deadline);
            }
        }
        self.step(Input::Written { member: no, leases }, Vec::new(), Vec::new());
    }

    /// Some leases of a member, most of them current, some stale.
    fn some_leases(&mut self) -> Option<(MemberNo, Vec<LeaseRef>)> {
        let member = self.some_member()?;
        let mut leases: Vec<LeaseRef> = (self.reference.leases.iter())
            .filter(|(_, lease)| lease.member == member)
            .map(|(offset, lease)| LeaseRef { offset: Offset(*offset), serial: lease.serial })
            .collect();
        self.rng.shuffle(&mut leases);
        leases.truncate(self.rng.range(0..6) as usize);
        if self.rng.chance(25) && !self.history.is_empty() {
            let (_, lease) = *self.rng.choose(&self.history).unwrap();
            leases.push(lease);
        }
        Some((member, leases))
    }

    fn some_reply(&mut self) -> Option<ReplyNo> {
        self.next_reply += 1;
        self.rng.chance(50).then_some(ReplyNo(self.next_reply))
    }

    /// Returns the reply if it must come at once; otherwise notes that it waits for the commit.
    fn wait(&mut self, reply: Option<ReplyNo>, acked: Vec<u64>, of: usize) -> Vec<(ReplyNo, usize)> {
        let Some(reply) = reply else { return Vec::new() };
        let stale = of - acked.len();
        if acked.is_empty() {
            return vec![(reply, stale)];
        }
        self.reference.pend_replies.push(Waiting { reply, stale, acked });
        Vec::new()
    }

    fn ack(&mut self) {
        let Some((member, leases)) = self.some_leases() else { return };
        self.ack_these(member, leases);
    }

    pub(super) fn ack_these(&mut self, member: MemberNo, leases: Vec<LeaseRef>) {
        let reply = self.some_reply();
        let mut acked = Vec::new();
        for lease in &leases {
            if self.reference.current(member, *lease) {
                self.reference.finish(lease.offset.0);
                acked.push(lease.offset.0);
            }
        }
        let answers = self.wait(reply, acked, leases.len());
        self.step(Input::Ack { member, leases, reply }, Vec::new(), answers);
    }

    fn nack(&mut self) {
        let Some((member, leases)) = self.some_leases() else { return };
        let (reply, delay_ms) = (self.some_reply(), self.rng.chance(50).then(|| self.rng.range(0..3_000)));
        // Not drawn, so that every seed gives the same run as before.
        let said =
            (!self.now.monotonic_ms.is_multiple_of(3)).then(|| format!("at {}", self.now.monotonic_ms));
        let note = said.as_ref().and_then(|said| FailureNote::new(said, None)).map(Arc::new);
        let mut nacked = Vec::new();
        for lease in &leases {
            if self.reference.current(member, *lease) {
                self.reference.fail(lease.offset.0, self.now.monotonic_ms, delay_ms);
                // The last attempt speaks for itself, also if it gives no reason.
                if said.is_some() || !self.reference.failed.contains_key(&lease.offset.0) {
                    self.reference.notes.insert(lease.offset.0, said.clone());
                }
                nacked.push(lease.offset.0);
            }
        }
        // A nacked event need not be finished when the reply comes.
        let answers = self.wait(reply, nacked, leases.len());
        if let Some(waiting) =
            self.reference.pend_replies.last_mut().filter(|waiting| Some(waiting.reply) == reply)
        {
            waiting.acked.clear();
        }
        self.step(Input::Nack { member, leases, delay_ms, note, reply }, Vec::new(), answers);
    }

    fn extend(&mut self) {
        let Some((member, leases)) = self.some_leases() else { return };
        let (reply, by_ms) = (self.some_reply(), self.rng.chance(60).then(|| self.rng.range(0..8_000)));
        let by = by_ms.unwrap_or(self.reference.members[&member].timeout).max(1_000);
        let mut stale = 0;
        for lease in &leases {
            if self.reference.current(member, *lease) {
                self.reference.leases.get_mut(&lease.offset.0).unwrap().deadline =
                    Some(self.now.monotonic_ms + by);
            } else {
                stale += 1;
            }
        }
        let answers = reply.map(|reply| (reply, stale)).into_iter().collect();
        self.step(Input::Extend { member, leases, by_ms, reply }, Vec::new(), answers);
    }

    fn pass_time(&mut self) {
        let ms = if self.rng.chance(15) { self.rng.range(0..40_000) } else { self.rng.range(0..400) };
        self.now.monotonic_ms += ms;
        self.now.wall_ms += ms as i64;
        if self.rng.chance(10) {
            self.now.wall_ms += self.rng.range(0..2_000_000) as i64 - 1_000_000;
        }
        self.step(Input::Tick, Vec::new(), Vec::new());
    }

    /// The process misses time: until the owner has read what arrived, no lease expires.
    fn miss_time(&mut self) {
        let ms = self.rng.range(0..60_000);
        self.now.monotonic_ms += ms;
        self.now.wall_ms += ms as i64;
        self.grace(true);
        for _ in 0..self.rng.range(0..12) {
            match self.rng.range(0..6) {
                0 => self.ack(),
                1 => self.nack(),
                2 => self.extend(),
                3 => self.written(),
                4 => self.answer_commit(),
                _ => self.pass_time(),
            }
        }
        self.grace(false);
    }

    fn grace(&mut self, in_grace: bool) {
        self.in_grace = in_grace;
        self.step(Input::Grace(in_grace), Vec::new(), Vec::new());
    }

    fn join(&mut self) {
        if self.reference.members.len() >= 4 {
            return;
        }
        let credit = Credit::new(self.rng.range(1..9) as usize);
        let every = |rng: &mut SeededRng| -> Arc<dyn DeliveryRate> {
            Arc::new(Every { ms: rng.range(1..60), next: 0.into() })
        };
        let rate = (self.options.rated && self.rng.chance(60)).then(|| every(&mut self.rng));
        let limits = MemberLimits {
            batch_size: self.rng.range(1..6) as usize,
            ack_timeout_ms: self.rng.range(1_000..20_000),
            auto_ack: self.rng.chance(15),
            paused: self.rng.chance(5),
        };
        self.join_as(limits, Allowance { credit, rate });
    }

    pub(super) fn join_as(&mut self, limits: MemberLimits, allowance: Allowance) -> MemberNo {
        let member = MemberNo(self.next_member);
        self.next_member += 1;
        let known = Member {
            allowance: allowance.clone(),
            paused: limits.paused,
            auto_ack: limits.auto_ack,
            timeout: limits.ack_timeout_ms,
            batch: limits.batch_size,
            unwritten: Vec::new(),
        };
        self.reference.members.insert(member, known);
        self.step(Input::Join { member, limits, allowance }, Vec::new(), Vec::new());
        self.assign();
        member
    }

    fn leave(&mut self) {
        let Some(member) = self.some_member() else { return };
        let how = if self.rng.chance(50) { Leaving::Lost } else { Leaving::Released };
        for (offset, lease) in self.reference.leases.clone() {
            if lease.member == member {
                self.reference.lose_lease(offset, how == Leaving::Lost, self.now.monotonic_ms);
            }
        }
        let left = self.reference.members.remove(&member).unwrap();
        self.step(Input::Leave { member, how }, Vec::new(), Vec::new());
        assert_eq!(left.allowance.credit.free(), left.allowance.credit.max(), "credit left behind");
    }

    fn pause(&mut self) {
        let paused = self.rng.chance(35);
        let member = self.some_member().filter(|_| self.rng.chance(60));
        match member {
            Some(member) => self.reference.members.get_mut(&member).unwrap().paused = paused,
            None => self.reference.paused = paused,
        }
        let input = if paused { Input::Pause(member) } else { Input::Resume(member) };
        self.step(input, Vec::new(), Vec::new());
    }

    pub(super) fn assign(&mut self) {
        let Some(count) = self.options.partitions else { return };
        let owners: Vec<Option<MemberNo>> =
            (0..count).map(|_| self.some_member().filter(|_| !self.rng.chance(8))).collect();
        // The coordinator may hear of lost members before the machine does.
        let without: Vec<MemberNo> =
            self.reference.members.keys().copied().filter(|no| !owners.contains(&Some(*no))).collect();
        let lost = without.into_iter().filter(|_| self.rng.chance(50)).collect();
        self.assign_to(owners, lost);
    }

    pub(super) fn assign_to(&mut self, owners: Vec<Option<MemberNo>>, lost: Vec<MemberNo>) {
        self.reference.owners.clone_from(&owners);
        let mut revoked = Vec::new();
        for (offset, lease) in self.reference.leases.clone() {
            let partition = self.reference.log[offset as usize].partition as usize;
            if owners.get(partition).copied().flatten() != Some(lease.member) {
                revoked.push((lease.member, LeaseRef { offset: Offset(offset), serial: lease.serial }));
                self.reference.lose_lease(offset, lost.contains(&lease.member), self.now.monotonic_ms);
            }
        }
        self.step(Input::Assign { owners, lost }, revoked, Vec::new());
    }

    /// Removes events as compaction or retention does.
    fn remove(&mut self) {
        let len = self.reference.log.len() as u64;
        if len == 0 {
            return;
        }
        let before: Vec<u64> = (0..len).filter(|o| self.reference.exists(*o)).collect();
        if self.rng.chance(50) {
            let offset = self.rng.range(0..len);
            self.reference.log[offset as usize].exists = false;
        } else {
            let floor = self.machine.status().floor.0.min(len);
            let up_to = (floor + self.rng.range(0..4)).min(len);
            self.reference.earliest = self.reference.earliest.max(up_to);
        }
        for offset in before.into_iter().filter(|o| !self.reference.exists(*o)).collect::<Vec<_>>() {
            if !self.reference.leases.contains_key(&offset) {
                self.gone_unnoticed |=
                    self.reference.undone.remove(&offset) | self.reference.extras.remove(&offset);
            }
        }
    }

    fn restart(&mut self) {
        self.reference.crash();
        self.read = None;
        self.letters = self.options.bounds.letters;
        self.restored.clone_from(&self.reference.store.finished);
        self.reference.paused = false;
        self.gone_unnoticed = true;
        let saved =
            self.reference.store.saved_progress(self.next_serial, |offset| self.reference.exists(offset));
        self.machine = Machine::new(self.options.config(self.seed), saved, self.now);
        self.announce();
    }
}
