//! The rules of delivery, one test each.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_bus::delivery::types::*;
use promethean_bus::delivery::{Allowance, Bounds, Config, Credit, Machine, Start};
use promethean_model::{Offset, partition_of};

use super::bench::Bench;
use super::support::{Every, event, limits};

const ONE: MemberNo = MemberNo(1);
const TWO: MemberNo = MemberNo(2);

fn keyed() -> Config {
    Config { order: Order::Key, ..Config::new() }
}

#[test]
fn acks_in_any_order_move_the_floor_over_finished_events_only() {
    let mut bench = Bench::new(Config::new(), &[None; 4]);
    bench.join(ONE, 10);
    let leases = bench.leases();
    assert!(bench.commits.is_empty(), "a first attempt writes nothing");
    bench.ack(ONE, &leases[1..3], 1);
    assert!(bench.replies.is_empty(), "answered before the commit");
    let progress = bench.commit();
    assert_eq!((progress.floor, progress.finished.len()), (Offset(0), 1));
    assert_eq!(bench.replies, [(1, 0)]);
    bench.ack(ONE, &[leases[0], leases[1]], 2);
    let progress = bench.commit();
    assert_eq!((progress.floor, progress.finished.len()), (Offset(3), 0));
    bench.ack(ONE, &leases[..3], 3);
    assert_eq!(bench.replies[1..], [(2, 1), (3, 3)], "stale ones are counted, all stale is answered at once");
}

#[test]
fn credit_bounds_what_is_in_flight_and_members_share() {
    let mut bench = Bench::new(Config::new(), &[None; 9]);
    let one = bench.join(ONE, 2);
    assert_eq!(bench.got(), [(0, 1), (1, 1)]);
    assert_eq!((one.free(), bench.reason()), (0, Some(Reason::Credit)));
    bench.join(TWO, 3);
    let to_two = bench.take();
    assert!(to_two.iter().all(|(member, ..)| *member == TWO) && to_two.len() == 3);
    assert_eq!(bench.reads, [(0, 1000)], "what was read and not delivered is not read again");
    bench.ack(TWO, &[to_two[0].1], 1);
    assert_eq!(bench.got(), [(5, 1)]);
}

#[test]
fn a_failure_is_durable_before_the_next_attempt_and_the_last_one_is_a_letter() {
    let config = Config { max_attempts: 3, ..Config::new() };
    let mut bench = Bench::new(config, &[None]);
    bench.join(ONE, 1);
    let lease = bench.leases()[0];
    bench.nack(ONE, lease, Some(0));
    assert_eq!(bench.got(), []);
    assert_eq!(bench.commit().failed[0].failed, 1);
    let (_, lease, attempt) = bench.take()[0];
    assert_eq!(attempt, 2);
    bench.nack(ONE, lease, None);
    let row = bench.commit().failed[0];
    assert!((160..=240).contains(&(row.due_ms - row.last_ms)), "{row:?}");
    assert_eq!(bench.reason(), Some(Reason::Backoff));
    let due = bench.machine.next_deadline(bench.now).unwrap();
    bench.pass(due - bench.now.monotonic_ms - 1);
    assert_eq!(bench.got(), []);
    bench.pass(1);
    let (_, lease, attempt) = bench.take()[0];
    assert_eq!(attempt, 3);
    bench.nack(ONE, lease, None);
    let progress = bench.commit();
    assert_eq!(
        (progress.dead[0].failed, progress.floor, &progress.forget[..]),
        (3, Offset(1), &[Offset(0)][..])
    );
    assert_eq!(bench.reason(), Some(Reason::CaughtUp));
}

#[test]
fn letters_are_spread_over_commits_and_the_answer_comes_with_the_last() {
    let bounds = Bounds { letters: 2, ..Bounds::default() };
    let mut bench = Bench::new(Config { max_attempts: 1, bounds, ..Config::new() }, &[None; 6]);
    bench.join(ONE, 6);
    let leases = bench.leases();
    bench.step(Input::Nack {
        member: ONE,
        leases: leases[..5].to_vec(),
        delay_ms: None,
        reply: Some(ReplyNo(1)),
    });
    bench.ack(ONE, &leases[5..], 2);
    // An event whose letter is not in the commit is not finished by it: after a crash it is delivered again.
    for (dead, floor, finished) in [(&[0, 1][..], 2, 0), (&[2, 3], 4, 1), (&[4], 6, 0)] {
        assert!(bench.replies.is_empty());
        let progress = bench.commit();
        assert_eq!(progress.dead.iter().map(|row| row.offset.0).collect::<Vec<_>>(), dead);
        assert_eq!((progress.floor, progress.finished.len()), (Offset(floor), finished));
    }
    assert_eq!(bench.replies, [(1, 0), (2, 0)]);
    assert_eq!(bench.got(), []);
}

#[test]
fn a_dead_letter_topic_has_none_of_its_own() {
    let config = Config { max_attempts: 1, dead_letters: false, ..Config::new() };
    let mut bench = Bench::new(config, &[None]);
    bench.join(ONE, 1);
    for attempt in 1..8 {
        let (_, lease, got) = bench.take()[0];
        assert_eq!(got, attempt);
        bench.nack(ONE, lease, Some(0));
        assert!(bench.commit().dead.is_empty());
    }
}

#[test]
fn the_clock_of_a_lease_starts_when_it_is_written_and_is_extended_from_now() {
    let mut bench = Bench::new(Config::new(), &[None; 2]);
    bench.join(ONE, 2);
    let leases = bench.leases();
    bench.pass(100_000);
    assert!(bench.revoked.is_empty() && bench.machine.next_deadline(bench.now).is_none());
    bench.step(Input::Written { member: ONE, leases: leases.clone() });
    bench.pass(29_500);
    let extend =
        |by_ms| Input::Extend { member: ONE, leases: vec![leases[1]], by_ms, reply: Some(ReplyNo(9)) };
    bench.step(extend(Some(1)));
    assert_eq!(bench.replies, [(9, 0)]);
    bench.pass(500);
    assert_eq!(bench.revoked, [leases[0]]);
    assert_eq!(bench.commit().failed[0].last_failure, Failure::Expired);
    assert_eq!(bench.got(), [(0, 2)], "at once");
    bench.pass(499);
    assert_eq!(bench.revoked.len(), 1);
    bench.pass(1);
    assert_eq!(bench.revoked, leases);
    bench.step(extend(None));
    assert_eq!(bench.replies[1], (9, 1));
}

#[test]
fn a_lost_member_fails_what_it_had_and_a_released_one_does_not() {
    for (how, written, failed) in
        [(Leaving::Lost, true, 1), (Leaving::Lost, false, 0), (Leaving::Released, true, 0)]
    {
        let mut bench = Bench::new(Config::new(), &[None]);
        let credit = bench.join(ONE, 1);
        let leases = bench.leases();
        if written {
            bench.step(Input::Written { member: ONE, leases });
        }
        bench.step(Input::Leave { member: ONE, how });
        assert_eq!((credit.free(), bench.commits.len()), (1, failed));
        assert_eq!(bench.reason(), Some(Reason::NoMembers));
        bench.join(TWO, 1);
        if failed > 0 {
            assert_eq!(bench.got(), []);
            bench.commit();
        }
        assert_eq!(bench.got(), [(0, failed as u32 + 1)], "{how:?}");
    }
}

#[test]
fn a_key_waits_for_its_earlier_event_through_backoff_and_until_it_is_acked_or_dead() {
    let mut bench = Bench::new(
        Config { max_attempts: 2, ..keyed() },
        &[Some("a"), Some("a"), Some("b"), None, Some("a")],
    );
    bench.join(ONE, 10);
    let leases = bench.leases();
    assert_eq!(leases.iter().map(|lease| lease.offset.0).collect::<Vec<_>>(), [0, 2, 3]);
    let blocked = bench.machine.status().blocked_keys[0];
    assert_eq!((blocked.offset, blocked.member, blocked.waiting), (Offset(0), Some(ONE), 2));
    bench.ack(ONE, &leases[1..], 1);
    bench.nack(ONE, leases[0], Some(500));
    bench.commit();
    bench.commit();
    assert_eq!((bench.got(), bench.reason()), (vec![], Some(Reason::BlockedKey)));
    bench.pass(500);
    let lease = bench.leases()[0];
    bench.nack(ONE, lease, None);
    assert_eq!(bench.commit().dead.len(), 1);
    let lease = bench.leases()[0];
    assert_eq!(lease.offset, Offset(1), "a dead letter releases its key");
    bench.ack(ONE, &[lease], 2);
    assert_eq!(bench.got(), [(4, 1)], "an ack does so before its commit");
}

#[test]
fn events_go_to_the_owner_of_their_partition_and_a_slow_owner_stops_no_other() {
    let keys: Vec<Option<&'static str>> = ["a", "b", "c", "d", "e", "f"].into_iter().map(Some).collect();
    let owner_of = |o: u64| partition_of(keys[o as usize], &event(o, keys[o as usize]).id, 2);
    let zero: Vec<u64> = (0..6).filter(|o| owner_of(*o) == 0).collect();
    assert!(zero.len() > 1 && zero.len() < 6, "{zero:?}");
    let mut bench = Bench::new(Config { partitions: Some(2), ..Config::new() }, &keys);
    bench.join(ONE, 1);
    bench.join(TWO, 10);
    assert_eq!((bench.got(), bench.reason()), (vec![], Some(Reason::NoMembers)));
    bench.step(Input::Assign(vec![Some(ONE), Some(TWO)]));
    let got = bench.take();
    assert_eq!(got.iter().filter(|(member, ..)| *member == ONE).count(), 1);
    assert_eq!(got.iter().filter(|(member, ..)| *member == TWO).count(), 6 - zero.len());
    assert_eq!(bench.reason(), Some(Reason::Credit));
    bench.step(Input::Assign(vec![Some(TWO), Some(TWO)]));
    assert_eq!(bench.revoked.len(), 1);
    assert_eq!(bench.got().len(), zero.len(), "all of them, and none counts as failed");
    bench.ack(ONE, &bench.revoked.clone(), 7);
    assert_eq!((&bench.replies[..], bench.commits.len()), (&[(7, 1)][..], 0));
}

#[test]
fn what_is_out_of_scope_or_filtered_is_finished_at_once() {
    let keys = [Some("a"), Some("b"), Some("c"), Some("a")];
    let inside = partition_of(Some("a"), &event(0, keys[0]).id, 3);
    let scope = Scope { partitions: Some((3, BTreeSet::from([inside]))), ..Scope::everything() };
    let mut bench = Bench::new(Config { scope, ..Config::new() }, &keys);
    bench.join(ONE, 9);
    let offsets: Vec<u64> = bench.leases().iter().map(|lease| lease.offset.0).collect();
    assert!(offsets.starts_with(&[0]) && offsets.ends_with(&[3]));
    let filter: Option<promethean_bus::delivery::config::Filter> =
        Some(Box::new(|event| event.key() == Some("c")));
    let mut bench = Bench::new(Config { filter, ..Config::new() }, &keys);
    bench.join(ONE, 9);
    let lease = bench.leases();
    assert_eq!((lease[0].offset, lease.len(), bench.machine.status().lag), (Offset(2), 1, 1));
    bench.ack(ONE, &lease, 1);
    assert_eq!(bench.commit().floor, Offset(4));
}

#[test]
fn the_window_stops_new_events_and_lets_it_drain() {
    let config = Config { bounds: Bounds { window: 2, ..Bounds::default() }, ..Config::new() };
    let mut bench = Bench::new(config, &[None; 9]);
    bench.join(ONE, 4);
    let leases = bench.leases();
    bench.ack(ONE, &[leases[1], leases[3]], 1);
    assert_eq!((bench.got(), bench.reason()), (vec![], Some(Reason::Window)));
    bench.ack(ONE, &[leases[0]], 2);
    assert_eq!(bench.got(), [(4, 1), (5, 1), (6, 1)]);
}

#[test]
fn the_look_ahead_is_bounded() {
    let config = Config { bounds: Bounds { look_ahead: 2, ..Bounds::default() }, ..keyed() };
    let mut bench = Bench::new(config, &[Some("a"), Some("a"), Some("a"), Some("a"), None]);
    bench.join(ONE, 9);
    let leases = bench.leases();
    assert_eq!((leases.len(), bench.reason()), (1, Some(Reason::BlockedKey)));
    bench.ack(ONE, &leases, 1);
    assert_eq!(bench.got(), [(1, 1), (4, 1)], "one more was looked at, and what lay behind it");
}

#[test]
fn a_seek_ends_leases_and_holds_delivery_until_it_is_durable() {
    let mut bench = Bench::new(Config::new(), &[None; 6]);
    let credit = bench.join(ONE, 3);
    let leases = bench.leases();
    bench.ack(ONE, &leases[..1], 1);
    bench.step(Input::Seek { to: Offset(4), reply: ReplyNo(2) });
    assert_eq!(bench.revoked.len(), 3, "two, and the one that came for the acked one");
    bench.take();
    assert_eq!(bench.commit().seek, None);
    assert_eq!((bench.got(), credit.free(), bench.reason()), (vec![], 3, None));
    let progress = bench.commit();
    assert_eq!((progress.seek, progress.floor), (Some(Offset(4)), Offset(4)));
    assert_eq!((bench.got(), &bench.replies[..]), (vec![(4, 1), (5, 1)], &[(1, 0), (2, 0)][..]));
    bench.ack(ONE, &leases[1..], 3);
    assert_eq!(bench.replies[2], (3, 2));
}

#[test]
fn a_redriven_letter_is_delivered_beside_the_cursor_and_closed_or_dead_again() {
    let start = Start { floor: Offset(3), redriven: vec![Offset(0)], ..Start::default() };
    let mut bench = Bench::with_start(Config { max_attempts: 1, ..keyed() }, &[Some("a"); 4], start);
    bench.join(ONE, 9);
    let mut leases = bench.leases();
    leases.sort_unstable();
    assert_eq!(leases.iter().map(|l| l.offset.0).collect::<Vec<_>>(), [0, 3], "it blocks nothing");
    bench.ack(ONE, &leases[..1], 1);
    let progress = bench.commit();
    assert_eq!((progress.redriven, progress.floor), (vec![Offset(0)], Offset(3)));
    bench.step(Input::Redrive(vec![Offset(1), Offset(3)]));
    assert_eq!(bench.commit().redriven, [Offset(3)], "not finished: delivered anyway");
    let lease = bench.leases()[0];
    bench.nack(ONE, lease, None);
    let progress = bench.commit();
    assert_eq!((progress.dead[0].offset, progress.redriven.len()), (Offset(1), 0));
}

#[test]
fn a_refused_commit_loses_nothing() {
    let mut bench = Bench::new(Config { max_attempts: 2, ..Config::new() }, &[None; 3]);
    bench.join(ONE, 9);
    let leases = bench.leases();
    bench.ack(ONE, &leases[..1], 1);
    bench.nack(ONE, leases[1], Some(0));
    let first = bench.commits.remove(0);
    let retry_at_ms = bench.now.monotonic_ms + 5;
    bench.step(Input::CommitFailed { token: first.token, retry_at_ms });
    bench.ack(ONE, &leases[2..], 2);
    assert_eq!((bench.commits.len(), bench.machine.next_deadline(bench.now)), (0, Some(retry_at_ms)));
    bench.pass(5);
    let progress = bench.commit();
    assert_eq!((progress.floor, progress.finished.len(), progress.failed.len()), (Offset(1), 1, 1));
    assert_eq!((bench.got(), &bench.replies[..]), (vec![(1, 2)], &[(1, 0), (2, 0)][..]));
}

#[test]
fn acks_without_a_waiting_caller_share_commits() {
    let mut bench = Bench::new(Config { commit_every_ms: 5, ..Config::new() }, &[None; 5]);
    bench.join(ONE, 9);
    let leases = bench.leases();
    let ack = |lease: &LeaseRef| Input::Ack { member: ONE, leases: vec![*lease], reply: None };
    bench.step(ack(&leases[0]));
    assert_eq!(bench.commit().floor, Offset(1), "the first waits for nothing");
    bench.step(ack(&leases[1]));
    bench.step(ack(&leases[2]));
    assert!(bench.commits.is_empty() && !bench.machine.is_settled());
    assert_eq!(bench.machine.next_deadline(bench.now), Some(bench.now.monotonic_ms + 5));
    bench.pass(5);
    assert_eq!(bench.commit().floor, Offset(3));
    bench.ack(ONE, &leases[3..4], 1);
    assert_eq!(bench.commit().floor, Offset(4), "somebody waits");
    bench.step(ack(&leases[4]));
    assert!(bench.commits.is_empty());
    bench.step(Input::Leave { member: ONE, how: Leaving::Released });
    assert_eq!(bench.commit().floor, Offset(5), "nobody is left to wait for");
    assert!(bench.machine.is_settled());
}

#[test]
fn many_expired_leases_are_read_together() {
    let mut bench = Bench::new(Config::new(), &[None; 1000]);
    bench.join(ONE, 1000);
    let leases = bench.leases();
    bench.step(Input::Written { member: ONE, leases });
    bench.pass(30_000);
    bench.commit();
    assert_eq!((bench.got().len(), bench.reads.len()), (1000, 2));
}

#[test]
fn a_rate_is_waited_for_and_said() {
    let mut bench = Bench::new(Config::new(), &[None; 3]);
    let allowance =
        Allowance { credit: Credit::new(9), rate: Some(Arc::new(Every { ms: 10, next: 0.into() })) };
    bench.step(Input::Join { member: ONE, limits: limits(), allowance });
    assert_eq!((bench.got().len(), bench.reason()), (1, Some(Reason::Rate)));
    assert_eq!(bench.machine.next_deadline(bench.now), Some(bench.now.monotonic_ms + 10));
    bench.pass(10);
    assert_eq!(bench.got(), [(1, 1)]);
}

#[test]
fn pausing_keeps_leases_and_stops_deliveries() {
    let mut bench = Bench::new(Config::new(), &[None; 3]);
    bench.join(ONE, 1);
    let leases = bench.leases();
    bench.step(Input::Pause(None));
    bench.ack(ONE, &leases, 1);
    assert_eq!((bench.got(), bench.reason(), bench.commits.len()), (vec![], Some(Reason::Paused), 1));
    bench.step(Input::Pause(Some(ONE)));
    bench.step(Input::Resume(None));
    assert_eq!((bench.got(), bench.reason()), (vec![], Some(Reason::Paused)));
    bench.step(Input::Resume(Some(ONE)));
    assert_eq!(bench.got(), [(1, 1)]);
}

#[test]
fn written_events_are_acked_for_members_that_want_that() {
    let mut bench = Bench::new(Config::new(), &[None; 2]);
    let limits = MemberLimits { auto_ack: true, ..limits() };
    bench.step(Input::Join { member: ONE, limits, allowance: Allowance::of(9) });
    let leases = bench.leases();
    bench.step(Input::Written { member: ONE, leases });
    assert_eq!((bench.commit().floor, bench.reason()), (Offset(2), Some(Reason::CaughtUp)));
}

#[test]
fn an_idle_machine_is_small_and_asks_for_no_ticks() {
    let bench = Bench::new(Config::new(), &[]);
    assert!(size_of::<Machine>() < 1024, "{}", size_of::<Machine>());
    assert_eq!((bench.machine.next_deadline(bench.now), bench.reads.len()), (None, 0));
}
