//! Each rule of delivery in a short run of one machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_delivery::{
    Allowance, Credit, EventTest, Failure, Input, LeaseRef, Leaving, Machine, MachineBounds, MachineConfig,
    MemberLimits, MemberNo, Order, Reason, ReplyNo, SavedProgress, Scope,
};
use promethean_model::{Offset, partition_of};

use super::driven_machine::DrivenMachine;
use super::support::{Every, event, limits};

const ONE: MemberNo = MemberNo(1);
const TWO: MemberNo = MemberNo(2);

fn keyed() -> MachineConfig {
    MachineConfig { order: Order::Key, ..MachineConfig::new() }
}

#[test]
fn acks_in_any_order_move_the_floor_over_finished_events_only() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 4]);
    driven.join(ONE, 10);
    let leases = driven.leases();
    assert!(driven.commits.is_empty(), "a first attempt writes nothing");
    driven.ack(ONE, &leases[1..3], 1);
    assert!(driven.replies.is_empty(), "answered before the commit");
    let progress = driven.commit();
    assert_eq!((progress.floor, progress.finished.len()), (Offset(0), 1));
    assert_eq!(driven.replies, [(1, 0)]);
    driven.ack(ONE, &[leases[0], leases[1]], 2);
    let progress = driven.commit();
    assert_eq!((progress.floor, progress.finished.len()), (Offset(3), 0));
    driven.ack(ONE, &leases[..3], 3);
    assert_eq!(
        driven.replies[1..],
        [(2, 1), (3, 3)],
        "stale ones are counted, all stale is answered at once"
    );
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
    assert_eq!(driven.reads, [(0, 1000)], "events that were read and not delivered are not read again");
    driven.ack(TWO, &[to_two[0].1], 1);
    assert_eq!(driven.got(), [(5, 1)]);
}

#[test]
fn a_failure_is_durable_before_the_next_attempt_and_the_last_one_is_a_letter() {
    let config = MachineConfig { max_attempts: 3, ..MachineConfig::new() };
    let mut driven = DrivenMachine::new(config, &[None]);
    driven.join(ONE, 1);
    let lease = driven.leases()[0];
    driven.nack(ONE, lease, Some(0));
    assert_eq!(driven.got(), []);
    assert_eq!(driven.commit().failed[0].failed, 1);
    let (_, lease, attempt) = driven.take()[0];
    assert_eq!(attempt, 2);
    driven.nack(ONE, lease, None);
    let row = driven.commit().failed[0];
    assert!((160..=240).contains(&(row.due_ms - row.last_ms)), "{row:?}");
    assert_eq!(driven.reason(), Some(Reason::Backoff));
    let due = driven.machine.next_deadline(driven.now).unwrap();
    driven.pass(due - driven.now.monotonic_ms - 1);
    assert_eq!(driven.got(), []);
    driven.pass(1);
    let (_, lease, attempt) = driven.take()[0];
    assert_eq!(attempt, 3);
    driven.nack(ONE, lease, None);
    let progress = driven.commit();
    assert_eq!(
        (progress.dead[0].failed, progress.floor, &progress.forget[..]),
        (3, Offset(1), &[Offset(0)][..])
    );
    assert_eq!(driven.reason(), Some(Reason::CaughtUp));
}

#[test]
fn letters_are_spread_over_commits_and_the_answer_comes_with_the_last() {
    let bounds = MachineBounds { letters: 2, ..MachineBounds::default() };
    let mut driven =
        DrivenMachine::new(MachineConfig { max_attempts: 1, bounds, ..MachineConfig::new() }, &[None; 6]);
    driven.join(ONE, 6);
    let leases = driven.leases();
    driven.step(Input::Nack {
        member: ONE,
        leases: leases[..5].to_vec(),
        delay_ms: None,
        reply: Some(ReplyNo(1)),
    });
    driven.ack(ONE, &leases[5..], 2);
    // An event that is not a dead letter in the commit is not finished in it either: after a crash it is
    // delivered again.
    for (dead, floor, finished) in [(&[0, 1][..], 2, 0), (&[2, 3], 4, 1), (&[4], 6, 0)] {
        assert!(driven.replies.is_empty());
        let progress = driven.commit();
        assert_eq!(progress.dead.iter().map(|row| row.offset.0).collect::<Vec<_>>(), dead);
        assert_eq!((progress.floor, progress.finished.len()), (Offset(floor), finished));
    }
    assert_eq!(driven.replies, [(1, 0), (2, 0)]);
    assert_eq!(driven.got(), []);
}

#[test]
fn without_dead_letters_an_event_is_redelivered_for_ever() {
    let config = MachineConfig { max_attempts: 1, dead_letters: false, ..MachineConfig::new() };
    let mut driven = DrivenMachine::new(config, &[None]);
    driven.join(ONE, 1);
    for attempt in 1..8 {
        let (_, lease, got) = driven.take()[0];
        assert_eq!(got, attempt);
        driven.nack(ONE, lease, Some(0));
        assert!(driven.commit().dead.is_empty());
    }
}

#[test]
fn the_ack_timeout_starts_when_a_delivery_is_written_and_is_extended_from_now() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 2]);
    driven.join(ONE, 2);
    let leases = driven.leases();
    driven.pass(100_000);
    assert!(driven.revoked.is_empty() && driven.machine.next_deadline(driven.now).is_none());
    driven.step(Input::Written { member: ONE, leases: leases.clone() });
    driven.pass(29_500);
    let extend =
        |by_ms| Input::Extend { member: ONE, leases: vec![leases[1]], by_ms, reply: Some(ReplyNo(9)) };
    driven.step(extend(Some(1)));
    assert_eq!(driven.replies, [(9, 0)]);
    driven.pass(500);
    assert_eq!(driven.revoked, [leases[0]]);
    assert_eq!(driven.commit().failed[0].last_failure, Failure::Expired);
    assert_eq!(driven.got(), [(0, 2)], "at once");
    driven.pass(499);
    assert_eq!(driven.revoked.len(), 1);
    driven.pass(1);
    assert_eq!(driven.revoked, leases);
    driven.step(extend(None));
    assert_eq!(driven.replies[1], (9, 1));
}

#[test]
fn a_lost_member_fails_its_written_deliveries_and_a_released_one_does_not() {
    for (how, written, failed) in
        [(Leaving::Lost, true, 1), (Leaving::Lost, false, 0), (Leaving::Released, true, 0)]
    {
        let mut driven = DrivenMachine::new(MachineConfig::new(), &[None]);
        let credit = driven.join(ONE, 1);
        let leases = driven.leases();
        if written {
            driven.step(Input::Written { member: ONE, leases });
        }
        driven.step(Input::Leave { member: ONE, how });
        assert_eq!((credit.free(), driven.commits.len()), (1, failed));
        assert_eq!(driven.reason(), Some(Reason::NoMembers));
        driven.join(TWO, 1);
        if failed > 0 {
            assert_eq!(driven.got(), []);
            driven.commit();
        }
        assert_eq!(driven.got(), [(0, failed as u32 + 1)], "{how:?}");
    }
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
    driven.step(Input::Assign(vec![Some(ONE), Some(TWO)]));
    let got = driven.take();
    assert_eq!(got.iter().filter(|(member, ..)| *member == ONE).count(), 1);
    assert_eq!(got.iter().filter(|(member, ..)| *member == TWO).count(), 6 - zero.len());
    assert_eq!(driven.reason(), Some(Reason::Credit));
    driven.step(Input::Assign(vec![Some(TWO), Some(TWO)]));
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
fn a_seek_ends_leases_and_holds_delivery_until_it_is_durable() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 6]);
    let credit = driven.join(ONE, 3);
    let leases = driven.leases();
    driven.ack(ONE, &leases[..1], 1);
    driven.step(Input::Seek { to: Offset(4), reply: ReplyNo(2) });
    assert_eq!(driven.revoked.len(), 3, "two, and the one that followed the acked one");
    driven.take();
    assert_eq!(driven.commit().seek, None);
    assert_eq!((driven.got(), credit.free(), driven.reason()), (vec![], 3, None));
    let progress = driven.commit();
    assert_eq!((progress.seek, progress.floor), (Some(Offset(4)), Offset(4)));
    assert_eq!((driven.got(), &driven.replies[..]), (vec![(4, 1), (5, 1)], &[(1, 0), (2, 0)][..]));
    driven.ack(ONE, &leases[1..], 3);
    assert_eq!(driven.replies[2], (3, 2));
}

#[test]
fn a_redriven_letter_is_delivered_beside_the_cursor_and_closed_or_dead_again() {
    let saved = SavedProgress { floor: Offset(3), redriven: vec![Offset(0)], ..SavedProgress::default() };
    let mut driven =
        DrivenMachine::with_saved(MachineConfig { max_attempts: 1, ..keyed() }, &[Some("a"); 4], saved);
    driven.join(ONE, 9);
    let mut leases = driven.leases();
    leases.sort_unstable();
    assert_eq!(leases.iter().map(|l| l.offset.0).collect::<Vec<_>>(), [0, 3], "it blocks nothing");
    driven.ack(ONE, &leases[..1], 1);
    let progress = driven.commit();
    assert_eq!((progress.redriven, progress.floor), (vec![Offset(0)], Offset(3)));
    driven.step(Input::Redrive(vec![Offset(1), Offset(3)]));
    assert_eq!(driven.commit().redriven, [Offset(3)], "not finished: delivered anyway");
    let lease = driven.leases()[0];
    driven.nack(ONE, lease, None);
    let progress = driven.commit();
    assert_eq!((progress.dead[0].offset, progress.redriven.len()), (Offset(1), 0));
}

#[test]
fn a_refused_commit_loses_nothing() {
    let mut driven =
        DrivenMachine::new(MachineConfig { max_attempts: 2, ..MachineConfig::new() }, &[None; 3]);
    driven.join(ONE, 9);
    let leases = driven.leases();
    driven.ack(ONE, &leases[..1], 1);
    driven.nack(ONE, leases[1], Some(0));
    let first = driven.commits.remove(0);
    let retry_at_ms = driven.now.monotonic_ms + 5;
    driven.step(Input::CommitFailed { token: first.token, retry_at_ms });
    driven.ack(ONE, &leases[2..], 2);
    assert_eq!((driven.commits.len(), driven.machine.next_deadline(driven.now)), (0, Some(retry_at_ms)));
    driven.pass(5);
    let progress = driven.commit();
    assert_eq!((progress.floor, progress.finished.len(), progress.failed.len()), (Offset(1), 1, 1));
    assert_eq!((driven.got(), &driven.replies[..]), (vec![(1, 2)], &[(1, 0), (2, 0)][..]));
}

#[test]
fn acks_without_a_reply_share_commits() {
    let mut driven =
        DrivenMachine::new(MachineConfig { commit_every_ms: 5, ..MachineConfig::new() }, &[None; 5]);
    driven.join(ONE, 9);
    let leases = driven.leases();
    let ack = |lease: &LeaseRef| Input::Ack { member: ONE, leases: vec![*lease], reply: None };
    driven.step(ack(&leases[0]));
    assert_eq!(driven.commit().floor, Offset(1), "the first does not wait");
    driven.step(ack(&leases[1]));
    driven.step(ack(&leases[2]));
    assert!(driven.commits.is_empty() && !driven.machine.is_settled());
    assert_eq!(driven.machine.next_deadline(driven.now), Some(driven.now.monotonic_ms + 5));
    driven.pass(5);
    assert_eq!(driven.commit().floor, Offset(3));
    driven.ack(ONE, &leases[3..4], 1);
    assert_eq!(driven.commit().floor, Offset(4), "a reply waits");
    driven.step(ack(&leases[4]));
    assert!(driven.commits.is_empty());
    driven.step(Input::Leave { member: ONE, how: Leaving::Released });
    assert_eq!(driven.commit().floor, Offset(5), "no member is left");
    assert!(driven.machine.is_settled());
}

#[test]
fn many_expired_leases_are_read_together() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 1000]);
    driven.join(ONE, 1000);
    let leases = driven.leases();
    driven.step(Input::Written { member: ONE, leases });
    driven.pass(30_000);
    driven.commit();
    assert_eq!((driven.got().len(), driven.reads.len()), (1000, 2));
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
fn a_written_delivery_is_acked_with_auto_ack() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 2]);
    let limits = MemberLimits { auto_ack: true, ..limits() };
    driven.step(Input::Join { member: ONE, limits, allowance: Allowance::of(9) });
    let leases = driven.leases();
    driven.step(Input::Written { member: ONE, leases });
    assert_eq!((driven.commit().floor, driven.reason()), (Offset(2), Some(Reason::CaughtUp)));
}

#[test]
fn an_idle_machine_is_small_and_asks_for_no_ticks() {
    let driven = DrivenMachine::new(MachineConfig::new(), &[]);
    assert!(size_of::<Machine>() < 1024, "{}", size_of::<Machine>());
    assert_eq!((driven.machine.next_deadline(driven.now), driven.reads.len()), (None, 0));
}
