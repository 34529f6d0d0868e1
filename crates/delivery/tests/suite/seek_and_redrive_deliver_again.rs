//! A seek and a redrive deliver events again.

use promethean_delivery::{Input, LetterRef, MachineConfig, MemberNo, Order, ReplyNo, SavedProgress};
use promethean_model::Offset;

use super::driven_machine::DrivenMachine;

const ONE: MemberNo = MemberNo(1);

fn letter(offset: u64) -> LetterRef {
    LetterRef { offset: Offset(offset), redrives: 1 }
}

fn keyed() -> MachineConfig {
    MachineConfig { order: Order::Key, ..MachineConfig::new() }
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
    let saved = SavedProgress { floor: Offset(3), redriven: vec![letter(0)], ..SavedProgress::default() };
    let mut driven =
        DrivenMachine::with_saved(MachineConfig { max_attempts: 1, ..keyed() }, &[Some("a"); 4], saved);
    driven.join(ONE, 9);
    let mut leases = driven.leases();
    leases.sort_unstable();
    assert_eq!(leases.iter().map(|l| l.offset.0).collect::<Vec<_>>(), [0, 3], "it blocks nothing");
    driven.ack(ONE, &leases[..1], 1);
    let progress = driven.commit();
    assert_eq!((progress.redriven, progress.floor), (vec![letter(0)], Offset(3)));
    driven.step(Input::Redrive(vec![letter(1), letter(3)]));
    assert_eq!(driven.commit().redriven, [letter(3)], "not finished: delivered anyway");
    let lease = driven.leases()[0];
    driven.nack(ONE, lease, None);
    let progress = driven.commit();
    assert_eq!((progress.dead[0].attempts.offset, progress.redriven.len()), (Offset(1), 0));
}
