//! Acks become durable in commits, and a refused commit loses none.

use promethean_delivery::{
    Allowance, Input, LeaseRef, Leaving, MachineConfig, MemberLimits, MemberNo, Reason,
};
use promethean_model::Offset;

use super::driven_machine::DrivenMachine;
use super::support::limits;

const ONE: MemberNo = MemberNo(1);

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
fn a_written_delivery_is_acked_with_auto_ack() {
    let mut driven = DrivenMachine::new(MachineConfig::new(), &[None; 2]);
    let limits = MemberLimits { auto_ack: true, ..limits() };
    driven.step(Input::Join { member: ONE, limits, allowance: Allowance::of(9) });
    let leases = driven.leases();
    driven.step(Input::Written { member: ONE, leases });
    assert_eq!((driven.commit().floor, driven.reason()), (Offset(2), Some(Reason::CaughtUp)));
}
