//! Events count exactly once, also when they are delivered again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use promethean_bus::exactly_once::{StoreDedupe, produced_id};
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::{MemberOptions, Subscribe};
use promethean_bus::{BusError, ConsumerOptions, DedupeStore, Effects, ExactlyOnce, Lease, Nack};
use promethean_model::{EventId, EventMeta, GroupName, Offset, TopicName};
use promethean_store::port::{Batch, Collection, CollectionOp, DocOp, DocPut, Expect, Keeping, Replaces};
use promethean_testkit::{StoreKind, World, group, on_both_stores, topic, until};
use tokio::sync::{Notify, mpsc};

use super::bus::harness::take;
use super::letter_support::{letters, publish, request};

on_both_stores!(
    handled_events_are_skipped_when_they_come_again,
    an_event_whose_ack_is_lost_is_not_handled_again,
    a_failed_handler_leaves_no_mark,
    an_event_is_acked_only_once_it_is_marked,
    marks_expire,
    marks_go_with_their_topic_and_group,
    effects_happen_once_when_two_handle_one_event,
    effects_happen_once_over_restarts,
    effects_are_all_or_nothing,
    produced_ids_make_repeats_duplicates,
    bad_options_are_refused,
);

/// Waits until the group has nothing left to do.
async fn caught_up(world: &World) {
    world.until("t", "g", |seen| seen.lag == 0 && seen.in_flight == 0).await;
}

async fn again_from_the_start(world: &World) {
    world.bus.seek(&topic("t"), &group("g"), StartPosition::Earliest, false).await.unwrap();
    caught_up(world).await;
}

/// A handler that counts its calls and fails the first `failures` of them.
fn counting(
    count: &Arc<AtomicU64>,
    failures: u64,
) -> impl Fn(Lease) -> std::future::Ready<Result<(), Nack>> + use<> {
    let count = count.clone();
    move |_| {
        let failed = count.fetch_add(1, Ordering::SeqCst) < failures;
        std::future::ready(if failed { Err(Nack::new("no").after_ms(0)) } else { Ok(()) })
    }
}

async fn handled_events_are_skipped_when_they_come_again(kind: StoreKind) {
    let world = World::running(kind).await;
    let count = Arc::new(AtomicU64::new(0));
    let marks = Arc::new(world.bus.dedupe());
    let options = ExactlyOnce::default();
    let once =
        world.bus.subscribe_exactly_once(request("t", "g", 5), options, marks, counting(&count, 0)).await;
    publish(&world, "t", 5).await;
    caught_up(&world).await;
    again_from_the_start(&world).await;
    once.unwrap().stop().await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 5);
    // Another group has handled nothing.
    let other = group("h");
    assert!(!world.bus.dedupe().seen(&topic("t"), &other, world.events("t").await[0].id).await.unwrap());
    let world = world.restart().await;
    let marks = Arc::new(world.bus.dedupe());
    let options = ExactlyOnce::default();
    let once =
        world.bus.subscribe_exactly_once(request("t", "g", 5), options, marks, counting(&count, 0)).await;
    again_from_the_start(&world).await;
    once.unwrap().stop().await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

async fn an_event_whose_ack_is_lost_is_not_handled_again(kind: StoreKind) {
    let world = World::running(kind).await;
    // A member handles and marks its event, and is gone before its ack.
    let mut member = world.subscribe(request("t", "g", 5)).await;
    publish(&world, "t", 2).await;
    let given = take(&mut member, 1).await;
    let (t, g) = (topic("t"), group("g"));
    world.bus.dedupe().mark(&t, &g, given[0].event.id, 60_000).await.unwrap();
    member.lost();
    let (told, mut heard) = mpsc::channel(10);
    let handler = move |lease: Lease| {
        let told = told.clone();
        async move { told.send(lease.event.offset).await }
    };
    let marks = Arc::new(world.bus.dedupe());
    let request = request("t", "g", 5);
    let once =
        world.bus.subscribe_exactly_once(request, ExactlyOnce::default(), marks, handler).await.unwrap();
    caught_up(&world).await;
    once.stop().await.unwrap();
    assert_eq!((heard.recv().await, heard.recv().await), (Some(Offset(1)), None));
}

async fn a_failed_handler_leaves_no_mark(kind: StoreKind) {
    let world = World::running(kind).await;
    let count = Arc::new(AtomicU64::new(0));
    let marks = Arc::new(world.bus.dedupe());
    let handler = counting(&count, 2);
    let options = ExactlyOnce::default();
    let once = world.bus.subscribe_exactly_once(request("t", "g", 5), options, marks, handler).await.unwrap();
    publish(&world, "t", 1).await;
    caught_up(&world).await;
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(once.last_failure().as_deref(), Some("no"));
    once.stop().await.unwrap();
}

/// Dedupe marks whose first writes fail.
struct Unreliable {
    marks: StoreDedupe,
    failures: AtomicU64,
}

#[async_trait]
impl DedupeStore for Unreliable {
    async fn seen(&self, topic: &TopicName, group: &GroupName, id: EventId) -> Result<bool, BusError> {
        self.marks.seen(topic, group, id).await
    }

    async fn mark(&self, topic: &TopicName, group: &GroupName, id: EventId, ms: u64) -> Result<(), BusError> {
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Err(BusError::StorageFailed { reason: "unreliable".to_owned() });
        }
        self.marks.mark(topic, group, id, ms).await
    }
}

async fn an_event_is_acked_only_once_it_is_marked(kind: StoreKind) {
    let world = World::running(kind).await;
    let count = Arc::new(AtomicU64::new(0));
    let marks = Arc::new(Unreliable { marks: world.bus.dedupe(), failures: AtomicU64::new(1) });
    let handler = counting(&count, 0);
    let options = ExactlyOnce::default();
    let once = world.bus.subscribe_exactly_once(request("t", "g", 5), options, marks, handler).await.unwrap();
    publish(&world, "t", 1).await;
    caught_up(&world).await;
    once.stop().await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2, "what is not marked is not acked");
    let id = world.events("t").await[0].id;
    assert!(world.bus.dedupe().seen(&topic("t"), &group("g"), id).await.unwrap());
}

async fn marks_expire(kind: StoreKind) {
    let world = World::running(kind).await;
    let count = Arc::new(AtomicU64::new(0));
    let options = ExactlyOnce { ttl_ms: 1, ..ExactlyOnce::default() };
    let marks = Arc::new(world.bus.dedupe());
    let handler = counting(&count, 0);
    let once = world.bus.subscribe_exactly_once(request("t", "g", 5), options, marks, handler).await.unwrap();
    publish(&world, "t", 1).await;
    caught_up(&world).await;
    world.clock.advance(10);
    again_from_the_start(&world).await;
    once.stop().await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// Publishes an event with an id that no other run of the handler uses: only the mark prevents a second effect.
fn unique(runs: &Arc<AtomicU64>) -> Effects {
    let run = runs.fetch_add(1, Ordering::SeqCst);
    let id = EventId::derive(b"test", &run.to_be_bytes());
    Effects::none().publish(Publish::new(topic("out"), run.to_string()).id(id))
}

async fn marks_go_with_their_topic_and_group(kind: StoreKind) {
    let world = World::running(kind).await;
    let (t, g, marks) = (topic("t"), group("g"), world.bus.dedupe());
    let id = EventId::derive(b"test", b"one");
    let event = || Publish::new(topic("t"), "1").id(id);
    for delete_group in [false, true] {
        world.bus.publish(event()).await.unwrap();
        for name in ["g", "h"] {
            world.bus.subscribe(request("t", name, 5)).await.unwrap().unsubscribe();
            marks.mark(&t, &group(name), id, 60_000).await.unwrap();
        }
        assert!(marks.seen(&t, &g, id).await.unwrap());
        if delete_group {
            world.bus.delete_group(&"t".parse().unwrap(), &g).await.unwrap();
            assert!(marks.seen(&t, &group("h"), id).await.unwrap(), "another group's");
        } else {
            world.bus.delete_topic(&t).await.unwrap();
            assert!(!marks.seen(&t, &group("h"), id).await.unwrap());
        }
        assert!(!marks.seen(&t, &g, id).await.unwrap());
    }
    // The event is handled although a deleted group of the same name had handled it.
    let count = Arc::new(AtomicU64::new(0));
    let options = ExactlyOnce::default();
    let handler = counting(&count, 0);
    let once =
        world.bus.subscribe_exactly_once(request("t", "g", 5), options, Arc::new(marks), handler).await;
    caught_up(&world).await;
    once.unwrap().stop().await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

async fn effects_happen_once_when_two_handle_one_event(kind: StoreKind) {
    let world = World::running(kind).await;
    let (runs, go_on) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (count, gate) = (runs.clone(), go_on.clone());
    let handler = move |lease: Lease| {
        let (count, gate) = (count.clone(), gate.clone());
        async move {
            let effects = unique(&count);
            if lease.attempt == 1 {
                gate.notified().await;
            }
            Ok::<_, Nack>(effects)
        }
    };
    let member = MemberOptions { ack_timeout_ms: 1000, ..MemberOptions::default() };
    let request = Subscribe { member, ..request("t", "g", 5) };
    let options = ExactlyOnce { concurrency: 2, ..ExactlyOnce::default() };
    let once = world.bus.transform_exactly_once(request, options, handler).await.unwrap();
    publish(&world, "t", 1).await;
    until("the first handler runs", async || runs.load(Ordering::SeqCst) == 1).await;
    // The lease of the first handler runs out, the second handler ends, and then the first ends as well.
    world.pass(1_001);
    caught_up(&world).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(world.events("out").await.len(), 1);
    go_on.notify_one();
    once.stop().await.unwrap();
    assert_eq!(world.events("out").await.len(), 1);
    assert_eq!(world.events("out").await[0].payload(), b"1");
}

async fn effects_happen_once_over_restarts(kind: StoreKind) {
    let world = World::running(kind).await;
    let runs = Arc::new(AtomicU64::new(0));
    let handler = |runs: &Arc<AtomicU64>| {
        let runs = runs.clone();
        move |_| std::future::ready(Ok::<_, Nack>(unique(&runs)))
    };
    let options = ExactlyOnce::default();
    let once = world
        .bus
        .transform_exactly_once(request("t", "g", 5), options.clone(), handler(&runs))
        .await
        .unwrap();
    publish(&world, "t", 3).await;
    caught_up(&world).await;
    drop(once);
    let world = world.restart().await;
    let once = world.bus.transform_exactly_once(request("t", "g", 5), options, handler(&runs)).await.unwrap();
    again_from_the_start(&world).await;
    once.stop().await.unwrap();
    assert_eq!((runs.load(Ordering::SeqCst), world.events("out").await.len()), (3, 3));
    // The bus names the cause of an event if the handler does not.
    let meta = EventMeta::decode(world.events("out").await[0].meta()).unwrap();
    assert_eq!(meta.caused_by, Some(vec![world.events("t").await[0].id]));
}

async fn effects_are_all_or_nothing(kind: StoreKind) {
    let world = World::running(kind).await;
    let (name, fields, indexes) = ("docs".parse().unwrap(), Vec::new(), Vec::new());
    let declare = CollectionOp::Declare(Collection { name, keeping: Keeping::Durable, fields, indexes });
    world.store.commit(Batch::new().with(declare)).await.unwrap();
    let handler = async |lease: Lease| {
        let put = DocPut {
            collection: "docs".parse().unwrap(),
            key: lease.event.offset.to_string(),
            ts: 0,
            version: None,
            body: "{}".to_owned(),
            expect: Expect::Any,
            replaces: Replaces::Unknown,
        };
        let mut last = Publish::new(topic("out"), "2");
        if lease.event.offset == Offset(0) {
            // The topic does not exist, so the whole batch is refused each time.
            last = last.expected_offset(Offset(7));
        }
        let effects = Effects::none().publish(Publish::new(topic("out"), "1")).publish(last);
        Ok::<_, Nack>(effects.document(DocOp::Put(put)))
    };
    let options = ExactlyOnce::default();
    let once = world.bus.transform_exactly_once(request("t", "g", 2), options, handler).await.unwrap();
    publish(&world, "t", 2).await;
    caught_up(&world).await;
    assert!(once.last_failure().unwrap().contains("not 7"));
    once.stop().await.unwrap();
    let ids: Vec<_> = world.events("out").await.iter().map(|event| event.id).collect();
    let input = world.events("t").await[1].id;
    let produced = |n| produced_id(&group("g"), &topic("t"), &input, n);
    assert_eq!(ids, [produced(0), produced(1)]);
    let doc = async |key: &str| world.store.doc(&"docs".parse().unwrap(), key).await.unwrap().is_some();
    assert_eq!((doc("0").await, doc("1").await), (false, true));
    let dead: Vec<_> = letters(&world, "t", "g").await.iter().map(|letter| letter.offset).collect();
    assert_eq!(dead, [Offset(0)]);
}

async fn produced_ids_make_repeats_duplicates(kind: StoreKind) {
    let world = World::running(kind).await;
    let bus = world.bus.clone();
    let handler = move |lease: Lease| {
        let bus = bus.clone();
        async move {
            for n in 0..2 {
                let out = Publish::new(topic("out"), format!("[{},{n}]", lease.event.offset));
                bus.publish(out.id(lease.produced_id(n))).await?;
            }
            // The first time everything is done except the ack.
            if lease.attempt == 1 { Err(Nack::new("lost").after_ms(0)) } else { Ok(()) }
        }
    };
    let options = ConsumerOptions::default();
    let consumer = world.bus.consume(request("t", "g", 5), options, handler).await.unwrap();
    publish(&world, "t", 3).await;
    caught_up(&world).await;
    consumer.stop().await.unwrap();
    assert_eq!(world.events("out").await.len(), 6);
}

async fn bad_options_are_refused(kind: StoreKind) {
    let world = World::running(kind).await;
    let handler = async |_| Ok::<_, Nack>(Effects::none());
    let options = ExactlyOnce { ttl_ms: 0, ..ExactlyOnce::default() };
    let refused = world.bus.transform_exactly_once(request("t", "g", 5), options, handler).await;
    assert_eq!(refused.unwrap_err().code(), "bad_option");
}
