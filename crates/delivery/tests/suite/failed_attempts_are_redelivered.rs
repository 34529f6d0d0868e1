//! A failed attempt is redelivered, and the last one makes a dead letter.

use std::sync::Arc;

use promethean_delivery::{
    DeliveryFailure, FailureNote, Input, Leaving, MachineBounds, MachineConfig, MemberNo, Reason, ReplyNo,
};
use promethean_model::Offset;

use super::driven_machine::DrivenMachine;

const ONE: MemberNo = MemberNo(1);
const TWO: MemberNo = MemberNo(2);

#[test]
fn no_lease_expires_in_a_grace_and_acks_count() {
    let mut driven =
        DrivenMachine::new(MachineConfig { max_attempts: 1, ..MachineConfig::new() }, &[None; 3]);
    driven.join(ONE, 9);
    let leases = driven.leases();
    driven.step(Input::Written { member: ONE, leases: leases.clone() });
    assert_eq!(driven.machine.next_deadline(driven.now), Some(31_000));
    // The process stands still for a minute; the acks of two events arrive meanwhile.
    driven.now.monotonic_ms += 60_000;
    driven.step(Input::Grace(true));
    assert_eq!((driven.machine.next_deadline(driven.now), driven.revoked.len()), (None, 0));
    driven.ack(ONE, &leases[..1], 1);
    driven.ack(ONE, &leases[1..2], 2);
    driven.commit();
    driven.commit();
    assert_eq!(driven.replies, [(1, 0), (2, 0)]);
    driven.step(Input::Grace(false));
    assert_eq!(driven.revoked, [leases[2]]);
    assert_eq!(driven.commit().dead.len(), 1, "only the event that no member acked");
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
        (progress.dead[0].attempts.failed, progress.floor, &progress.forget[..]),
        (3, Offset(1), &[Offset(0)][..])
    );
    assert_eq!(driven.reason(), Some(Reason::CaughtUp));
}

#[test]
fn a_letter_keeps_what_was_said_before_the_last_attempt_expired() {
    let mut driven = DrivenMachine::new(MachineConfig { max_attempts: 2, ..MachineConfig::new() }, &[None]);
    driven.join(ONE, 1);
    let lease = driven.leases()[0];
    let note = FailureNote::new("no stock", Some("worker-1")).map(Arc::new);
    driven.step(Input::Nack { member: ONE, leases: vec![lease], delay_ms: Some(0), note, reply: None });
    driven.commit();
    let (_, lease, attempt) = driven.take()[0];
    assert_eq!(attempt, 2);
    driven.step(Input::Written { member: ONE, leases: vec![lease] });
    driven.pass(60_000);
    let dead = driven.commit().dead;
    let said = dead[0].note.as_ref().map(|note| (note.reason(), note.by()));
    assert_eq!(
        (dead[0].attempts.last_failure, said),
        (DeliveryFailure::Expired, Some(("no stock", Some("worker-1"))))
    );
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
        note: None,
        reply: Some(ReplyNo(1)),
    });
    driven.ack(ONE, &leases[5..], 2);
    // An event that is not a dead letter in the commit is not finished in it either: after a crash it is
    // delivered again.
    for (dead, floor, finished) in [(&[0, 1][..], 2, 0), (&[2, 3], 4, 1), (&[4], 6, 0)] {
        assert!(driven.replies.is_empty());
        let progress = driven.commit();
        assert_eq!(progress.dead.iter().map(|row| row.attempts.offset.0).collect::<Vec<_>>(), dead);
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
    assert_eq!(driven.commit().failed[0].last_failure, DeliveryFailure::Expired);
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
fn many_expired_leases_are_read_together() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 1000]);
    driven.join(ONE, 1000);
    let leases = driven.leases();
    driven.step(Input::Written { member: ONE, leases });
    driven.pass(30_000);
    driven.commit();
    assert_eq!((driven.got().len(), driven.reads.len()), (1000, 2));
}
