//! Every partition of a partitioned group has one owner, whatever members come and go.

use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{Coordinator, Joining, Leaving, Liveness, MemberChange, MemberNo, Now, Rebalance};
use promethean_model::{MemberId, assign};
use proptest::prelude::*;
use serde_json::json;

fn now(ms: u64) -> Now {
    Now { monotonic_ms: ms, wall_ms: 1_000_000 + ms as i64 }
}

fn id(name: &str) -> MemberId {
    name.parse().unwrap()
}

fn joining(name: &str, session: u64, liveness: Liveness) -> Joining {
    Joining { member: id(name), session: MemberNo(session), liveness, meta: None }
}

fn socket(name: &str, session: u64) -> Joining {
    joining(name, session, Liveness::Socket)
}

fn group(partitions: u32) -> Coordinator {
    Coordinator::new(partitions, 0, now(0)).unwrap()
}

#[test]
fn the_first_member_gets_all_partitions_and_the_last_leaves_none_owned() {
    let mut group = group(4);
    let rebalance = group.join(socket("a", 1), now(5)).unwrap();
    let all =
        MemberChange { member: id("a"), session: MemberNo(1), assigned: vec![0, 1, 2, 3], revoked: vec![] };
    assert_eq!(rebalance, Rebalance { epoch: 1, changes: vec![all.clone()], lost: vec![] });
    assert_eq!(group.owners(), [Some(MemberNo(1)); 4]);
    let rebalance = group.leave(&id("a"), MemberNo(1), Leaving::Released, now(6)).unwrap();
    let none = MemberChange { assigned: vec![], revoked: vec![0, 1, 2, 3], ..all };
    assert_eq!(rebalance, Rebalance { epoch: 2, changes: vec![none], lost: vec![] });
    assert_eq!(group.owners(), [None; 4]);
    assert!(group.is_empty());
}

#[test]
fn a_new_session_takes_the_name_over_and_the_old_one_cannot_undo_it() {
    let mut group = group(2);
    group.join(socket("a", 1), now(0));
    let rebalance = group.join(socket("a", 2), now(1)).unwrap();
    assert_eq!((rebalance.epoch, rebalance.lost), (2, vec![MemberNo(1)]));
    let revoked: Vec<_> =
        rebalance.changes.iter().map(|c| (c.session, c.revoked.len(), c.assigned.len())).collect();
    assert_eq!(revoked, [(MemberNo(1), 2, 0), (MemberNo(2), 0, 2)]);
    assert_eq!(group.leave(&id("a"), MemberNo(1), Leaving::Lost, now(2)), None);
    assert_eq!(group.owners(), [Some(MemberNo(2)); 2]);
    assert_eq!(group.join(socket("a", 2), now(3)), None);
}

#[test]
fn heartbeats_keep_a_member_and_sockets_need_none() {
    let mut group = group(8);
    group.join(joining("beats", 1, Liveness::Heartbeat), now(0));
    group.join(joining("silent", 2, Liveness::Heartbeat), now(0));
    group.join(socket("socket", 3), now(0));
    assert_eq!(group.tick(now(2_999)), None);
    group.heartbeat(&id("beats"), MemberNo(1), now(14_000)).unwrap();
    assert_eq!(group.tick(now(15_000)), None);
    assert_eq!(group.next_tick_ms(), 18_000);
    assert_eq!(group.tick(now(17_999)), None);
    let rebalance = group.tick(now(18_000)).unwrap();
    assert!(rebalance.changes.iter().any(|c| c.member == id("silent") && c.assigned.is_empty()));
    assert_eq!(rebalance.lost, [MemberNo(2)]);
    assert_eq!(group.len(), 2);
    assert_eq!(
        group.heartbeat(&id("silent"), MemberNo(2), now(18_001)).unwrap_err().code(),
        "unknown_member"
    );
    group.tick(now(1_000_000));
    assert_eq!(group.view().members.iter().map(|m| m.member.clone()).collect::<Vec<_>>(), [id("socket")]);
}

#[test]
fn partitions_change_only_without_members() {
    assert_eq!(Coordinator::new(0, 0, now(0)).unwrap_err().code(), "bad_option");
    let mut group = group(2);
    group.join(socket("a", 1), now(0));
    assert_eq!(group.set_partitions(3).unwrap_err().code(), "partitions_in_use");
    assert!(group.set_partitions(2).is_ok());
    assert_eq!(group.owners(), [Some(MemberNo(1)); 2]);
    let rebalance = group.leave(&id("a"), MemberNo(1), Leaving::Lost, now(0)).unwrap();
    assert_eq!(rebalance.lost, [MemberNo(1)]);
    assert_eq!(group.set_partitions(4097).unwrap_err().code(), "bad_option");
    group.set_partitions(3).unwrap();
    assert_eq!((group.partitions(), group.owners().len()), (3, 3));
}

#[test]
fn the_view_is_json() {
    let mut group = group(2);
    group.join(Joining { meta: Some(json!({"zone": "eu"})), ..socket("a", 1) }, now(7));
    assert_eq!(
        serde_json::to_value(group.view()).unwrap(),
        json!({
            "partitions": 2, "epoch": 1, "since": 1_000_007,
            "members": [{
                "member": "a", "meta": {"zone": "eu"}, "partitions": [0, 1], "since": 1_000_007, "liveness": "socket"
            }],
        })
    );
}

#[derive(Debug, Clone)]
enum Step {
    Join(usize),
    Leave(usize),
    Pass(u64),
    Beat(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..8).prop_map(Step::Join),
        3 => (0_usize..8).prop_map(Step::Leave),
        2 => (0_u64..10_000).prop_map(Step::Pass),
        2 => (0_usize..8).prop_map(Step::Beat),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The owners as the rebalances told them. They must always equal the real owners.
#[derive(Default)]
struct ToldOwners(BTreeMap<MemberNo, BTreeSet<u32>>);

impl ToldOwners {
    fn hear(&mut self, rebalance: &Rebalance) {
        for change in &rebalance.changes {
            let owned = self.0.entry(change.session).or_default();
            for partition in &change.revoked {
                assert!(owned.remove(partition), "revoked a partition that the member did not own");
            }
        }
        for change in &rebalance.changes {
            for partition in &change.assigned {
                assert!(self.0.values().all(|owned| !owned.contains(partition)), "assigned twice");
                self.0.entry(change.session).or_default().insert(*partition);
            }
        }
    }

    fn owner(&self, partition: u32) -> Option<MemberNo> {
        self.0.iter().find(|(_, owned)| owned.contains(&partition)).map(|(session, _)| *session)
    }
}

/// The sessions of the members that the coordinator knows.
fn present(group: &Coordinator, sessions: &BTreeMap<usize, MemberNo>) -> BTreeSet<MemberNo> {
    let names: BTreeSet<MemberId> = group.view().members.into_iter().map(|member| member.member).collect();
    let known = sessions.iter().filter(|(member, _)| names.contains(&id(&format!("m{member}"))));
    known.map(|(_, session)| *session).collect()
}

proptest! {
    #[test]
    fn every_partition_has_one_owner_and_the_epoch_says_when_it_changes(n in 1_u32..64, steps in steps()) {
        let mut group = group(n);
        let mut told_owners = ToldOwners::default();
        let (mut ms, mut session) = (0, 0);
        let mut sessions = BTreeMap::new();
        for step in steps {
            let (owners, epoch) = (group.owners(), group.epoch());
            let before = present(&group, &sessions);
            let rebalance = match step {
                Step::Join(member) => {
                    session += 1;
                    sessions.insert(member, MemberNo(session));
                    let liveness = if member % 2 == 0 { Liveness::Socket } else { Liveness::Heartbeat };
                    group.join(joining(&format!("m{member}"), session, liveness), now(ms))
                }
                Step::Leave(member) => sessions.get(&member).and_then(|session| {
                    group.leave(&id(&format!("m{member}")), *session, Leaving::Lost, now(ms))
                }),
                Step::Pass(by) => {
                    ms += by;
                    group.tick(now(ms))
                }
                Step::Beat(member) => {
                    let session = sessions.get(&member).copied().unwrap_or(MemberNo(0));
                    let _ = group.heartbeat(&id(&format!("m{member}")), session, now(ms));
                    None
                }
            };
            let changed = owners != group.owners();
            prop_assert_eq!(changed, rebalance.is_some());
            prop_assert_eq!(group.epoch(), epoch + u64::from(changed));
            if let Some(rebalance) = &rebalance {
                prop_assert_eq!(rebalance.epoch, group.epoch());
                told_owners.hear(rebalance);
                let gone: BTreeSet<MemberNo> = before.difference(&present(&group, &sessions)).copied().collect();
                prop_assert_eq!(rebalance.lost.iter().copied().collect::<BTreeSet<_>>(), gone);
            }
            let told: Vec<_> = (0..n).map(|partition| told_owners.owner(partition)).collect();
            prop_assert_eq!(group.owners(), told);
            let members: Vec<MemberId> = group.view().members.into_iter().map(|m| m.member).collect();
            for (member, owned) in assign(n, &members) {
                prop_assert_eq!(group.partitions_of(&member), owned);
            }
            prop_assert_eq!(group.owners().iter().all(Option::is_some), !members.is_empty());
        }
    }

    #[test]
    fn one_member_more_or_less_moves_only_what_it_must(n in 1_u32..256, count in 1_u64..10) {
        let mut group = group(n);
        for member in 0..count {
            group.join(socket(&format!("m{member}"), member), now(0));
        }
        let before = group.owners();
        group.join(socket("new", 99), now(0));
        for (had, has) in before.iter().zip(group.owners()) {
            prop_assert!(*had == has || has == Some(MemberNo(99)));
        }
        group.leave(&id("new"), MemberNo(99), Leaving::Released, now(0));
        prop_assert_eq!(group.owners(), before);
    }

    #[test]
    fn the_order_of_joining_does_not_matter(n in 1_u32..64, order in Just((0_u64..9).collect::<Vec<_>>()).prop_shuffle()) {
        let (mut sorted, mut shuffled) = (group(n), group(n));
        for member in 0..9 {
            sorted.join(socket(&format!("m{member}"), member), now(0));
        }
        for member in order {
            shuffled.join(socket(&format!("m{member}"), member), now(0));
        }
        prop_assert_eq!(sorted.owners(), shuffled.owners());
    }
}
