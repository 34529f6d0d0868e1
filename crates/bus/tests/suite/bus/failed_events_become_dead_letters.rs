//! An event that fails too often becomes a dead letter.

use promethean_bus::dead_letters::{Letter, LetterInfo};
use promethean_bus::dead_letters::{LetterChoice, LetterRow, RedriveTo};
use promethean_bus::publish::Publish;
use promethean_model::{Offset, TopicSettings};
use promethean_store::port::Table;

use super::harness::*;

on_both_stores!(
    the_last_failure_makes_a_dead_letter,
    each_way_to_fail_is_named,
    a_dead_letter_says_why_its_last_attempt_failed,
    the_dead_letter_topic_has_no_dead_letters,
    a_topics_setting_is_the_default,
    backoff_grows_from_attempt_to_attempt,
    more_than_fit_one_commit_die_at_once,
    a_letter_that_its_topic_refuses_stops_no_other,
    letters_that_exceed_a_journal_file_keep_their_copies,
    a_letter_that_is_refused_costs_no_other_its_copy,
);

async fn the_last_failure_makes_a_dead_letter(kind: StoreKind) {
    let world = World::new(kind).await;
    let event = Publish::new(topic("a.b"), r#"{"x": [1, 2]}"#)
        .key("k")
        .header("h", "v")
        .tags(vec!["t".to_owned()])
        .sid("s");
    let published = world.bus.publish(event).await.unwrap();
    world.publish("a.b", 1).await;
    let mut subscription = world.subscribe(attempts(request("a.b", "g"), 3)).await;
    for attempt in 1..=3 {
        let lease = take(&mut subscription, 1).await.pop().unwrap();
        assert_eq!((lease.attempt, lease.event.offset), (attempt, Offset(0)));
        assert_eq!(lease.nack(Some(0)).await.unwrap().stale, 0);
        if attempt == 1 {
            // The other event is finished first.
            take_one(&mut subscription).await.ack().await.unwrap();
        }
    }
    let seen = world.settled("a.b", "g").await;
    assert_eq!((seen.floor, seen.reason.unwrap().as_str()), (Offset(2), "caught_up"));
    let letters = world.events("a.b.dlq").await;
    assert_eq!(letters.len(), 1);
    let letter: Letter = serde_json::from_slice(letters[0].payload()).unwrap();
    assert_eq!((letter.group, letter.reason.as_str(), letter.attempts), (group("g"), "nack", 3));
    assert_eq!((letter.first_ts, letter.last_ts), (WALL_MS, WALL_MS));
    let event = letter.event;
    assert_eq!((event.id, event.offset, event.ts), (published.id, Offset(0), published.ts));
    assert_eq!((event.key.as_deref(), event.sid.as_deref()), (Some("k"), Some("s")));
    assert_eq!(event.payload.get(), r#"{"x":[1,2]}"#);
    assert_eq!(world.rows(Table::Attempts).await, 0);
    let rows = world.store.rows(Table::DeadLetters, b"", None, 10).await.unwrap();
    let row = LetterRow::decode(&rows[0].value).unwrap();
    assert_eq!((rows.len(), row.letter, row.attempts), (1, Some(letters[0].id), 3));
    let world = world.restart().await;
    assert_eq!(world.seen("a.b", "g").await.lag, 0, "it stays finished");
    assert_eq!(world.events("a.b.dlq").await.len(), 1);
}

async fn each_way_to_fail_is_named(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut subscription = world.subscribe(attempts(bounded(request("a", "g"), 1), 1)).await;
    take_one(&mut subscription).await.nack(None).await.unwrap();
    take_one(&mut subscription).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 1);
    world.pass(30_000);
    take_one(&mut subscription).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 1);
    subscription.lost();
    // The owner ends when everything is written.
    world.until_tasks(0).await;
    let words: Vec<String> = (world.events("a.dlq").await.iter())
        .map(|event| serde_json::from_slice::<Letter>(event.payload()).unwrap().reason)
        .collect();
    assert_eq!(words, ["nack", "expired", "member_lost"]);
}

async fn a_dead_letter_says_why_its_last_attempt_failed(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut subscription = world.subscribe(attempts(bounded(request("a", "g"), 3), 2)).await;
    let long = format!("no stock {}", "\u{e4}".repeat(2_000));
    for _ in 0..6 {
        let lease = take_one(&mut subscription).await;
        let reason = match (lease.attempt, lease.event.offset) {
            (1, _) => "at first",
            (_, Offset(0)) => &long,
            // A word says how an attempt failed for which no reason was given.
            (_, Offset(1)) => "",
            _ => continue,
        };
        lease.nack_because(Some(0), reason).await.unwrap();
    }
    assert_eq!(world.settled("a", "g").await.in_flight, 1);
    world.pass(30_000);
    let world = {
        world.settled("a", "g").await;
        drop(subscription);
        world.restart().await
    };
    let cut = long.get(..long.floor_char_boundary(1024)).unwrap();
    let expected = [cut, "nack", "expired"];
    let mut written: Vec<Letter> = (world.events("a.dlq").await.iter())
        .map(|event| serde_json::from_slice(event.payload()).unwrap())
        .collect();
    written.sort_by_key(|letter| letter.event.offset);
    assert_eq!(written.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), expected);
    // The lease of the last attempt expired; what was said before it is kept.
    let errors: Vec<Option<&str>> = written.iter().map(|letter| letter.last_error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some("at first")]);
    let page = world.bus.dead_letters(&topic("a"), &group("g"), None, 10).await.unwrap();
    let shown: Vec<&str> = page.letters.iter().map(|letter| letter.row.reason_text()).collect();
    assert_eq!(shown, expected);
    // The reason stays through a redrive that fails.
    let which = LetterChoice::Offsets(vec![Offset(0)]);
    world.bus.redrive(&topic("a"), &group("g"), which, RedriveTo::Group).await.unwrap();
    let page = world.bus.dead_letters(&topic("a"), &group("g"), None, 1).await.unwrap();
    assert_eq!((page.letters[0].row.redriving, page.letters[0].row.reason_text()), (true, cut));
}

async fn the_dead_letter_topic_has_no_dead_letters(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    let mut subscription = world.subscribe(attempts(request("a", "g"), 1)).await;
    take_one(&mut subscription).await.nack(None).await.unwrap();
    let mut letters = world.subscribe(attempts(request("a.dlq", "ops"), 1)).await;
    for attempt in 1..5 {
        let lease = take_one(&mut letters).await;
        assert_eq!(lease.attempt, attempt);
        lease.nack(Some(0)).await.unwrap();
    }
    assert_eq!(world.bus.topics().await.unwrap().len(), 2);
}

async fn a_topics_setting_is_the_default(kind: StoreKind) {
    let world = World::new(kind).await;
    let settings = promethean_model::TopicSettings { max_attempts: 2, ..Default::default() };
    world.bus.set_topic(&topic("a"), settings).await.unwrap();
    world.publish("a", 0).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    for _ in 0..2 {
        take_one(&mut subscription).await.nack(Some(0)).await.unwrap();
    }
    world.until("a", "g", |seen| seen.lag == 0).await;
    assert_eq!(world.events("a.dlq").await.len(), 1);
}

async fn backoff_grows_from_attempt_to_attempt(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    for base in [100, 200, 400, 800] {
        take_one(&mut subscription).await.nack(None).await.unwrap();
        world.pass(base * 8 / 10 - 1);
        assert_eq!(world.word("a", "g").await, "backoff");
        world.pass(base * 4 / 10 + 1);
    }
    assert_eq!(take_one(&mut subscription).await.attempt, 5);
}

async fn more_than_fit_one_commit_die_at_once(kind: StoreKind) {
    let world = World::new(kind).await;
    // Together they take more than a journal file.
    let payload = format!("\"{}\"", "x".repeat(40 << 10));
    for _ in 0..60 {
        world.bus.publish(Publish::new(topic("a"), payload.clone())).await.unwrap();
    }
    world.publish("a", 7).await;
    let mut subscription = world.subscribe(attempts(request("a", "g"), 1)).await;
    let mut leases = take(&mut subscription, 61).await;
    let last = leases.pop().unwrap();
    soon("nack", subscription.nack(&leases, None)).await.unwrap();
    soon("ack", last.ack()).await.unwrap();
    world.until("a", "g", |seen| seen.floor == Offset(61)).await;
    drop(subscription);
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.lag, 0);
    assert_eq!((world.events("a.dlq").await.len(), world.rows(Table::DeadLetters).await), (60, 60));
    assert_eq!(world.rows(Table::Attempts).await, 0);
}

async fn a_letter_that_its_topic_refuses_stops_no_other(kind: StoreKind) {
    let world = World::new(kind).await;
    let compacted = TopicSettings { compacted: true, ..TopicSettings::default() };
    world.bus.set_topic(&topic("a.dlq"), compacted).await.unwrap();
    world.fill("a", 0..2).await;
    let mut subscription = world.subscribe(attempts(request("a", "g"), 1)).await;
    let leases = take(&mut subscription, 2).await;
    soon("nack", leases[0].nack(None)).await.unwrap();
    soon("ack", leases[1].ack()).await.unwrap();
    world.until("a", "g", |seen| seen.floor == Offset(2)).await;
    let letters = world.bus.dead_letters(&topic("a"), &group("g"), None, 10).await.unwrap().letters;
    assert_eq!((letters.len(), letters[0].row.letter, letters[0].in_topic), (1, None, true));
}

/// Fails all events of topic `a` at once, and returns their dead letters once the group is through.
async fn bury_all(world: &World, count: usize) -> Vec<LetterInfo> {
    let mut subscription = world.subscribe(attempts(request("a", "g"), 1)).await;
    let leases = take(&mut subscription, count).await;
    soon("nack", subscription.nack(&leases, None)).await.unwrap();
    assert_eq!(world.seen("a", "g").await.floor, Offset(count as u64));
    world.bus.dead_letters(&topic("a"), &group("g"), None, count).await.unwrap().letters
}

async fn letters_that_exceed_a_journal_file_keep_their_copies(kind: StoreKind) {
    let world = World::new(kind).await;
    // Sixteen of them take three journal files. The last event is so large that it fits one, but its letter does not.
    for n in 0..20 {
        let payload = format!("\"{n}{}\"", "x".repeat(180 << 10));
        world.bus.publish(Publish::new(topic("a"), payload)).await.unwrap();
    }
    let mut length = (1 << 20) - 2;
    while let Err(error) =
        world.bus.publish(Publish::new(topic("a"), format!("\"{}\"", "x".repeat(length)))).await
    {
        assert_eq!(error.code(), "too_large");
        length -= 64;
    }
    let letters = bury_all(&world, 21).await;
    let copied = letters.iter().filter(|letter| letter.row.letter.is_some()).count();
    let of_last = usize::from(kind == StoreKind::Memory);
    assert_eq!((letters.len(), copied), (21, 20 + of_last));
    assert_eq!(world.events("a.dlq").await.len(), 20 + of_last);
    assert!(letters[..20].iter().all(|letter| letter.row.letter.is_some()));
    let world = world.restart().await;
    assert_eq!((world.seen("a", "g").await.lag, world.rows(Table::Attempts).await), (0, 0));
}

async fn a_letter_that_is_refused_costs_no_other_its_copy(kind: StoreKind) {
    let world = World::new(kind).await;
    let compacted = TopicSettings { compacted: true, ..TopicSettings::default() };
    world.bus.set_topic(&topic("a.dlq"), compacted).await.unwrap();
    for n in 0..12 {
        // The compacted topic of dead letters takes no letter of an event without a key.
        match n % 5 {
            2 => world.publish("a", n).await,
            _ => world.publish_key("a", &format!("k{n}"), n).await,
        };
    }
    let letters = bury_all(&world, 12).await;
    let without: Vec<u64> = (letters.iter())
        .filter(|letter| letter.row.letter.is_none())
        .map(|letter| letter.offset.get())
        .collect();
    assert_eq!((letters.len(), without), (12, vec![2, 7]));
}
