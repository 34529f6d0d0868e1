//! Keys keep their order, partitions have one receiver, and unwanted events are skipped.

use std::collections::BTreeSet;

use promethean_delivery::{EventTest, Input, MachineConfig, MemberNo, Order, Reason, Scope};
use promethean_model::{Offset, partition_of};

use super::driven_machine::DrivenMachine;
use super::support::event;

const ONE: MemberNo = MemberNo(1);
const TWO: MemberNo = MemberNo(2);

fn keyed() -> MachineConfig {
    MachineConfig { order: Order::Key, ..MachineConfig::new() }
}

#[test]
fn a_key_waits_for_its_earlier_event_through_backoff_and_until_it_is_acked_or_dead() {
    let mut driven = DrivenMachine::new(
        MachineConfig { max_attempts: 2, ..keyed() },
        &[Some("a"), Some("a"), Some("b"), None, Some("a")],
    );
    driven.join(ONE, 10);
    let leases = driven.leases();
    assert_eq!(leases.iter().map(|lease| lease.offset.0).collect::<Vec<_>>(), [0, 2, 3]);
    let blocked = driven.machine.status().blocked_keys[0];
    assert_eq!((blocked.offset, blocked.member, blocked.waiting), (Offset(0), Some(ONE), 2));
    driven.ack(ONE, &leases[1..], 1);
    driven.nack(ONE, leases[0], Some(500));
    driven.commit();
    driven.commit();
    assert_eq!((driven.got(), driven.reason()), (vec![], Some(Reason::BlockedKey)));
    driven.pass(500);
    let lease = driven.leases()[0];
    driven.nack(ONE, lease, None);
    assert_eq!(driven.commit().dead.len(), 1);
    let lease = driven.leases()[0];
    assert_eq!(lease.offset, Offset(1), "a dead letter releases its key");
    driven.ack(ONE, &[lease], 2);
    assert_eq!(driven.got(), [(4, 1)], "an ack releases it before its commit");
}

#[test]
fn events_go_to_the_owner_of_their_partition_and_a_slow_owner_stops_no_other() {
    let keys: Vec<Option<&'static str>> = ["a", "b", "c", "d", "e", "f"].into_iter().map(Some).collect();
    let owner_of = |o: u64| partition_of(keys[o as usize], &event(o, keys[o as usize]).id, 2);
    let zero: Vec<u64> = (0..6).filter(|o| owner_of(*o) == 0).collect();
    assert!(zero.len() > 1 && zero.len() < 6, "{zero:?}");
    let mut driven = DrivenMachine::new(MachineConfig { partitions: Some(2), ..MachineConfig::new() }, &keys);
    driven.join(ONE, 1);
    driven.join(TWO, 10);
    assert_eq!((driven.got(), driven.reason()), (vec![], Some(Reason::NoMembers)));
    driven.step(Input::Assign { owners: vec![Some(ONE), Some(TWO)], lost: vec![] });
    let got = driven.take();
    assert_eq!(got.iter().filter(|(member, ..)| *member == ONE).count(), 1);
    assert_eq!(got.iter().filter(|(member, ..)| *member == TWO).count(), 6 - zero.len());
    assert_eq!(driven.reason(), Some(Reason::Credit));
    driven.step(Input::Assign { owners: vec![Some(TWO), Some(TWO)], lost: vec![] });
    assert_eq!(driven.revoked.len(), 1);
    assert_eq!(driven.got().len(), zero.len(), "all of them, and none counts as failed");
    driven.ack(ONE, &driven.revoked.clone(), 7);
    assert_eq!((&driven.replies[..], driven.commits.len()), (&[(7, 1)][..], 0));
}

#[test]
fn events_out_of_scope_or_filtered_are_finished_at_once() {
    let keys = [Some("a"), Some("b"), Some("c"), Some("a")];
    let inside = partition_of(Some("a"), &event(0, keys[0]).id, 3);
    let scope = Scope { partitions: Some((3, BTreeSet::from([inside]))), ..Scope::everything() };
    let mut driven = DrivenMachine::new(MachineConfig { scope, ..MachineConfig::new() }, &keys);
    driven.join(ONE, 9);
    let offsets: Vec<u64> = driven.leases().iter().map(|lease| lease.offset.0).collect();
    assert!(offsets.starts_with(&[0]) && offsets.ends_with(&[3]));
    let filter: Option<EventTest> = Some(Box::new(|event| event.key() == Some("c")));
    let mut driven = DrivenMachine::new(MachineConfig { filter, ..MachineConfig::new() }, &keys);
    driven.join(ONE, 9);
    let lease = driven.leases();
    assert_eq!((lease[0].offset, lease.len(), driven.machine.status().lag), (Offset(2), 1, 1));
    driven.ack(ONE, &lease, 1);
    assert_eq!(driven.commit().floor, Offset(4));
}
