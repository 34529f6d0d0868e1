//! The members of a run and the leases that they hold.

use promethean_bus::subscription::Subscribe;
use promethean_bus::{BusError, Lease, Subscription, SubscriptionItem};
use promethean_delivery::Order;
use promethean_model::Clock as _;

use super::Run;
use super::judge::{Place, Rules};
use crate::suite::bus::harness::request;

const ACK_TIMEOUT_MS: u64 = 5_000;
const MEMBERS_MAX: usize = 7;

pub(super) struct Member {
    pub(super) no: u64,
    pub(super) group: usize,
    pub(super) subscription: Subscription,
    pub(super) held: Vec<Lease>,
    /// Whether another bus may have taken its group over, so that the member may no longer hold its leases.
    pub(super) left_behind: bool,
}

/// The groups of a run: subject and name.
pub(super) const GROUPS: [(&str, &str); 4] =
    [("r.*", "all"), ("r.*", "by-key"), ("r.0", "impatient"), ("r.1", "parts")];

pub(super) fn rules(group: usize) -> Rules {
    Rules {
        max_attempts: [5, 4, 2, 3][group],
        by_key: group == 1,
        // A rebalance ends leases without an action of the member.
        steady: group != 3,
    }
}

pub(super) fn asked(group: usize, max_in_flight: usize, name: u64) -> Subscribe {
    let (subject, by) = GROUPS[group];
    let mut request = request(subject, by);
    request.options.max_attempts = Some(rules(group).max_attempts);
    request.options.order = rules(group).by_key.then_some(Order::Key);
    request.member.ack_timeout_ms = ACK_TIMEOUT_MS;
    request.member.max_in_flight = max_in_flight;
    request.member.batch_size = 3;
    if group == 3 {
        request.options.partitions = Some(4);
        request.member.member_id = Some(format!("m{name}").parse().unwrap());
    }
    request
}

impl Member {
    pub(super) fn place(&self, lease: &Lease) -> Place {
        let topic = lease.event.topic.to_string();
        (GROUPS[self.group].1.to_owned(), topic, lease.event.offset.get())
    }
}

impl Run {
    pub(super) async fn join(&mut self) {
        self.doing = "join";
        if self.members.len() >= MEMBERS_MAX {
            return;
        }
        let group = self.rng.range(0..GROUPS.len() as u64) as usize;
        let max_in_flight = self.rng.range(1..8) as usize;
        self.next_member += 1;
        let no = self.next_member;
        match self.bus.subscribe(asked(group, max_in_flight, no)).await {
            Ok(subscription) => {
                self.members.push(Member { no, group, subscription, held: Vec::new(), left_behind: false });
            }
            Err(error) => self.trouble(&error),
        }
    }

    pub(super) fn leave(&mut self) {
        self.doing = "leave";
        let Some(index) = self.pick() else { return };
        let member = self.members.swap_remove(index);
        self.judge.gone(member.no);
        member.subscription.unsubscribe();
    }

    pub(super) async fn take(&mut self) {
        self.doing = "take";
        let Some(index) = self.pick() else { return };
        let leases_max = self.rng.range(1..6) as usize;
        self.look_at_removed().await;
        let member = &mut self.members[index];
        match member.subscription.try_take(leases_max) {
            None | Some(Ok(SubscriptionItem::Rebalance { .. } | SubscriptionItem::Over(_))) => {}
            Some(Ok(SubscriptionItem::Leases(leases))) => {
                let now_ms = self.ground.clock.monotonic_ms();
                for lease in &leases {
                    let at = member.place(lease);
                    if member.left_behind {
                        self.judge.given_behind(&at, lease.attempt, rules(member.group));
                        continue;
                    }
                    let live_for = (member.no, ACK_TIMEOUT_MS);
                    self.judge.given(&at, lease, rules(member.group), now_ms, live_for);
                }
                member.subscription.written(&leases);
                member.held.extend(leases);
            }
            Some(Err(error)) => self.ended(index, &error),
        }
    }

    /// Ends a subscription: its leases are over.
    fn ended(&mut self, index: usize, error: &BusError) {
        let member = self.members.swap_remove(index);
        self.judge.gone(member.no);
        // A member of an abandoned bus hears that another owner took over; other members hear only of a failed store.
        if error.code() != "fenced" || self.left_behind.is_empty() {
            self.trouble(error);
        }
    }

    pub(super) async fn ack(&mut self) {
        self.doing = "ack";
        let Some((index, leases)) = self.some_held() else { return };
        let member = &self.members[index];
        let places: Vec<Place> = leases.iter().map(|lease| member.place(lease)).collect();
        places.iter().for_each(|at| self.judge.acking(at));
        if self.rng.chance(20) {
            // The time is unknown.
            let sent = member.subscription.ack_soon(&leases).await;
            places.iter().for_each(|at| self.judge.ack_answered(at, None));
            places.iter().for_each(|at| self.judge.nack_answered(at, 0, None));
            if let Err(error) = sent {
                self.trouble(&error);
            }
            return;
        }
        for (lease, at) in leases.iter().zip(&places) {
            match lease.ack().await {
                Ok(settled) => {
                    self.covered.count("events acked", u64::from(settled.stale == 0));
                    self.judge.ack_answered(at, Some(settled.stale > 0));
                }
                Err(error) => {
                    self.judge.ack_answered(at, None);
                    self.trouble(&error);
                }
            }
        }
    }

    pub(super) async fn nack(&mut self) {
        self.doing = "nack";
        let Some((index, leases)) = self.some_held() else { return };
        let member = &self.members[index];
        for lease in &leases {
            let at = member.place(lease);
            let delay_ms = [None, Some(0), Some(700)][self.rng.range(0..3) as usize];
            match lease.nack(delay_ms).await {
                Ok(settled) => self.judge.nack_answered(&at, lease.attempt, Some(settled.stale > 0)),
                Err(error) => {
                    self.judge.nack_answered(&at, lease.attempt, None);
                    if error.code() != "fenced" {
                        self.broken |= self.ground.has_disk();
                    }
                }
            }
        }
    }

    pub(super) async fn extend(&mut self) {
        self.doing = "extend";
        let Some(index) = self.pick() else { return };
        let member = &self.members[index];
        let Some(lease) = member.held.first() else { return };
        let ends_ms = self.ground.clock.monotonic_ms() + ACK_TIMEOUT_MS;
        let extended = lease.extend(None).await.is_ok_and(|settled| settled.stale == 0);
        if extended && !member.left_behind {
            self.judge.extended(&member.place(lease), ends_ms);
        }
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        (!self.members.is_empty()).then(|| self.rng.range(0..self.members.len() as u64) as usize)
    }

    /// Takes some leases away from a member.
    pub(super) fn some_held(&mut self) -> Option<(usize, Vec<Lease>)> {
        let index = self.pick()?;
        let mut leases = std::mem::take(&mut self.members[index].held);
        self.rng.shuffle(&mut leases);
        let kept = self.rng.range(0..leases.len() as u64 + 1) as usize;
        self.members[index].held = leases.drain(..kept).collect();
        (!leases.is_empty()).then_some((index, leases))
    }

    pub(super) fn trouble(&mut self, error: &BusError) {
        match error.code() {
            // The store refuses writes for a while.
            "storage_failed" | "storage_full" | "busy" if self.refusing => {}
            // Only for members of an abandoned bus.
            "fenced" if !self.left_behind.is_empty() => {}
            "poisoned" | "unknown_outcome" | "storage_failed" | "closed" if self.ground.has_disk() => {
                self.broken = true;
            }
            _ => panic!("{error}"),
        }
    }
}
