//! Leases last as long as their handlers, and end when they must.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promethean_client::{Client, HandlerError, StartFrom};
use tokio::sync::Semaphore;

use super::proxy::BadNetwork;
use super::{Reports, eventually, quick, real_time, server, until_lag};

/// Waits as a slow handler does.
async fn work(time: Duration) {
    real_time(time).await;
}

#[tokio::test]
async fn a_handler_longer_than_the_lease_keeps_it_and_so_do_events_that_wait() {
    let (_dir, server) = server();
    let reports = Reports::default();
    let client = reports.attach(Client::builder(&server.url())).build().unwrap();
    for n in 0..3 {
        client.publish("t", &n).await.unwrap();
    }
    let (deliveries, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, finished) = (Arc::clone(&deliveries), Arc::clone(&done));
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let consumer = subscription
        .ack_timeout(Duration::from_secs(1))
        .handle(move |lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            let finished = Arc::clone(&finished);
            async move {
                work(Duration::from_millis(1_500)).await;
                assert!(lease.is_held());
                finished.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .await
        .unwrap();
    eventually("all are handled", || done.load(Ordering::SeqCst) == 3).await;
    consumer.close().await.unwrap();
    assert_eq!(deliveries.load(Ordering::SeqCst), 3, "each was delivered once");
    assert_eq!(client.admin().lag("t", "g").await.unwrap().lag, 0);
    assert!(reports.codes().is_empty(), "{:?}", reports.codes());
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_handler_goes_on_over_a_lost_connection_and_is_not_started_twice() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    let client = quick(&network.url()).build().unwrap();
    let direct = Client::new(&server.url()).unwrap();
    for n in 0..2 {
        direct.publish("t", &n).await.unwrap();
    }
    let (starts, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, opened) = (Arc::clone(&starts), Arc::clone(&gate));
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).concurrency(2);
    let consumer = subscription
        .handle(move |lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            let opened = Arc::clone(&opened);
            async move {
                match lease.payload {
                    // The first event ends while there is no connection, the second afterwards.
                    0 => lease.lost().await,
                    _ => opened.acquire().await.map_err(HandlerError::from)?.forget(),
                }
                Ok(())
            }
        })
        .await
        .unwrap();
    eventually("both handlers run", || starts.load(Ordering::SeqCst) == 2).await;
    network.cut_once().await;
    client.connect().await.unwrap();
    // The first event is acked when it comes again.
    until_lag(&direct, "t", "g", 1).await;
    gate.add_permits(1);
    until_lag(&direct, "t", "g", 0).await;
    assert_eq!(starts.load(Ordering::SeqCst), 2);
    consumer.close().await.unwrap();
    client.close().await.unwrap();
    direct.close().await.unwrap();
}

#[tokio::test]
async fn an_ack_after_the_end_of_the_lease_is_refused() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    client.publish("t", &1).await.unwrap();
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let subscription = subscription.ack_timeout(Duration::from_secs(1)).without_auto_extend();
    let mut leases = subscription.leases().await.unwrap();
    let first = leases.next().await.unwrap().unwrap();
    let second = leases.next().await.unwrap().unwrap();
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert!(!first.is_held());
    let error = first.ack().await.unwrap_err();
    assert_eq!((error.code(), error.has_no_side_effects()), ("lease_lost", true));
    second.ack().await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn closing_waits_for_handlers_sends_their_acks_and_gives_the_rest_back() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    for n in 0..10 {
        client.publish("t", &n).await.unwrap();
    }
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let _consumer = subscription
        .handle(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                work(Duration::from_millis(300)).await;
                Ok(())
            }
        })
        .await
        .unwrap();
    eventually("a handler runs", || started.load(Ordering::SeqCst) == 1).await;
    let pending = client.publish("t", &10).send().unwrap();
    client.close().await.unwrap();
    pending.await.unwrap();
    let error = client.publish("t", &0).await.unwrap_err();
    assert_eq!(error.code(), "client_closed");
    let client = Client::new(&server.url()).unwrap();
    let handled = started.load(Ordering::SeqCst) as u64;
    assert_eq!(client.admin().group("t", "g").await.unwrap().topics[0].floor, handled);
    let mut leases = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    let next = leases.next().await.unwrap().unwrap();
    assert_eq!((next.payload, next.attempt()), (handled, 1));
    next.ack().await.unwrap();
    drop(leases);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_left_behind_after_the_limit() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    client.publish("t", &1).await.unwrap();
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let consumer = subscription
        .handle(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                work(Duration::from_secs(2)).await;
                Ok(())
            }
        })
        .await
        .unwrap();
    eventually("the handler runs", || started.load(Ordering::SeqCst) == 1).await;
    let error = consumer.close_within(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let other = Client::new(&server.url()).unwrap();
    let mut leases = other.subscribe::<u64>("t", "g").leases().await.unwrap();
    assert_eq!(leases.next().await.unwrap().unwrap().attempt(), 1, "it was given back, not failed");
    drop(leases);
    other.close().await.unwrap();
    client.close().await.unwrap();
}
