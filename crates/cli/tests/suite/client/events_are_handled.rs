//! Events reach handlers and loops, in the ways that a group can be asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use promethean_client::{
    Client, DedupeStore, DeliveryOrder, EventFilter, EventToPublish, HandlerError, Lease, MarkName,
    MemoryDedupe, OpenLetter, ServerDedupe, StartFrom,
};
use promethean_testkit::until_some;
use serde::{Deserialize, Serialize};

use super::proxy::BadNetwork;
use super::{Reports, eventually, quick, server, until_lag};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    order: u64,
}

async fn publish(client: &Client, topic: &str, orders: std::ops::Range<u64>) {
    let events =
        orders.map(|order| EventToPublish::new(topic, &Order { order }).key(format!("k{}", order % 3)));
    client.publish_many(events).await.unwrap();
}

#[tokio::test]
async fn a_handler_gets_every_event_in_order_and_acks_it() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..500).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let consumer = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest).handle(move |lease| {
        noted.lock().unwrap().push(lease.payload.order);
        async { Ok(()) }
    });
    let consumer = consumer.await.unwrap();
    eventually("all are handled", || seen.lock().unwrap().len() == 500).await;
    consumer.close().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), (0..500).collect::<Vec<_>>());
    assert_eq!(client.admin().lag("t", "g").await.unwrap().lag, 0);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_failed_handler_gets_its_event_again_and_then_it_is_a_dead_letter() {
    let (_dir, server) = server();
    let reports = Reports::default();
    let client = reports.attach(Client::builder(&server.url())).build().unwrap();
    publish(&client, "t", 0..3).await;
    client.publish("t", "not an order").await.unwrap();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&attempts);
    let subscription = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest).max_attempts(2);
    let _consumer = subscription
        .handle(move |lease| {
            let (order, attempt) = (lease.payload.order, lease.attempt());
            noted.lock().unwrap().push((order, attempt));
            async move {
                match order {
                    1 => Err(HandlerError::new("no stock").after(Duration::from_millis(1))),
                    2 if attempt == 1 => panic!("a bug of the handler"),
                    _ => Ok(()),
                }
            }
        })
        .await
        .unwrap();
    let admin = client.admin();
    let letters: Vec<OpenLetter> = until_some("both events are dead letters", async || {
        let letters: Vec<_> = admin.dead_letters("t", "g").try_collect().await.unwrap();
        (letters.len() == 2).then_some(letters)
    })
    .await;
    assert_eq!(letters[0].event.as_ref().unwrap().payload["order"], 1);
    assert_eq!(letters[1].event.as_ref().unwrap().payload, "not an order");
    let mut attempts = attempts.lock().unwrap().clone();
    attempts.sort_unstable();
    assert_eq!(attempts, [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2)]);
    assert!(reports.codes().iter().all(|code| code == "handler_failed"), "{:?}", reports.codes());
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_loop_acks_by_hand_and_a_dropped_lease_comes_again() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..3).await;
    let subscription = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest);
    let mut leases = subscription.leases().await.unwrap();
    let first = leases.next().await.unwrap().unwrap();
    assert_eq!((first.payload.order, first.attempt(), first.is_held()), (0, 1, true));
    first.extend(Duration::from_secs(60)).await.unwrap();
    first.ack().await.unwrap();
    drop(leases.next().await.unwrap().unwrap());
    let third = leases.next().await.unwrap().unwrap();
    third.nack("later", Some(Duration::from_millis(300))).await.unwrap();
    let mut again = Vec::new();
    while again.len() < 2 {
        let lease = StreamExt::next(&mut leases).await.unwrap().unwrap();
        again.push((lease.payload.order, lease.attempt()));
        lease.ack().await.unwrap();
    }
    again.sort_unstable();
    assert_eq!(again, [(1, 2), (2, 2)]);
    leases.close().await.unwrap();
    assert!(leases.next().await.is_none());
    client.close().await.unwrap();
}

#[tokio::test]
async fn events_that_are_not_taken_are_given_back_without_an_attempt() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..10).await;
    let subscription = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest);
    let mut leases = subscription.leases().await.unwrap();
    leases.next().await.unwrap().unwrap().ack().await.unwrap();
    leases.close().await.unwrap();
    drop(leases);
    let mut leases = client.subscribe::<Order>("t", "g").leases().await.unwrap();
    for order in 1..10 {
        let lease = leases.next().await.unwrap().unwrap();
        assert_eq!((lease.payload.order, lease.attempt()), (order, 1));
        lease.ack().await.unwrap();
    }
    drop(leases);
    client.close().await.unwrap();
}

#[tokio::test]
async fn pull_pause_and_seek() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..10).await;
    let mut pull = client.subscribe::<Order>("t", "p").from(StartFrom::Earliest).pull().await.unwrap();
    let few = pull.fetch(4, Duration::from_secs(5)).await.unwrap();
    assert_eq!(few.iter().map(|lease| lease.payload.order).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for lease in few {
        lease.ack().await.unwrap();
    }
    for lease in pull.fetch(100, Duration::from_secs(5)).await.unwrap() {
        lease.ack().await.unwrap();
    }
    assert!(pull.fetch(1, Duration::from_millis(10)).await.unwrap().is_empty());
    let tried = pull.try_seek(StartFrom::Offset(8)).await.unwrap();
    assert_eq!((tried.from, tried.to, tried.replayed, tried.applied), (10, 8, 2, false));
    assert_eq!(pull.seek(StartFrom::Offset(8)).await.unwrap().replayed, 2);
    let again = pull.fetch(5, Duration::from_secs(5)).await.unwrap();
    assert_eq!(again[0].payload.order, 8);
    drop(again);
    pull.pause().await.unwrap();
    assert!(pull.fetch(1, Duration::from_millis(50)).await.unwrap().is_empty());
    pull.resume().await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn patterns_filters_and_key_order() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "a.x", 0..30).await;
    publish(&client, "a.y", 30..60).await;
    let subscription = client.subscribe::<Order>("a.*", "g").from(StartFrom::Earliest);
    let subscription = subscription.filter(EventFilter::default().key("k1"));
    let mut leases = subscription.order(DeliveryOrder::Key).leases().await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let lease = leases.next().await.unwrap().unwrap();
        assert_eq!(lease.key.as_deref(), Some("k1"));
        seen.push((lease.topic.to_string(), lease.payload.order));
        lease.ack().await.unwrap();
    }
    let is_sorted = |topic: &str| seen.iter().filter(|(of, _)| of == topic).is_sorted();
    assert!(is_sorted("a.x") && is_sorted("a.y"), "{seen:?}");
    drop(leases);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_filter_passes_events_by_key_prefix_header_and_tag() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let events = ["eu:1", "eu:2", "us:1", "us:2"].into_iter().zip(0..).map(|(key, order)| {
        let (region, number) = key.split_once(':').unwrap();
        EventToPublish::new("t", &Order { order })
            .key(key)
            .header("x-region", region)
            .tag(format!("n{number}"))
    });
    client.publish_many(events).await.unwrap();
    let all = EventFilter::default;
    let filters = [
        ("all", all(), vec![0, 1, 2, 3]),
        ("key", all().key("us:1"), vec![2]),
        ("keys", all().key("us:1").key("eu:2"), vec![1, 2]),
        ("prefix", all().key_prefix("eu:"), vec![0, 1]),
        ("header", all().header("x-region", "us"), vec![2, 3]),
        ("headers", all().header("x-region", "us").header("x-region", "eu"), vec![0, 1, 2, 3]),
        ("tag", all().tag("n1"), vec![0, 2]),
        ("both", all().header("x-region", "us").tag("n1"), vec![2]),
    ];
    for (group, filter, expected) in filters {
        let subscription = client.subscribe::<Order>("t", group).from(StartFrom::Earliest).filter(filter);
        let mut leases = subscription.leases().await.unwrap_or_else(|error| panic!("{group}: {error}"));
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let lease = leases.next().await.unwrap().unwrap();
            seen.push(lease.payload.order);
            lease.ack().await.unwrap();
        }
        assert_eq!(seen, expected, "{group}");
        until_lag(&client, "t", group, 0).await;
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn partitions_move_and_members_are_told() {
    let (_dir, server) = server();
    let (one, two) = (Client::new(&server.url()).unwrap(), Client::new(&server.url()).unwrap());
    let changes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&changes);
    let handled = Arc::new(Mutex::new(Vec::new()));
    let handler = |name: &'static str| {
        let handled = Arc::clone(&handled);
        move |lease: Lease<Order>| {
            let key = lease.key.clone().unwrap();
            handled.lock().unwrap().push((name, key, lease.payload.order));
            async { Ok(()) }
        }
    };
    let subscription = one.subscribe::<Order>("t", "g").partitions(4, "one");
    let first = subscription.on_partitions(move |change| noted.lock().unwrap().push(change));
    let _first = first.handle(handler("one")).await.unwrap();
    eventually("the first member has all", || {
        changes.lock().unwrap().iter().any(|change| change.assigned == [0, 1, 2, 3])
    })
    .await;
    let second = two.subscribe::<Order>("t", "g").partitions(4, "two").handle(handler("two")).await.unwrap();
    eventually("the first member loses some", || {
        changes.lock().unwrap().iter().any(|change| !change.revoked.is_empty())
    })
    .await;
    let publish = async |orders: std::ops::Range<u64>| {
        let events =
            orders.map(|order| EventToPublish::new("t", &Order { order }).key(format!("k{}", order % 20)));
        one.publish_many(events).await.unwrap();
        until_lag(&one, "t", "g", 0).await;
        std::mem::take(&mut *handled.lock().unwrap())
    };
    let both = publish(0..200).await;
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for (member, key, _) in &both {
        assert_eq!(owners.entry(key.clone()).or_insert(member), member, "two members had {key}");
    }
    let mut orders: Vec<_> = both.iter().map(|(_, _, order)| *order).collect();
    orders.sort_unstable();
    assert_eq!(orders, (0..200).collect::<Vec<_>>());
    assert!(owners.values().any(|owner| *owner == "one") && owners.values().any(|owner| *owner == "two"));
    second.close().await.unwrap();
    let alone = publish(200..240).await;
    assert_eq!(alone.len(), 40);
    assert!(alone.iter().all(|(member, _, _)| *member == "one"), "{alone:?}");
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test]
async fn handlers_run_at_the_same_time_up_to_the_bound() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..40).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicUsize::new(0));
    let (n, m, d) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&done));
    let subscription = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest).concurrency(4);
    let _consumer = subscription
        .handle(move |_| {
            let (n, m, d) = (Arc::clone(&n), Arc::clone(&m), Arc::clone(&d));
            async move {
                m.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                n.fetch_sub(1, Ordering::SeqCst);
                d.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .await
        .unwrap();
    eventually("all are handled", || done.load(Ordering::SeqCst) == 40).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    client.close().await.unwrap();
}

#[tokio::test]
async fn marked_events_are_passed_over() {
    let (_dir, server) = server();
    let client = quick(&server.url()).build().unwrap();
    publish(&client, "t", 0..5).await;
    for store in ["server", "memory"] {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let subscription = client.subscribe::<Order>("t", store).from(StartFrom::Earliest);
        let handler = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        };
        let consumer = match store {
            "server" => subscription.handle_once(ServerDedupe::new(&client), handler).await.unwrap(),
            _ => subscription.handle_once(MemoryDedupe::default(), handler).await.unwrap(),
        };
        eventually("all are handled", || count.load(Ordering::SeqCst) >= 5).await;
        until_lag(&client, "t", store, 0).await;
        consumer.seek(StartFrom::Earliest).await.unwrap();
        publish(&client, "t", 5..6).await;
        until_lag(&client, "t", store, 0).await;
        let handled = count.load(Ordering::SeqCst);
        assert!(handled >= 6, "{handled}");
        assert_eq!(handled, if store == "server" { 6 } else { 7 }, "only new events are handled");
        consumer.close().await.unwrap();
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn products_of_an_event_are_published_once() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "in", 0..20).await;
    let subscription = client.subscribe::<Order>("in", "g").from(StartFrom::Earliest);
    let consumer = subscription
        .transform(|lease| {
            let products = [EventToPublish::new("out", &lease.payload), EventToPublish::new("audit", &1)];
            async { Ok(products.into()) }
        })
        .await
        .unwrap();
    until_lag(&client, "in", "g", 0).await;
    consumer.seek(StartFrom::Earliest).await.unwrap();
    until_lag(&client, "in", "g", 0).await;
    let out: Vec<_> =
        client.reader().replay::<Order>("out", StartFrom::Earliest, 100).try_collect().await.unwrap();
    assert_eq!(out.iter().map(|event| event.payload.order).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert_eq!(out[0].caused_by.len(), 1);
    assert_eq!(client.reader().end("audit").await.unwrap(), 20);
    client.close().await.unwrap();
}

/// A store that does the work and the mark together.
#[derive(Default)]
struct OwnStore(Mutex<Vec<String>>);

#[async_trait]
impl DedupeStore for OwnStore {
    async fn seen(&self, _: &MarkName) -> Result<bool, HandlerError> {
        panic!("`once` takes the place of `seen`")
    }

    async fn mark(&self, _: &MarkName, _: Duration) -> Result<(), HandlerError> {
        panic!("`once` takes the place of `mark`")
    }

    async fn once(
        &self,
        name: &MarkName,
        _: Duration,
        work: BoxFuture<'static, Result<(), HandlerError>>,
    ) -> Result<(), HandlerError> {
        let id = name.id.to_string();
        if !self.0.lock().unwrap().contains(&id) {
            work.await?;
            self.0.lock().unwrap().push(id);
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_store_may_do_the_work_and_the_mark_together() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    publish(&client, "t", 0..5).await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let subscription = client.subscribe::<Order>("t", "g").from(StartFrom::Earliest);
    let consumer = subscription
        .handle_once(OwnStore::default(), move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
        .await
        .unwrap();
    until_lag(&client, "t", "g", 0).await;
    consumer.seek(StartFrom::Earliest).await.unwrap();
    until_lag(&client, "t", "g", 0).await;
    assert_eq!(count.load(Ordering::SeqCst), 5);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_payload_whose_type_panics_is_given_back_and_others_are_handled() {
    #[derive(Debug)]
    struct Touchy(u64);

    impl<'de> Deserialize<'de> for Touchy {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let Order { order } = Order::deserialize(deserializer)?;
            assert!(order != 1, "a bug of the type");
            Ok(Self(order))
        }
    }

    let (_dir, server) = server();
    let client = Client::builder(&server.url()).on_error(|_| {}).build().unwrap();
    publish(&client, "t", 0..3).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let subscription = client.subscribe::<Touchy>("t", "g").from(StartFrom::Earliest).max_attempts(1);
    let _consumer = subscription
        .handle(move |lease| {
            noted.lock().unwrap().push(lease.payload.0);
            async { Ok(()) }
        })
        .await
        .unwrap();
    eventually("the others are handled", || *seen.lock().unwrap() == [0, 2]).await;
    until_lag(&client, "t", "g", 0).await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_pause_lasts_over_a_lost_connection() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    let client = quick(&network.url()).build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut consumers = Vec::new();
    for group in ["paused", "other"] {
        let noted = Arc::clone(&seen);
        let consumer = client.subscribe::<Order>("t", group).from(StartFrom::Earliest).handle(move |_| {
            noted.lock().unwrap().push(group);
            async { Ok(()) }
        });
        consumers.push(consumer.await.unwrap());
    }
    consumers[0].pause().await.unwrap();
    network.cut_once().await;
    client.connect().await.unwrap();
    publish(&client, "t", 0..1).await;
    eventually("the other group goes on", || !seen.lock().unwrap().is_empty()).await;
    until_lag(&client, "t", "other", 0).await;
    assert_eq!(*seen.lock().unwrap(), ["other"]);
    consumers[0].resume().await.unwrap();
    eventually("the pause is over", || seen.lock().unwrap().len() == 2).await;
    client.close().await.unwrap();
}
