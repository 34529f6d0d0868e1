//! Closing ends in time, whatever handlers do, and handlers that run may finish their work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use promethean_client::{Client, EventToPublish, HandlerError, StartFrom};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};

use super::proxy::{BadNetwork, Weather};
use super::{eventually, quick, server};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_client_closes_in_time_though_a_handler_hangs() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    client.publish("t", &1).await.unwrap();
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let _consumer = subscription
        .handle(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<(), HandlerError>>()
        })
        .await
        .unwrap();
    eventually("the handler runs", || started.load(Ordering::SeqCst) == 1).await;
    let closing = tokio::time::timeout(LONG, client.close_within(Duration::from_millis(200)));
    assert_eq!(closing.await.expect("close hangs").unwrap_err().code(), "timeout");
    let other = Client::new(&server.url()).unwrap();
    let mut leases = other.subscribe::<u64>("t", "g").leases().await.unwrap();
    assert_eq!(leases.next().await.unwrap().unwrap().attempt(), 1, "its event was given back");
    drop(leases);
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_awaits_close_is_told_so() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    client.publish("t", &1).await.unwrap();
    let (errors, mut seen) = mpsc::channel(1);
    let closed = client.clone();
    let subscription = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest);
    let _consumer = subscription
        .handle(move |_| {
            let (client, errors) = (closed.clone(), errors.clone());
            async move {
                let error = client.close().await.unwrap_err();
                errors.send(error).await?;
                Ok(())
            }
        })
        .await
        .unwrap();
    let error = tokio::time::timeout(LONG, seen.recv()).await.expect("close hangs").unwrap();
    assert_eq!(error.code(), "bad_use");
    assert!(error.message().contains("tokio::spawn"), "{error}");
    client.close().await.unwrap();
}

#[tokio::test]
async fn handlers_that_run_may_publish_while_the_client_closes() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    client.publish("in", &1).await.unwrap();
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (Arc::clone(&gate), Arc::clone(&started));
    let subscription = client.subscribe::<u64>("in", "g").from(StartFrom::Earliest).max_attempts(1);
    let _consumer = subscription
        .transform(move |lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (gate, product) = (Arc::clone(&opened), EventToPublish::new("out", &lease.payload));
            async move {
                gate.acquire().await?.forget();
                Ok(vec![product])
            }
        })
        .await
        .unwrap();
    eventually("the handler runs", || started.load(Ordering::SeqCst) == 1).await;
    let (closed, ()) = tokio::join!(client.close(), async { gate.add_permits(1) });
    closed.unwrap();
    let other = Client::new(&server.url()).unwrap();
    assert_eq!(other.reader().end("out").await.unwrap(), 1);
    assert_eq!(other.admin().lag("in", "g").await.unwrap().lag, 0);
    let letters: Vec<_> = other.admin().dead_letters("in", "g").try_collect().await.unwrap();
    assert!(letters.is_empty(), "{letters:?}");
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_subscribing_call_that_is_dropped_leaves_no_subscription() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    let client = quick(&network.url()).build().unwrap();
    client.connect().await.unwrap();
    network.set(Weather::BlackHole);
    let handling = client.subscribe::<Value>("t", "g").handle(|_| async { Ok(()) });
    tokio::select! {
        _ = handling => panic!("no answer can come"),
        () = eventually("the subscription is on its way", || network.swallowed() > 0) => {}
    }
    network.cut_once().await;
    client.connect().await.unwrap();
    let leases = client.subscribe::<Value>("t", "g").leases().await.unwrap();
    let members = client.admin().group("t", "g").await.unwrap().topics[0].members;
    assert_eq!(members, 1);
    drop(leases);
    client.close().await.unwrap();
}
