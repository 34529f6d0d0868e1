//! Dead letters are listed, redriven and dropped.

use promethean_bus::dead_letters::{LetterChoice, LetterReport, RedriveTo};
use promethean_bus::rows::StartPosition;
use promethean_delivery::{DeliveryFailure, Filter};
use promethean_model::{EventId, EventMeta, Offset};
use promethean_testkit::{StoreKind, World, group, on_both_stores, topic, until};

use super::bus::harness::take;
use super::letter_support::{at, expire, gauge, kill, letters, publish, request};
use super::schemas::register;

on_both_stores!(
    letters_are_listed_in_pages,
    a_redrive_to_the_group_delivers_again_and_closes,
    an_event_that_dies_again_is_a_new_letter,
    a_redrive_survives_a_restart,
    a_redrive_waits_for_a_member,
    a_redrive_to_the_topic_publishes_one_copy,
    redrives_to_the_topic_at_once_publish_one_copy,
    a_redrive_can_change_the_payload_of_one_letter,
    letters_are_chosen_by_id_offset_and_filter,
    dropped_letters_are_closed,
    what_is_not_there_is_refused,
    an_event_that_retention_took_is_gone_for_the_group_only,
    a_redriven_letter_whose_event_is_gone_stays_open,
    a_redriven_event_that_dies_when_it_is_gone_leaves_its_letter,
    a_seek_closes_the_letters_of_what_it_delivers_again,
    many_letters_take_several_commits,
    a_deleted_topic_leaves_no_letters,
);

async fn redrive(world: &World, which: LetterChoice, to: RedriveTo) -> LetterReport {
    world.bus.redrive(&topic("t"), &group("g"), which, to).await.unwrap()
}

fn report(selected: u64) -> LetterReport {
    LetterReport { selected, ..LetterReport::default() }
}

async fn open_offsets(world: &World) -> Vec<u64> {
    let letters = letters(world, "t", "g").await;
    assert_eq!(gauge(world, "t", "g"), letters.len() as i64, "the gauge is wrong");
    letters.iter().map(|letter| letter.offset.get()).collect()
}

async fn letters_are_listed_in_pages(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 5).await;
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [0, 1, 2, 3, 4]);
    let page = async |after, limit| {
        let page = world.bus.dead_letters(&topic("t"), &group("g"), after, limit).await.unwrap();
        (page.letters.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(page(None, 2).await, (vec![0, 1], Some(Offset(1))));
    assert_eq!(page(Some(Offset(1)), 3).await, (vec![2, 3, 4], Some(Offset(4))));
    assert_eq!(page(Some(Offset(4)), 3).await, (vec![], None));
    assert_eq!(page(None, 9).await, (vec![0, 1, 2, 3, 4], None));
    let letter = &letters(&world, "t", "g").await[3];
    assert_eq!((letter.row.reason, letter.row.attempts, letter.row.redrives), (DeliveryFailure::Nack, 1, 0));
    assert!(!letter.row.redriving && letter.in_topic && letter.row.first_ms > 0);
    assert_eq!(letter.event, Some(world.events("t").await[3].clone()));
}

async fn a_redrive_to_the_group_delivers_again_and_closes(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 3).await;
    let mut member = world.subscribe(request("t", "g", 1)).await;
    let done = redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    assert_eq!(done, LetterReport { redriven: 3, ..report(3) });
    let given = take(&mut member, 3).await;
    assert!(given.iter().all(|lease| lease.attempt == 1));
    let again = redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    assert_eq!(again, LetterReport { already_redriving: 3, ..report(3) });
    let to_topic = redrive(&world, LetterChoice::All, RedriveTo::Topic).await;
    assert_eq!(to_topic, LetterReport { already_redriving: 3, ..report(3) });
    assert_eq!(world.events("t").await.len(), 3);
    assert!(letters(&world, "t", "g").await.iter().all(|letter| letter.row.redriving));
    assert_eq!(open_offsets(&world).await, [0, 1, 2]);
    assert_eq!(member.ack(&given).await.unwrap().stale, 0);
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
    assert!(member.try_take(1).is_none(), "nothing is delivered twice");
}

async fn an_event_that_dies_again_is_a_new_letter(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 1).await;
    let first = letters(&world, "t", "g").await[0].clone();
    let mut member = world.subscribe(request("t", "g", 1)).await;
    redrive(&world, at(&[0]), RedriveTo::Group).await;
    let given = take(&mut member, 1).await;
    member.nack(&given, Some(0)).await.unwrap();
    assert_eq!(open_offsets(&world).await, [0]);
    let second = letters(&world, "t", "g").await[0].clone();
    assert_eq!((second.row.redrives, second.row.redriving), (1, false));
    assert_ne!(first.row.letter, second.row.letter);
    assert_eq!(world.events("t.dlq").await.len(), 2);
    // Each letter is published as a copy of its own.
    redrive(&world, LetterChoice::All, RedriveTo::Topic).await;
    assert_eq!(world.events("t").await.len(), 2);
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
}

async fn a_redrive_survives_a_restart(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    let mut member = world.subscribe(request("t", "g", 1)).await;
    redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    let given = take(&mut member, 2).await;
    member.ack(&given[..1]).await.unwrap();
    drop(given);
    member.unsubscribe();
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [1]);
    let mut member = world.subscribe(request("t", "g", 1)).await;
    let given = take(&mut member, 1).await;
    assert_eq!((given[0].event.offset, given[0].attempt), (Offset(1), 1));
    member.ack(&given).await.unwrap();
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
    drop((member, given));
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
    let progress = world.bus.group(&topic("t"), &group("g")).await.unwrap();
    assert_eq!((progress.floor, progress.lag), (Offset(2), 0));
}

async fn a_redrive_waits_for_a_member(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    redrive(&world, at(&[1]), RedriveTo::Group).await;
    let mut member = world.subscribe(request("t", "g", 1)).await;
    let given = take(&mut member, 1).await;
    assert_eq!(given[0].event.offset, Offset(1));
    member.ack(&given).await.unwrap();
    assert_eq!(open_offsets(&world).await, [0]);
}

async fn a_redrive_to_the_topic_publishes_one_copy(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    let done = redrive(&world, LetterChoice::All, RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 2, ..report(2) });
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
    let events = world.events("t").await;
    assert_eq!(events.len(), 4);
    for (original, copy) in events[..2].iter().zip(&events[2..]) {
        assert_eq!((original.key(), original.payload()), (copy.key(), copy.payload()));
        let (before, after) =
            (EventMeta::decode(original.meta()).unwrap(), EventMeta::decode(copy.meta()).unwrap());
        assert_eq!(after.caused_by, Some(vec![original.id]));
        assert_eq!(after.headers, before.headers);
    }
    let again = redrive(&world, LetterChoice::All, RedriveTo::Topic).await;
    assert_eq!(again, report(0));
    assert_eq!(world.events("t").await.len(), 4);
}

async fn redrives_to_the_topic_at_once_publish_one_copy(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 20).await;
    let (a, b) = tokio::join!(
        redrive(&world, LetterChoice::All, RedriveTo::Topic),
        redrive(&world, LetterChoice::All, RedriveTo::Topic),
    );
    assert_eq!(a.redriven + b.redriven, 20);
    assert_eq!(world.events("t").await.len(), 40);
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
}

async fn a_redrive_can_change_the_payload_of_one_letter(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    let schema = r#"{"type":"object","required":["fixed"]}"#;
    register(&world.bus, "t", schema).await.unwrap();
    let edit =
        async |which, payload: &str| world.bus.redrive_edited(&topic("t"), &group("g"), which, payload).await;
    // What cannot be published changes nothing.
    for (payload, code) in [("{", "invalid_json"), ("{}", "schema_rejected")] {
        assert_eq!(edit(at(&[0]), payload).await.unwrap_err().code(), code, "{payload}");
    }
    for which in [LetterChoice::All, at(&[0, 1])] {
        assert_eq!(edit(which, "{\"fixed\":1}").await.unwrap_err().code(), "bad_option");
    }
    assert_eq!((open_offsets(&world).await, world.events("t").await.len()), (vec![0, 1], 2));
    let done = edit(at(&[0]), "{ \"fixed\": 1 }").await.unwrap();
    assert_eq!(done, LetterReport { redriven: 1, ..report(1) });
    assert_eq!(open_offsets(&world).await, [1]);
    let events = world.events("t").await;
    let (original, copy) = (&events[0], &events[2]);
    assert_eq!((copy.payload(), copy.key()), (&b"{\"fixed\":1}"[..], original.key()));
    assert_ne!(copy.id, original.id);
    let meta = EventMeta::decode(copy.meta()).unwrap();
    assert_eq!(meta.caused_by, Some(vec![original.id]));
    let headers = meta.headers.unwrap();
    let header = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!((header("x-kind"), header("x-schema-version")), (Some("even"), Some("1")));
    assert_eq!(edit(at(&[0]), "{\"fixed\":1}").await.unwrap_err().code(), "unknown_letter");
    assert_eq!(world.events("t").await.len(), 3);
}

async fn letters_are_chosen_by_id_offset_and_filter(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 8).await;
    let ids: Vec<EventId> = world.events("t").await.iter().map(|event| event.id).collect();
    let letter_id = letters(&world, "t", "g").await[2].row.letter.unwrap();
    let stranger = EventId::from_bytes([9; 16]);
    // The id of an event twice, the id of a letter, and an unknown id.
    let which = LetterChoice::Ids(vec![ids[1], ids[1], letter_id, stranger]);
    let done = redrive(&world, which, RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 2, unknown: 1, ..report(2) });
    assert_eq!(open_offsets(&world).await, [0, 3, 4, 5, 6, 7]);
    let done = redrive(&world, at(&[7, 0, 2]), RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 2, unknown: 1, ..report(2) });
    assert_eq!(open_offsets(&world).await, [3, 4, 5, 6]);
    let odd = LetterChoice::Filter(Filter::default().header("x-kind", "odd"));
    let done = redrive(&world, odd, RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 2, ..report(2) });
    assert_eq!(open_offsets(&world).await, [4, 6]);
    let key = LetterChoice::Filter(Filter::default().key("k4"));
    world.bus.drop_letters(&topic("t"), &group("g"), key).await.unwrap();
    assert_eq!(open_offsets(&world).await, [6]);
}

async fn dropped_letters_are_closed(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 4).await;
    redrive(&world, at(&[2]), RedriveTo::Group).await;
    let done = world.bus.drop_letters(&topic("t"), &group("g"), at(&[1])).await.unwrap();
    assert_eq!(done, LetterReport { dropped: 1, ..report(1) });
    let done = world.bus.drop_letters(&topic("t"), &group("g"), LetterChoice::All).await.unwrap();
    assert_eq!(done, LetterReport { dropped: 2, already_redriving: 1, ..report(3) });
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [2]);
    assert_eq!(world.events("t.dlq").await.len(), 4);
    let mut member = world.subscribe(request("t", "g", 1)).await;
    let given = take(&mut member, 1).await;
    assert_eq!(given[0].event.offset, Offset(2));
}

async fn what_is_not_there_is_refused(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    let code = async |on: &str, by: &str, which: LetterChoice| {
        let (on, by) = (topic(on), group(by));
        let dropped = world.bus.drop_letters(&on, &by, which.clone()).await.unwrap_err();
        let redriven = world.bus.redrive(&on, &by, which, RedriveTo::Group).await.unwrap_err();
        assert_eq!(dropped, redriven);
        redriven.code()
    };
    assert_eq!(code("t", "h", LetterChoice::All).await, "unknown_group");
    assert_eq!(code("u", "g", LetterChoice::All).await, "unknown_group");
    assert_eq!(code("t", "g", at(&[2, 9])).await, "unknown_letter");
    let stranger = LetterChoice::Ids(vec![EventId::from_bytes([9; 16])]);
    assert_eq!(code("t", "g", stranger).await, "unknown_event");
    publish(&world, "t", 1).await;
    let alive = LetterChoice::Ids(vec![world.events("t").await[2].id]);
    assert_eq!(code("t", "g", alive).await, "unknown_letter");
    let long = LetterChoice::Filter(Filter::default().key("x".repeat(5000)));
    assert_eq!(code("t", "g", long).await, "bad_filter");
    let unknown = world.bus.dead_letters(&topic("t"), &group("h"), None, 1).await.unwrap_err();
    assert_eq!(unknown.code(), "unknown_group");
    assert_eq!(redrive(&world, at(&[]), RedriveTo::Group).await, report(0));
    assert_eq!(open_offsets(&world).await, [0, 1]);
    world.bus.close().await;
    assert_eq!(code("t", "g", LetterChoice::All).await, "closed");
}

async fn an_event_that_retention_took_is_gone_for_the_group_only(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 3).await;
    let originals = world.events("t").await;
    publish(&world, "t", 100).await;
    expire(&world, "t").await;
    assert!(world.events("t").await[0].offset.get() >= 3);
    let letters = letters(&world, "t", "g").await;
    assert!(letters.iter().all(|letter| !letter.in_topic));
    for (letter, original) in letters.iter().zip(&originals) {
        let event = letter.event.as_ref().unwrap();
        assert_eq!((event.id, event.key(), event.ts), (original.id, original.key(), original.ts));
        assert_eq!((event.meta(), event.payload()), (original.meta(), original.payload()));
    }
    let done = redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    assert_eq!(done, LetterReport { gone: 3, ..report(3) });
    assert_eq!(open_offsets(&world).await, [0, 1, 2]);
    // By the id of an event that only its letter still holds, and by a filter.
    let done = redrive(&world, LetterChoice::Ids(vec![originals[1].id]), RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 1, ..report(1) });
    let key = LetterChoice::Filter(Filter::default().key("k2"));
    let done = redrive(&world, key, RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 1, ..report(1) });
    let events = world.events("t").await;
    let copy = &events[events.len() - 2];
    assert_eq!((copy.key(), copy.payload()), (originals[1].key(), originals[1].payload()));
    assert_eq!(EventMeta::decode(copy.meta()).unwrap().caused_by, Some(vec![originals[1].id]));
    assert_eq!(open_offsets(&world).await, [0]);
}

async fn a_redriven_letter_whose_event_is_gone_stays_open(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 3).await;
    redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    publish(&world, "t", 100).await;
    expire(&world, "t").await;
    assert!(world.events("t").await[0].offset.get() >= 3);
    let member = world.subscribe(request("t", "g", 1)).await;
    let is_redriving = async || letters(&world, "t", "g").await.iter().any(|letter| letter.row.redriving);
    until("no letter is redriven", async || !is_redriving().await).await;
    assert_eq!(open_offsets(&world).await, [0, 1, 2]);
    let letters = letters(&world, "t", "g").await;
    assert!(letters.iter().all(|letter| letter.row.redrives == 1 && letter.event.is_some()));
    member.unsubscribe();
    let world = world.restart().await;
    // The letter can still be published again, or dropped.
    let done = redrive(&world, at(&[0]), RedriveTo::Topic).await;
    assert_eq!(done, LetterReport { redriven: 1, ..report(1) });
    let done = world.bus.drop_letters(&topic("t"), &group("g"), at(&[1])).await.unwrap();
    assert_eq!(done, LetterReport { dropped: 1, ..report(1) });
    assert_eq!(open_offsets(&world).await, [2]);
}

async fn a_redriven_event_that_dies_when_it_is_gone_leaves_its_letter(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 1).await;
    let first = letters(&world, "t", "g").await[0].clone();
    let mut member = world.subscribe(request("t", "g", 1)).await;
    redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    let given = take(&mut member, 1).await;
    publish(&world, "t", 100).await;
    expire(&world, "t").await;
    assert!(world.events("t").await[0].offset.get() >= 1);
    assert_eq!(member.nack(&given, Some(0)).await.unwrap().stale, 0);
    assert_eq!(open_offsets(&world).await, [0]);
    let letter = &letters(&world, "t", "g").await[0];
    assert_eq!((letter.row.redriving, letter.row.letter), (false, first.row.letter));
    assert!(letter.event.is_some());
}

/// An event has one letter or is unfinished, never both: otherwise it could be acked and still have a letter.
async fn a_seek_closes_the_letters_of_what_it_delivers_again(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 5).await;
    let seek = async |to, dry| world.bus.seek(&topic("t"), &group("g"), to, dry).await.unwrap();
    seek(StartPosition::Offset(Offset(2)), true).await;
    assert_eq!(open_offsets(&world).await, [0, 1, 2, 3, 4], "a dry run changes nothing");
    assert!(letters(&world, "t", "g").await.iter().all(|letter| !letter.row.redriving));
    assert_eq!(seek(StartPosition::Offset(Offset(2)), false).await.replayed, 3);
    assert_eq!(open_offsets(&world).await, [0, 1]);
    let mut member = world.subscribe(request("t", "g", 1)).await;
    // An event that fails twice in one millisecond has one letter.
    world.clock.advance(2);
    let mut given = take(&mut member, 3).await;
    given.sort_by_key(|lease| lease.event.offset);
    assert_eq!(given.iter().map(|lease| lease.event.offset.get()).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(given.iter().all(|lease| lease.attempt == 1));
    member.ack(&given[..2]).await.unwrap();
    member.nack(&given[2..], Some(0)).await.unwrap();
    assert_eq!(
        open_offsets(&world).await,
        [0, 1, 4],
        "acked ones are done, and what died again is there once"
    );
    assert_eq!(world.events("t.dlq").await.len(), 6);
    assert!(member.try_take(1).is_none());
    // Only its letter still holds an event that the topic has dropped.
    publish(&world, "t", 100).await;
    let given = take(&mut member, 100).await;
    member.ack(&given).await.unwrap();
    expire(&world, "t").await;
    seek(StartPosition::Earliest, false).await;
    seek(StartPosition::Offset(Offset(0)), false).await;
    assert_eq!(open_offsets(&world).await, [0, 1, 4]);
    assert!(letters(&world, "t", "g").await.iter().all(|letter| !letter.row.redriving));
}

async fn many_letters_take_several_commits(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 1000).await;
    kill(&world, "t", "g", 300).await;
    let mut member = world.subscribe(request("t", "g", 1)).await;
    let done = redrive(&world, LetterChoice::All, RedriveTo::Group).await;
    assert_eq!(done, LetterReport { redriven: 1300, ..report(1300) });
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1300 {
        let given = take(&mut member, 1).await;
        assert!(given.iter().all(|lease| seen.insert(lease.event.offset) && lease.attempt == 1));
        member.ack_soon(&given).await.unwrap();
    }
    member.unsubscribe();
    let world = world.restart().await;
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
}

async fn a_deleted_topic_leaves_no_letters(kind: StoreKind) {
    let world = World::running(kind).await;
    kill(&world, "t", "g", 2).await;
    redrive(&world, at(&[1]), RedriveTo::Group).await;
    world.bus.delete_topic(&topic("t")).await.unwrap();
    let gone = world.bus.dead_letters(&topic("t"), &group("g"), None, 10).await.unwrap_err();
    assert_eq!(gone.code(), "unknown_group");
    let world = world.restart().await;
    world.subscribe(request("t", "g", 1)).await.unsubscribe();
    assert_eq!(open_offsets(&world).await, [0_u64; 0]);
}
