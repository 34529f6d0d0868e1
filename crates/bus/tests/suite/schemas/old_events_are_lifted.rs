//! Old events are lifted to the latest version when they are read.

use promethean_bus::rows::StartPosition;
use promethean_bus::schemas::{ERROR_HEADER, LiftOutcome, Upcaster};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusOptions, ConsumerOptions, Lease, Nack};
use promethean_jq::Program;
use promethean_model::Limits;
use tokio::sync::mpsc;

use super::super::bus::harness::*;
use super::*;

on_both_stores!(
    events_are_lifted_step_by_step,
    what_cannot_be_lifted_is_given_as_it_is,
    events_without_an_upcaster_are_taken_for_the_next_version,
    what_is_older_than_schemas_has_version_0,
    members_are_given_lifted_events_in_order,
    redeliveries_are_lifted_too,
    members_that_pull_are_given_lifted_events,
    patterns_and_consumers_are_given_lifted_events,
    scans_replays_and_tails_can_lift,
    what_is_lifted_has_the_limit_of_payloads,
    a_slow_upcaster_stops_no_other,
    a_dry_run_counts_everything,
    a_subscription_ends_while_events_are_lifted,
);

pub(super) fn upcaster(from: u32, to: u32, program: &str) -> Upcaster {
    Upcaster { from, to, program: Program::compile(program).unwrap() }
}

fn set(bus: &Bus, upcasters: Vec<Upcaster>) {
    bus.set_upcasters(&topic("t"), upcasters).unwrap();
}

fn normalized(mut request: Subscribe) -> Subscribe {
    request.member.normalize = true;
    request
}

/// Registers three versions, with an event of each and one event from before the first.
async fn history(world: &World) {
    publish(&world.bus, "t", r#""old""#).await.unwrap();
    without_compat(&world.bus, "t").await;
    for (schema, event) in [(V1, r#"{"n":1}"#), (V2, r#"{"count":2}"#), (V3, r#"{"count":3,"unit":"x"}"#)] {
        register(&world.bus, "t", schema).await.unwrap();
        publish(&world.bus, "t", event).await.unwrap();
    }
    set(&world.bus, vec![upcaster(1, 2, "{count: .n}"), upcaster(2, 3, r#". + {unit: "kg"}"#)]);
}

const LIFTED: [&str; 4] =
    [r#""old""#, r#"{"count":1,"unit":"kg"}"#, r#"{"count":2,"unit":"kg"}"#, r#"{"count":3,"unit":"x"}"#];

fn payloads(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(|lease| payload(&lease.event)).collect()
}

async fn events_are_lifted_step_by_step(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let stored = world.events("t").await;
    for (event, expected) in stored.iter().zip(LIFTED) {
        let lifted = world.bus.lift(event.clone()).await;
        assert_eq!(payload(&lifted.event), expected);
        assert_eq!(
            (lifted.event.offset, lifted.event.id, lifted.event.ts),
            (event.offset, event.id, event.ts)
        );
        let expected = if event.offset.get() == 0 { None } else { Some("3".to_owned()) };
        assert_eq!(version(&lifted.event), expected);
    }
    assert_eq!(world.bus.lift(stored[1].clone()).await.outcome, LiftOutcome::Lifted { from: 1, to: 3 });
    assert_eq!(world.bus.lift(stored[3].clone()).await.outcome, LiftOutcome::Same);
    for bad in [(2, 2), (3, 1)] {
        let refused = world.bus.set_upcasters(&topic("t"), vec![upcaster(bad.0, bad.1, ".")]);
        assert_eq!(refused.unwrap_err().code(), "bad_option");
    }
    let twice = vec![upcaster(1, 2, "."), upcaster(1, 3, ".")];
    assert_eq!(world.bus.set_upcasters(&topic("t"), twice).unwrap_err().code(), "bad_option");
    // An upcaster that skips a version.
    set(&world.bus, vec![upcaster(1, 3, r#"{count: .n, unit: "t"}"#)]);
    assert_eq!(payload(&world.bus.lift(stored[1].clone()).await.event), r#"{"count":1,"unit":"t"}"#);
}

async fn what_cannot_be_lifted_is_given_as_it_is(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let old = world.events("t").await[1].clone();
    for (program, reason) in [
        (r#"error("no\nway")"#, "no way"),
        ("{count: .n}", "what the upcasters give does not fit version 3"),
        ("empty", "gave no value"),
        ("1, 2", "more than 1 values"),
        ("def f: f; f", "the program took"),
        (".n", "does not fit"),
    ] {
        set(&world.bus, vec![upcaster(1, 3, program)]);
        let lifted = world.bus.lift(old.clone()).await;
        assert_eq!((payload(&lifted.event), version(&lifted.event).as_deref()), (r#"{"n":1}"#, Some("1")));
        let told = headers(&lifted.event)[ERROR_HEADER].clone();
        assert!(told.contains(reason), "{program}: {told}");
        assert!(matches!(lifted.outcome, LiftOutcome::Failed { from: 1, .. }));
    }
    assert_eq!(world.bus.metrics().topic(&topic("t")).lift_failures.get(), 6);
    set(&world.bus, vec![upcaster(1, 9, ".")]);
    let lifted = world.bus.lift(old).await;
    assert!(headers(&lifted.event)[ERROR_HEADER].contains("lead to version 9"));
}

async fn events_without_an_upcaster_are_taken_for_the_next_version(kind: StoreKind) {
    let world = World::new(kind).await;
    register(&world.bus, "t", V1).await.unwrap();
    publish(&world.bus, "t", r#"{"n":1}"#).await.unwrap();
    register(&world.bus, "t", &V1.replace("integer", "number")).await.unwrap();
    let lifted = world.bus.lift(world.events("t").await[0].clone()).await;
    assert_eq!((payload(&lifted.event), version(&lifted.event).as_deref()), (r#"{"n":1}"#, Some("2")));
    versions(&world.bus, "t", &[V2]).await;
    let lifted = world.bus.lift(world.events("t").await[0].clone()).await;
    assert!(headers(&lifted.event)[ERROR_HEADER].contains("without an upcaster"));
}

async fn what_is_older_than_schemas_has_version_0(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    set(
        &world.bus,
        vec![upcaster(0, 1, "{n: length}"), upcaster(1, 2, "{count: .n}"), upcaster(2, 3, ".unit = \"kg\"")],
    );
    let events = world.bus.lift_all(world.events("t").await).await;
    assert_eq!(
        (payload(&events[0]), version(&events[0]).as_deref()),
        (r#"{"count":3,"unit":"kg"}"#, Some("3"))
    );
    world.bus.publish(Publish::new(topic("t"), "null").key("k")).await.unwrap();
    let tombstone = world.bus.lift(world.events("t").await[4].clone()).await;
    assert_eq!((tombstone.outcome, payload(&tombstone.event)), (LiftOutcome::Same, "null"));
}

async fn members_are_given_lifted_events_in_order(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    for n in 10..200 {
        publish_as(&world.bus, "t", &format!(r#"{{"n":{n}}}"#), "1").await.unwrap();
        if n % 3 == 0 {
            publish(&world.bus, "t", &format!(r#"{{"count":{n},"unit":"g"}}"#)).await.unwrap();
        }
    }
    let total = world.events("t").await.len();
    let mut plain = world.subscribe(request("t", "plain")).await;
    let mut lifted = world.subscribe(normalized(bounded(request("t", "lifted"), 50))).await;
    let stored = take(&mut plain, total).await;
    assert_eq!(payload(&stored[1].event), r#"{"n":1}"#, "only who asks for it");
    let mut seen = Vec::new();
    while seen.len() < total {
        let given = take(&mut lifted, 1).await;
        assert_eq!(lifted.ack(&given).await.unwrap().stale, 0);
        seen.extend(given);
    }
    assert_eq!(offsets(&seen), (0..total as u64).collect::<Vec<_>>());
    assert_eq!(payloads(&seen[..4]), LIFTED);
    assert!(seen[1..].iter().all(|lease| version(&lease.event).as_deref() == Some("3")));
    assert_eq!(world.settled("t", "lifted").await.lag, 0);
}

async fn redeliveries_are_lifted_too(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let mut subscription = world.subscribe(normalized(request("t", "g"))).await;
    let given = take(&mut subscription, 4).await;
    assert_eq!(payloads(&given), LIFTED);
    subscription.nack(&given, Some(0)).await.unwrap();
    let again = take(&mut subscription, 4).await;
    assert_eq!(payloads(&again), LIFTED);
    assert!(again.iter().all(|lease| lease.attempt == 2));
    // The owner must have heard that the leases began.
    world.settled("t", "g").await;
    world.pass(30_001);
    let mut more = take(&mut subscription, 4).await;
    more.sort_by_key(|lease| lease.event.offset);
    assert_eq!(payloads(&more), LIFTED);
    // A dead letter holds the event as it is stored.
    let mut dying = world.subscribe(normalized(attempts(request("t", "dying"), 1))).await;
    let given = take(&mut dying, 4).await;
    dying.nack(&given, Some(0)).await.unwrap();
    let letters = world.bus.dead_letters(&topic("t"), &group("dying"), None, 10).await.unwrap().letters;
    assert_eq!(payload(letters[1].event.as_ref().unwrap()), r#"{"n":1}"#);
}

async fn members_that_pull_are_given_lifted_events(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let mut asked = normalized(request("t", "g"));
    asked.member.pull = true;
    let subscription = world.subscribe(asked).await;
    subscription.grant(3);
    world.until("t", "g", |seen| seen.reason.is_some_and(|reason| reason.as_str() == "credit")).await;
    soon("ungrant", subscription.ungrant()).await;
    let mut given = Vec::new();
    while let Some(some) = subscription.try_take(2) {
        if let promethean_bus::SubscriptionItem::Leases(leases) = some.unwrap() {
            given.extend(leases);
        }
    }
    assert_eq!(payloads(&given), LIFTED[..3]);
    subscription.written(&given);
    assert_eq!(subscription.ack(&given).await.unwrap().stale, 0);
}

async fn patterns_and_consumers_are_given_lifted_events(kind: StoreKind) {
    let world = World::new(kind).await;
    for on in ["a.x", "a.y"] {
        versions(&world.bus, on, &[V1]).await;
        publish(&world.bus, on, r#"{"n":1}"#).await.unwrap();
        register(&world.bus, on, V2).await.unwrap();
        world.bus.set_upcasters(&topic(on), vec![upcaster(1, 2, "{count: (.n + 41)}")]).unwrap();
    }
    let (sender, mut given) = mpsc::channel(10);
    let handler = move |lease: Lease| {
        let sender = sender.clone();
        async move {
            sender.send((lease.event.topic.to_string(), payload(&lease.event).to_owned())).await.unwrap();
            Ok::<(), Nack>(())
        }
    };
    let consumer = world.bus.consume(normalized(request("a.*", "g")), ConsumerOptions::default(), handler);
    let consumer = consumer.await.unwrap();
    let mut seen = vec![soon("one", given.recv()).await.unwrap(), soon("two", given.recv()).await.unwrap()];
    seen.sort();
    let lifted = r#"{"count":42}"#.to_owned();
    assert_eq!(seen, [("a.x".to_owned(), lifted.clone()), ("a.y".to_owned(), lifted)]);
    consumer.stop().await.unwrap();
}

async fn scans_replays_and_tails_can_lift(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let mut scan = world.bus.scan(&topic("t"), StartPosition::Earliest).await.unwrap().normalize(true);
    let page = scan.next_page(10, 1 << 20).await.unwrap().unwrap();
    assert_eq!(page.events.iter().map(payload).collect::<Vec<_>>(), LIFTED);
    let mut replay =
        world.bus.replay(&"t".parse().unwrap(), StartPosition::Earliest).await.unwrap().normalize(true);
    let page = replay.next_page(10).await.unwrap().unwrap();
    assert_eq!(page.events.iter().map(payload).collect::<Vec<_>>(), LIFTED);
    let mut tail = world.bus.tail(&topic("t"), StartPosition::Earliest).await.unwrap().normalize(true);
    let page = soon("tail", tail.next_page()).await.unwrap().unwrap();
    assert_eq!(page.events.iter().map(payload).collect::<Vec<_>>(), LIFTED);
}

async fn what_is_lifted_has_the_limit_of_payloads(kind: StoreKind) {
    let limits = Limits { payload_bytes_max: 1_000, ..Limits::default() };
    let world = World::with(kind, BusOptions { limits, ..BusOptions::default() }).await;
    history(&world).await;
    let old = world.events("t").await[1].clone();
    let with_unit = |bytes: usize| {
        // The payload has 21 bytes around it.
        upcaster(1, 3, &format!(r#"{{count: .n, unit: ("x" * {})}}"#, bytes - 21))
    };
    set(&world.bus, vec![with_unit(1_000)]);
    assert_eq!(world.bus.lift(old.clone()).await.event.payload().len(), 1_000);
    set(&world.bus, vec![with_unit(1_001)]);
    let lifted = world.bus.lift(old.clone()).await;
    assert_eq!(payload(&lifted.event), r#"{"n":1}"#);
    let told = &headers(&lifted.event)[ERROR_HEADER];
    assert!(told.contains("1001 bytes; the limit is 1000"), "{told}");
}

async fn a_slow_upcaster_stops_no_other(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    // In the interpreter's own code, where steps are not counted: two lists of 2^31 items that are
    // compared. It comes back in the end, so that the thread does not take the machine from the other tests.
    let hang = "reduce range(31) as $i ([1]; [., .]) as $x | reduce range(31) as $i ([1]; [., .]) | if . == $x then 1 else 2 end";
    set(&world.bus, vec![upcaster(1, 3, hang), upcaster(2, 3, r#". + {unit: "kg"}"#)]);
    let mut subscription = world.subscribe(normalized(request("t", "g"))).await;
    let given = take(&mut subscription, 4).await;
    assert_eq!(offsets(&given), [0, 1, 2, 3]);
    assert!(headers(&given[1].event)[ERROR_HEADER].contains("too long"), "{:?}", headers(&given[1].event));
    assert_eq!(payload(&given[3].event), LIFTED[3]);
    // The other programs still run.
    let lifted = world.bus.lift(world.events("t").await[2].clone()).await;
    assert_eq!(payload(&lifted.event), LIFTED[2]);
    assert!(world.bus.jq_pool().status().lost <= 8);
}

async fn a_dry_run_counts_everything(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    for _ in 0..150 {
        publish_as(&world.bus, "t", r#"{"n":-1}"#, "1").await.unwrap();
    }
    let program = r#"if .n < 0 then error("negative") else {count: .n} end"#;
    set(&world.bus, vec![upcaster(1, 2, program), upcaster(2, 3, r#". + {unit: "kg"}"#)]);
    let migration = world.bus.migrate_dry_run(&topic("t")).await.unwrap();
    assert_eq!((migration.events, migration.lifted, migration.same, migration.failed), (154, 2, 2, 150));
    assert_eq!(migration.versions.into_iter().collect::<Vec<_>>(), [(0, 1), (1, 151), (2, 1), (3, 1)]);
    assert_eq!((migration.failures.len(), migration.failures[0].offset.get()), (100, 4));
    assert_eq!((migration.failures[0].reason.as_str(), migration.end.get()), ("negative", 154));
    assert_eq!(world.bus.migrate_dry_run(&topic("none")).await.unwrap().events, 0);
}

async fn a_subscription_ends_while_events_are_lifted(kind: StoreKind) {
    let world = World::new(kind).await;
    history(&world).await;
    let mut subscription = world.subscribe(normalized(request("t", "g"))).await;
    assert!(subscription.try_take(10).is_none(), "nothing is there yet, or it is being lifted");
    world.bus.delete_topic(&topic("t")).await.unwrap();
    assert_eq!(end_of(&mut subscription).await.code(), "topic_deleted");
    drop(subscription);
    soon("close", world.bus.close()).await;
}
