//! Actions of a run besides those of members, and the end of a run.

use promethean_bus::publish::Publish;
use promethean_bus::rows::EventKey;
use promethean_bus::{BusError, SubscriptionItem};
use promethean_model::{Clock as _, EventId, Offset, TopicName};
use promethean_store::port::{PageLimit, StoredEvent, Table};
use promethean_testkit::ledger::{Invocation, payload_hash};
use promethean_testkit::{ObservedEvent, ObservedTopic, ObservedTopics};

use super::Run;
use super::members::{GROUPS, asked, rules};
use super::users::{COMPACTED, RETAINED};
use crate::suite::bus::harness::soon;

pub(super) const TOPICS: u64 = 5;

impl Run {
    pub(super) async fn publish(&mut self) {
        self.doing = "publish";
        let count = self.rng.range(1..6);
        // A batch is published whole or not at all.
        let batch = self.rng.chance(25).then_some(self.published);
        let mut events = Vec::new();
        let mut ops = Vec::new();
        let mut retained = Vec::new();
        for _ in 0..count {
            self.published += 1;
            let name = format!("r.{}", self.rng.range(0..TOPICS));
            let id = EventId::derive(b"run", &self.published.to_be_bytes());
            let key =
                (name == COMPACTED || self.rng.chance(70)).then(|| format!("k{}", self.rng.range(0..3)));
            // Retention and compaction work on whole files.
            let payload = match name == RETAINED || name == COMPACTED {
                true => format!("{{\"n\":{},\"filler\":\"{}\"}}", self.published, "x".repeat(1_500)),
                false => self.published.to_string(),
            };
            retained.push(name == RETAINED);
            ops.push(self.ledger.record_invoked(Invocation {
                producer: format!("p{}", self.published),
                topic: name.clone(),
                id: id.to_string(),
                key: key.clone(),
                payload: payload_hash(payload.as_bytes()),
                batch: batch.map(|first| format!("b{first}")),
            }));
            let event = Publish::new(name.parse().unwrap(), payload).id(id);
            events.push(match key {
                Some(key) => event.key(key),
                None => event,
            });
        }
        let results = if batch.is_some() {
            match self.bus.publish_batch(events).await {
                Ok(published) => {
                    self.covered.count("batches published", 1);
                    published.into_iter().map(Ok).collect()
                }
                Err(error) => vec![Err(error); ops.len()],
            }
        } else if self.rng.chance(50) {
            // Two publishers publish at once.
            let theirs = events.split_off(events.len() / 2);
            let (ours, theirs) = tokio::join!(self.bus.publish_each(events), self.bus.publish_each(theirs));
            ours.into_iter().chain(theirs).collect()
        } else {
            self.bus.publish_each(events).await
        };
        assert_eq!(results.len(), ops.len());
        for ((op, result), retained) in ops.into_iter().zip(results).zip(retained) {
            match result {
                Ok(published) => {
                    self.ledger.record_ok(op, published.offset.get());
                    if retained {
                        self.born.insert(published.offset.get(), self.ground.clock.monotonic_ms());
                    }
                }
                Err(error) => {
                    if error.has_no_side_effects() {
                        self.ledger.record_fail(op);
                    } else {
                        self.ledger.record_unknown(op);
                    }
                    self.trouble(&error);
                }
            }
        }
    }

    pub(super) fn pass_time(&mut self) {
        self.doing = "pass_time";
        // The process may be stopped for a minute, and the wall clock may jump.
        let ms = [50, 400, 1_500, 5_000, 400, 1_500, 60_000][self.rng.range(0..7) as usize];
        self.ground.clock.advance(ms);
        if self.rng.chance(10) {
            self.ground.clock.advance_wall(self.rng.range(0..7_200_000) as i64 - 3_600_000);
            self.jumped = true;
            self.covered.count("jumps of the clock", 1);
            self.covered.count("jumps with retention by age in force", u64::from(self.ages));
        }
        self.bus.wake();
        self.left_behind.iter().for_each(promethean_bus::Bus::wake);
    }

    /// Closes the bus, and often the store.
    pub(super) async fn restart(&mut self) {
        self.doing = "restart";
        self.bus.close().await;
        assert_eq!(self.bus.tasks(), 0);
        self.covered.count("buses closed", 1);
        self.forget_members();
        if self.rng.chance(50) {
            self.left_behind.clear();
            let seed = self.rng.next_u64();
            self.ground.reopen(seed).await;
            self.reopened |= self.jumped;
        }
        self.bus = self.ground.bus().await;
    }

    /// Opens another bus while this bus still has members, as happens to a process that was taken for dead.
    pub(super) async fn leave_behind(&mut self) {
        self.doing = "leave_behind";
        if self.ground.has_disk() {
            return;
        }
        // No write is on its way when the other bus opens: an owner that was asked twice has written everything.
        for _ in 0..2 {
            self.bus.groups(None).await.unwrap();
        }
        let before = std::mem::replace(&mut self.bus, self.ground.bus().await);
        self.left_behind.push(before);
        self.covered.count("buses left behind", 1);
        self.members.iter_mut().for_each(|member| member.left_behind = true);
        self.judge.all_gone();
    }

    pub(super) fn arm(&mut self) {
        self.doing = "arm";
        let (operations, seed) = (self.rng.range(0..40), self.rng.next_u64());
        self.ground.arm(operations, seed);
    }

    pub(super) async fn crash(&mut self) {
        self.doing = "crash";
        self.bus.close().await;
        self.forget_members();
        let seed = self.rng.next_u64();
        self.ground.crash(seed).await;
        self.reopened |= self.jumped;
        self.covered.count("power cuts", 1);
        self.bus = self.ground.bus().await;
        self.broken = false;
    }

    fn forget_members(&mut self) {
        self.members.clear();
        self.judge.all_gone();
    }

    /// Ends the run without further failures: every event is delivered and acked.
    pub(super) async fn drain(&mut self) {
        self.ground.disarm();
        soon("restart", async {
            self.bus.close().await;
            self.forget_members();
            self.left_behind.clear();
            let seed = self.rng.next_u64();
            self.ground.reopen(seed).await;
            self.reopened |= self.jumped;
            self.bus = self.ground.bus().await;
        })
        .await;
        self.resume_all().await;
        for group in 0..GROUPS.len() {
            soon("drain", self.drain_group(group)).await;
        }
    }

    async fn drain_group(&mut self, group: usize) {
        let subscription = self.bus.subscribe(asked(group, 3, 0)).await.unwrap();
        while self.lag(group).await > 0 || self.is_redriving(group).await {
            let given = match subscription.try_take(2) {
                None => {
                    // Failed events wait for their next attempt.
                    self.ground.clock.advance(500);
                    self.bus.wake();
                    tokio::task::yield_now().await;
                    continue;
                }
                Some(given) => given.unwrap(),
            };
            let SubscriptionItem::Leases(leases) = given else { continue };
            for lease in &leases {
                let at =
                    (GROUPS[group].1.to_owned(), lease.event.topic.to_string(), lease.event.offset.get());
                self.look_at_removed().await;
                self.judge.given(&at, lease, rules(group), 0, (0, 0));
                self.judge.acking(&at);
            }
            subscription.written(&leases);
            for lease in leases {
                let at =
                    (GROUPS[group].1.to_owned(), lease.event.topic.to_string(), lease.event.offset.get());
                let stale = lease.ack().await.unwrap().stale > 0;
                self.judge.ack_answered(&at, Some(stale));
            }
        }
    }

    /// The events that the group has not finished, over all its topics.
    async fn lag(&self, group: usize) -> u64 {
        let (subject, by) = GROUPS[group];
        let subject: promethean_delivery::Subject = subject.parse().unwrap();
        let mut lag = 0;
        for topic in self.topics().await.into_iter().filter(|topic| subject.matches(topic)) {
            lag += match self.bus.group(&topic, &by.parse().unwrap()).await {
                Ok(seen) => seen.lag,
                // The group has not joined this topic yet.
                Err(BusError::UnknownGroup { .. }) => 1,
                Err(error) => panic!("{error}"),
            };
        }
        lag
    }

    /// Whether the group has letters whose event is not delivered again yet.
    async fn is_redriving(&mut self, group: usize) -> bool {
        let (subject, by) = GROUPS[group];
        let subject: promethean_delivery::Subject = subject.parse().unwrap();
        for topic in self.topics().await.into_iter().filter(|topic| subject.matches(topic)) {
            if self.letters(&topic, &by.parse().unwrap()).await.iter().any(|(_, redriving)| *redriving) {
                return true;
            }
        }
        false
    }

    async fn topics(&self) -> Vec<TopicName> {
        self.bus.topics().await.unwrap().into_iter().map(|info| info.name).collect()
    }

    async fn events(&self, topic: &TopicName) -> Vec<StoredEvent> {
        self.events_from(topic, Offset::ZERO).await
    }

    pub(super) async fn events_from(&self, topic: &TopicName, mut from: Offset) -> Vec<StoredEvent> {
        let end = self.ground.store.durable_end(topic);
        let mut found = Vec::new();
        // A page may end before its limit, where a file of the topic does.
        while from < end {
            let page = self.ground.store.read(topic, from, PageLimit::default()).await.unwrap();
            assert!(page.next > from, "{topic} cannot be read from {from}, but ends at {end}");
            found.extend(page.events);
            from = page.next;
        }
        found
    }

    pub(super) async fn verdict(&mut self) {
        // All finished events are written.
        self.bus.close().await;
        self.bus = self.ground.bus().await;
        let mut observed = ObservedTopics::default();
        for name in self.topics().await {
            if name.is_system() || !name.as_str().starts_with("r.") {
                continue;
            }
            let events = self.events(&name).await;
            let letters = self.events(&name.dlq().unwrap()).await;
            for (subject, group) in GROUPS {
                let subject: promethean_delivery::Subject = subject.parse().unwrap();
                if subject.matches(&name) {
                    let prefix = promethean_bus::rows::topic_prefix(&group.parse().unwrap(), &name);
                    let open = self.letters(&name, &group.parse().unwrap()).await;
                    self.judge.close(group, &events, &letters, &open);
                    let noted = self.ground.store.rows(Table::Attempts, &prefix, None, 100).await.unwrap();
                    let noted =
                        noted.iter().map(|row| EventKey::decode(&row.key, "attempts").unwrap().offset);
                    let left =
                        noted.filter(|offset| events.iter().any(|event| event.offset == *offset)).count();
                    assert_eq!(left, 0, "{group} {name}: attempts of events that are finished");
                }
            }
            let events = events
                .iter()
                .map(|event| {
                    ObservedEvent::new(
                        event.offset.get(),
                        &event.id.to_string(),
                        event.key(),
                        event.payload(),
                    )
                })
                .collect();
            let earliest = self.bus.topic(&name).await.unwrap().earliest.get();
            observed.insert(
                name.to_string(),
                ObservedTopic { earliest, compacted: name.as_str() == COMPACTED, events },
            );
        }
        if let Err(violations) = self.ledger.check(&observed) {
            panic!("{violations:?}");
        }
    }
}
