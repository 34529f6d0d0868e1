//! A consumer runs a handler for every event, and acks the event after it.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use promethean_bus::subscription::{MemberOptions, Subscribe};
use promethean_bus::{ConsumerOptions, Lease, Nack};
use promethean_model::Offset;
use tokio::sync::{Barrier, Notify, Semaphore, mpsc};

use promethean_testkit::{StoreKind, World, group, on_both_stores, starts_waiting, topic};

use super::bus::harness::take;
use super::letter_support::{letters, publish, request};

on_both_stores!(
    handled_events_are_acked,
    a_failed_event_is_retried_and_the_cursor_waits,
    a_panic_is_a_failure_of_its_event_alone,
    stop_finishes_what_runs_and_gives_the_rest_back,
    stop_under_load_loses_and_repeats_nothing,
    closing_the_bus_lets_handlers_finish,
    a_lease_begins_with_its_handler,
    a_handler_may_ack_by_itself,
    handlers_run_at_the_same_time,
    dropping_the_consumer_stops_it,
    a_consumer_ends_with_its_topic,
    bad_options_are_refused,
);

fn options(concurrency: usize) -> ConsumerOptions {
    ConsumerOptions { concurrency, ..ConsumerOptions::default() }
}

async fn floor(world: &World) -> (Offset, u64) {
    let progress = world.bus.group(&topic("t"), &group("g")).await.unwrap();
    (progress.floor, progress.lag)
}

async fn handled_events_are_acked(kind: StoreKind) {
    let world = World::running(kind).await;
    let (told, mut heard) = mpsc::channel(100);
    let handler = move |lease: Lease| {
        let told = told.clone();
        async move {
            told.send((lease.event.offset.get(), lease.attempt)).await.unwrap();
            Ok::<_, Nack>(())
        }
    };
    let consumer = world.bus.consume(request("t", "g", 5), options(1), handler).await.unwrap();
    publish(&world, "t", 10).await;
    for n in 0..10 {
        assert_eq!(heard.recv().await, Some((n, 1)));
    }
    consumer.stop().await.unwrap();
    assert_eq!(floor(&world).await, (Offset(10), 0));
    assert_eq!(heard.recv().await, None, "the handler is gone with its consumer");
}

async fn a_failed_event_is_retried_and_the_cursor_waits(kind: StoreKind) {
    let world = World::running(kind).await;
    let (told, mut heard) = mpsc::channel(100);
    let go_on = Arc::new(Semaphore::new(0));
    let gate = go_on.clone();
    let handler = move |lease: Lease| {
        let (told, gate) = (told.clone(), gate.clone());
        async move {
            told.send((lease.event.offset.get(), lease.attempt)).await.unwrap();
            if lease.event.offset == Offset(0) && lease.attempt < 3 {
                let nack = Nack::new("not yet");
                // First after the server's backoff, then after a delay of the handler.
                return Err(if lease.attempt == 1 { nack } else { nack.after_ms(1) });
            }
            if lease.event.offset == Offset(0) {
                gate.acquire().await?.forget();
            }
            Ok(())
        }
    };
    let consumer = world.bus.consume(request("t", "g", 5), options(2), handler).await.unwrap();
    publish(&world, "t", 2).await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(heard.recv().await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1), (0, 2), (0, 3), (1, 1)]);
    assert_eq!(floor(&world).await.0, Offset(0));
    assert_eq!(consumer.last_failure().as_deref(), Some("not yet"));
    go_on.add_permits(1);
    consumer.stop().await.unwrap();
    assert_eq!(floor(&world).await, (Offset(2), 0));
}

async fn a_panic_is_a_failure_of_its_event_alone(kind: StoreKind) {
    let world = World::running(kind).await;
    let (told, mut heard) = mpsc::channel(100);
    let handler = move |lease: Lease| {
        // The handler may panic before it returns a future, too.
        assert!(lease.event.offset != Offset(1), "cannot handle this");
        let told = told.clone();
        async move {
            assert!(lease.event.offset != Offset(2), "nor {}", lease.event.offset);
            told.send(lease.event.offset.get()).await.unwrap();
            Ok::<_, Nack>(())
        }
    };
    let consumer = world.bus.consume(request("t", "g", 1), options(1), handler).await.unwrap();
    publish(&world, "t", 4).await;
    assert_eq!((heard.recv().await, heard.recv().await), (Some(0), Some(3)));
    let why = consumer.last_failure().unwrap();
    assert_eq!(why, "the handler panicked: nor 2");
    consumer.stop().await.unwrap();
    let dead: Vec<_> = letters(&world, "t", "g").await.iter().map(|letter| letter.offset).collect();
    assert_eq!(dead, [Offset(1), Offset(2)]);
    assert_eq!(floor(&world).await, (Offset(4), 0));
}

async fn stop_finishes_what_runs_and_gives_the_rest_back(kind: StoreKind) {
    let world = World::running(kind).await;
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, gate) = (began.clone(), go_on.clone());
    let handler = move |_| {
        let (begin, gate) = (begin.clone(), gate.clone());
        async move {
            begin.notify_one();
            gate.notified().await;
            Ok::<_, Nack>(())
        }
    };
    let consumer = world.bus.consume(request("t", "g", 5), options(1), handler).await.unwrap();
    publish(&world, "t", 5).await;
    began.notified().await;
    let mut stopping = pin!(consumer.stop());
    assert!(starts_waiting(stopping.as_mut()).await, "the handler still runs");
    assert_eq!(floor(&world).await.0, Offset(0));
    go_on.notify_one();
    assert_eq!(stopping.await, Ok(()));
    assert_eq!(floor(&world).await, (Offset(1), 4));
    let mut next = world.subscribe(request("t", "g", 5)).await;
    let given = take(&mut next, 4).await;
    let seen: Vec<_> = given.iter().map(|lease| (lease.event.offset.get(), lease.attempt)).collect();
    assert_eq!(seen, [(1, 1), (2, 1), (3, 1), (4, 1)]);
}

async fn stop_under_load_loses_and_repeats_nothing(kind: StoreKind) {
    let world = World::running(kind).await;
    let handled = Arc::new(Mutex::new(Vec::new()));
    publish(&world, "t", 600).await;
    for round in 1.. {
        let (told, mut heard) = mpsc::channel(1000);
        let note = handled.clone();
        let handler = move |lease: Lease| {
            let (note, told) = (note.clone(), told.clone());
            async move {
                tokio::task::yield_now().await;
                note.lock().unwrap().push((lease.event.offset.get(), lease.attempt));
                let _ = told.try_send(());
                Ok::<_, Nack>(())
            }
        };
        let consumer = world.bus.consume(request("t", "g", 5), options(8), handler).await.unwrap();
        let rest = 600 - handled.lock().unwrap().len();
        for _ in 0..rest.min(150) {
            heard.recv().await;
        }
        consumer.stop().await.unwrap();
        let done = handled.lock().unwrap().len();
        assert_eq!(floor(&world).await.1, 600 - done as u64, "round {round}");
        if done == 600 {
            break;
        }
    }
    let mut seen = handled.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..600).map(|offset| (offset, 1)).collect::<Vec<_>>());
}

async fn closing_the_bus_lets_handlers_finish(kind: StoreKind) {
    let world = World::running(kind).await;
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, gate, bus) = (began.clone(), go_on.clone(), world.bus.clone());
    let handler = move |_| {
        let (begin, gate, bus) = (begin.clone(), gate.clone(), bus.clone());
        async move {
            begin.notify_one();
            gate.notified().await;
            let event = promethean_bus::publish::Publish::new(topic("out"), "1");
            bus.publish(event).await.map(drop)
        }
    };
    let mut consumer = world.bus.consume(request("t", "g", 5), options(1), handler).await.unwrap();
    publish(&world, "t", 2).await;
    began.notified().await;
    let bus = world.bus.clone();
    let mut closing = pin!(bus.close());
    assert!(starts_waiting(closing.as_mut()).await, "the handler still runs");
    go_on.notify_one();
    closing.await;
    assert_eq!(consumer.ended().await, Ok(()));
    let world = world.restart().await;
    assert_eq!(floor(&world).await, (Offset(1), 1));
    assert_eq!(world.events("out").await.len(), 1);
}

async fn a_lease_begins_with_its_handler(kind: StoreKind) {
    let world = World::new(kind).await;
    let (told, mut heard) = mpsc::channel(100);
    let (bus, clock) = (world.bus.clone(), world.clock.clone());
    let handler = move |lease: Lease| {
        let (told, bus, clock) = (told.clone(), bus.clone(), clock.clone());
        async move {
            // The acks of the earlier events are durable, so that no lease of theirs runs out.
            while bus.group(&topic("t"), &group("g")).await?.floor < lease.event.offset {
                tokio::task::yield_now().await;
            }
            clock.advance(400);
            bus.wake();
            // The group has looked at the clock when it answers.
            bus.group(&topic("t"), &group("g")).await?;
            told.send((lease.event.offset.get(), lease.attempt)).await.unwrap();
            Ok::<_, Nack>(())
        }
    };
    let member = MemberOptions { ack_timeout_ms: 1000, ..MemberOptions::default() };
    let request = Subscribe { member, ..request("t", "g", 5) };
    publish(&world, "t", 5).await;
    let consumer = world.bus.consume(request, options(1), handler).await.unwrap();
    // The last event waits for its handler longer than its lease lasts.
    for n in 0..5 {
        assert_eq!(heard.recv().await, Some((n, 1)));
    }
    consumer.stop().await.unwrap();
    assert_eq!(floor(&world).await, (Offset(5), 0));
}

async fn a_handler_may_ack_by_itself(kind: StoreKind) {
    let world = World::running(kind).await;
    let (told, mut heard) = mpsc::channel(100);
    let handler = move |lease: Lease| {
        let told = told.clone();
        async move {
            told.send((lease.event.offset.get(), lease.attempt)).await.unwrap();
            // The second event is not acked the first time: its lease runs out.
            if lease.event.offset == Offset(0) || lease.attempt > 1 {
                lease.ack().await?;
            }
            Ok::<_, Nack>(())
        }
    };
    let member = MemberOptions { ack_timeout_ms: 1000, ..MemberOptions::default() };
    let request = Subscribe { member, ..request("t", "g", 5) };
    let options = ConsumerOptions { manual_ack: true, ..ConsumerOptions::default() };
    let consumer = world.bus.consume(request, options, handler).await.unwrap();
    publish(&world, "t", 2).await;
    for expected in [(0, 1), (1, 1)] {
        assert_eq!(heard.recv().await, Some(expected));
    }
    world.pass(1_001);
    assert_eq!(heard.recv().await, Some((1, 2)));
    consumer.stop().await.unwrap();
    assert_eq!(floor(&world).await, (Offset(2), 0));
}

async fn handlers_run_at_the_same_time(kind: StoreKind) {
    let world = World::running(kind).await;
    let (together, running) = (Arc::new(Barrier::new(4)), Arc::new(AtomicUsize::new(0)));
    let most = Arc::new(AtomicUsize::new(0));
    let (meet, now, peak) = (together.clone(), running.clone(), most.clone());
    let handler = move |_| {
        let (meet, now, peak) = (meet.clone(), now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            meet.wait().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Nack>(())
        }
    };
    let consumer = world.bus.consume(request("t", "g", 5), options(4), handler).await.unwrap();
    publish(&world, "t", 16).await;
    world.until("t", "g", |seen| seen.lag == 0).await;
    consumer.stop().await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

async fn dropping_the_consumer_stops_it(kind: StoreKind) {
    let world = World::running(kind).await;
    let handler = async |_| Ok::<_, Nack>(());
    let consumer = world.bus.consume(request("t", "g", 5), options(1), handler).await.unwrap();
    drop(consumer);
    world.until("t", "g", |seen| seen.members == 0).await;
    publish(&world, "t", 1).await;
    assert_eq!(floor(&world).await, (Offset(0), 1));
}

async fn a_consumer_ends_with_its_topic(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, "t", 1).await;
    let handler = async |_| Ok::<_, Nack>(());
    let mut consumer = world.bus.consume(request("t", "g", 5), options(1), handler).await.unwrap();
    world.until("t", "g", |seen| seen.lag == 0).await;
    world.bus.delete_topic(&topic("t")).await.unwrap();
    assert_eq!(consumer.ended().await.unwrap_err().code(), "topic_deleted");
}

async fn bad_options_are_refused(kind: StoreKind) {
    let world = World::running(kind).await;
    for concurrency in [0, 10_001] {
        let handler = async |_| Ok::<_, Nack>(());
        let refused = world.bus.consume(request("t", "g", 5), options(concurrency), handler).await;
        assert_eq!(refused.unwrap_err().code(), "bad_option");
    }
    world.bus.close().await;
    let handler = async |_| Ok::<_, Nack>(());
    let refused = world.bus.consume(request("t", "g", 5), options(1), handler).await;
    assert_eq!(refused.unwrap_err().code(), "closed");
}
