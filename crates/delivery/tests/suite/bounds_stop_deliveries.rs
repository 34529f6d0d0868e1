//! Credit, rate, pauses and the bounds of memory stop deliveries, and the reason says which.

use std::sync::Arc;

use promethean_delivery::{
    Allowance, Credit, Input, Machine, MachineBounds, MachineConfig, MemberNo, Order, Reason,
};

use promethean_model::StoredEvent;

use super::driven_machine::DrivenMachine;
use super::support::{Every, limits};

const ONE: MemberNo = MemberNo(1);
const TWO: MemberNo = MemberNo(2);

fn keyed() -> MachineConfig {
    MachineConfig { order: Order::Key, ..MachineConfig::new() }
}

#[test]
fn credit_bounds_what_is_in_flight_and_members_share() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 9]);
    let one = driven.join(ONE, 2);
    assert_eq!(driven.got(), [(0, 1), (1, 1)]);
    assert_eq!((one.free(), driven.reason()), (0, Some(Reason::Credit)));
    driven.join(TWO, 3);
    let to_two = driven.take();
    assert!(to_two.iter().all(|(member, ..)| *member == TWO) && to_two.len() == 3);
    assert_eq!(driven.reads, [(0, 2), (2, 3)], "a read asks for what there is credit for");
    driven.ack(TWO, &[to_two[0].1], 1);
    assert_eq!(driven.got(), [(5, 1)]);
}

/// How many events the reads asked for and got.
fn events_read(driven: &DrivenMachine) -> usize {
    let end = driven.keys.len();
    driven.reads.iter().map(|(from, limit)| (*limit).min(end - *from as usize)).sum()
}

/// Acks every event as soon as it comes, until nothing is delivered any more; returns how many came.
fn drain(driven: &mut DrivenMachine) -> usize {
    let mut count = 0;
    loop {
        let leases = driven.leases();
        if leases.is_empty() {
            return count;
        }
        count += leases.len();
        for lease in leases {
            driven.ack(ONE, &[lease], 1);
        }
        while !driven.commits.is_empty() {
            driven.commit();
        }
    }
}

#[test]
fn a_group_reads_what_its_members_have_credit_for() {
    for credit in [1, 3, 50] {
        let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 400]);
        driven.join(ONE, credit);
        assert_eq!(driven.reads, [(0, credit)]);
        assert_eq!((drain(&mut driven), events_read(&driven)), (400, 400), "each event is read once");
        assert!(driven.reads.iter().all(|(_, limit)| *limit <= credit));
    }
}

#[test]
fn a_group_that_wants_few_events_reads_few_in_vain() {
    let mut keys = vec![Some("b"); 3_000];
    (0..3_000).step_by(150).for_each(|n| keys[n] = Some("a"));
    let filter = |event: &StoredEvent| event.key() == Some("a");
    let config = MachineConfig { filter: Some(Box::new(filter)), ..MachineConfig::new() };
    let mut driven = DrivenMachine::new(config, &keys);
    driven.join(ONE, 1);
    assert_eq!(drain(&mut driven), 20);
    assert!(events_read(&driven) < 9_000, "{}", events_read(&driven));
    assert!(driven.reads.len() < 150, "{}", driven.reads.len());
}

#[test]
fn a_rated_member_reads_few_events_in_vain() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 300]);
    let allowance =
        Allowance { credit: Credit::new(1_000), rate: Some(Arc::new(Every { ms: 10, next: 0.into() })) };
    driven.step(Input::Join { member: ONE, limits: limits(), allowance });
    for _ in 0..300 {
        driven.pass(10);
    }
    assert_eq!(driven.got().len(), 300);
    assert!(events_read(&driven) < 1_000, "{}", events_read(&driven));
}

#[test]
fn the_window_stops_new_events_until_it_drains() {
    let config = MachineConfig {
        bounds: MachineBounds { window: 2, ..MachineBounds::default() },
        ..MachineConfig::new()
    };
    let mut driven = DrivenMachine::new(config, &[None; 9]);
    driven.join(ONE, 4);
    let leases = driven.leases();
    driven.ack(ONE, &[leases[1], leases[3]], 1);
    assert_eq!((driven.got(), driven.reason()), (vec![], Some(Reason::Window)));
    driven.ack(ONE, &[leases[0]], 2);
    assert_eq!(driven.got(), [(4, 1), (5, 1), (6, 1)]);
}

#[test]
fn the_look_ahead_is_bounded() {
    let config =
        MachineConfig { bounds: MachineBounds { look_ahead: 2, ..MachineBounds::default() }, ..keyed() };
    let mut driven = DrivenMachine::new(config, &[Some("a"), Some("a"), Some("a"), Some("a"), None]);
    driven.join(ONE, 9);
    let leases = driven.leases();
    assert_eq!((leases.len(), driven.reason()), (1, Some(Reason::BlockedKey)));
    driven.ack(ONE, &leases, 1);
    assert_eq!(driven.got(), [(1, 1), (4, 1)], "one more blocked event was scanned, and the event behind it");
}

#[test]
fn a_rate_delays_deliveries_and_is_the_reason() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 3]);
    let allowance =
        Allowance { credit: Credit::new(9), rate: Some(Arc::new(Every { ms: 10, next: 0.into() })) };
    driven.step(Input::Join { member: ONE, limits: limits(), allowance });
    assert_eq!((driven.got().len(), driven.reason()), (1, Some(Reason::Rate)));
    assert_eq!(driven.machine.next_deadline(driven.now), Some(driven.now.monotonic_ms + 10));
    driven.pass(10);
    assert_eq!(driven.got(), [(1, 1)]);
}

#[test]
fn pausing_keeps_leases_and_stops_deliveries() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 3]);
    driven.join(ONE, 1);
    let leases = driven.leases();
    driven.step(Input::Pause(None));
    driven.ack(ONE, &leases, 1);
    assert_eq!((driven.got(), driven.reason(), driven.commits.len()), (vec![], Some(Reason::Paused), 1));
    driven.step(Input::Pause(Some(ONE)));
    driven.step(Input::Resume(None));
    assert_eq!((driven.got(), driven.reason()), (vec![], Some(Reason::Paused)));
    driven.step(Input::Resume(Some(ONE)));
    assert_eq!(driven.got(), [(1, 1)]);
}

#[test]
fn an_idle_machine_is_small_and_asks_for_no_ticks() {
    let driven = DrivenMachine::new(MachineConfig::new(), &[]);
    assert!(size_of::<Machine>() < 1024, "{}", size_of::<Machine>());
    assert_eq!((driven.machine.next_deadline(driven.now), driven.reads.len()), (None, 0));
}
