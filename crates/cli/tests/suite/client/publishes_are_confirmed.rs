//! Publishes are answered in order, in batches too, and once whatever the network does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use promethean_client::{Client, ConnectionState, EventToPublish, StartFrom, TypedEvent};
use promethean_testkit::until;

use super::proxy::{BadNetwork, Weather};
use super::{eventually, quick, server};

async fn all(client: &Client, topic: &str) -> Vec<TypedEvent<u64>> {
    client.reader().replay(topic, StartFrom::Earliest, 500).try_collect().await.unwrap()
}

#[tokio::test]
async fn pipelined_publishes_keep_their_order_and_give_their_offsets() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let mut sent = Vec::new();
    for n in 0..2_000_u64 {
        client.room().await;
        sent.push(client.publish("t", &n).send().unwrap());
    }
    let receipts = try_join_all(sent).await.unwrap();
    let offsets: Vec<u64> = receipts.iter().map(|receipt| receipt.offset).collect();
    assert_eq!(offsets, (0..2_000).collect::<Vec<_>>());
    let events = all(&client, "t").await;
    assert!(events.iter().enumerate().all(|(n, event)| event.payload == n as u64));
    assert!(events.iter().zip(&receipts).all(|(event, receipt)| event.id == receipt.id));
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_is_one_commit_and_options_arrive() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let cause = client.publish("a", &1).key("k").header("x-h", "v").tag("w").sid("s").ts(5).await.unwrap();
    assert_eq!(cause.ts, 5);
    let events = [EventToPublish::new("b", &2).caused_by(cause.id), EventToPublish::new("c", &3)];
    let batch = client.publish_many(events).await.unwrap();
    assert_eq!((batch.count, batch.ids.len(), batch.duplicates), (2, 2, 0));
    let event = all(&client, "a").await.remove(0);
    assert_eq!((event.key.as_deref(), event.headers["x-h"].as_str()), (Some("k"), "v"));
    assert_eq!((event.tags, event.sid.as_deref()), (vec!["w".to_owned()], Some("s")));
    assert_eq!(all(&client, "b").await[0].caused_by, [cause.id]);
    let again = client.publish("a", &1).id(cause.id).key("k").await.unwrap();
    assert!(again.is_duplicate && again.offset == cause.offset);
    let error = client.publish("a", &2).id(cause.id).await.unwrap_err();
    assert_eq!(
        (error.code(), error.is_retryable(), error.has_no_side_effects()),
        ("id_conflict", false, true)
    );
    let error = client.publish("a", &1).expected_offset(9).await.unwrap_err();
    assert_eq!(error.code(), "conflict");
    client.publish("a", &1).key("new").expected_key_offset(None).await.unwrap();
    assert_eq!(client.publish_many([]).await.unwrap_err().code(), "bad_request");
    client.close().await.unwrap();
}

#[tokio::test]
async fn lost_answers_are_asked_for_again_and_nothing_is_doubled() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    let client = quick(&network.url()).build().unwrap();
    let direct = Client::new(&server.url()).unwrap();
    for round in 0..6_u64 {
        client.connect().await.unwrap();
        if round % 2 == 0 {
            // The frames arrive, and their answers do not.
            network.set(Weather::HalfClosed);
        }
        let sent: Vec<_> = (0..50).map(|n| client.publish("t", &(round * 50 + n)).send().unwrap()).collect();
        if round % 2 == 1 {
            network.set(Weather::BlackHole);
        }
        let swallowed = network.swallowed();
        let cut = async {
            if round % 2 == 0 {
                until("some frames arrive", async || direct.reader().end("t").await.unwrap() > round * 50)
                    .await;
            } else {
                eventually("something vanishes", || network.swallowed() > swallowed).await;
            }
            network.cut_once().await;
        };
        let (receipts, ()) = tokio::join!(try_join_all(sent), cut);
        assert_eq!(receipts.unwrap().len(), 50);
    }
    let mut payloads: Vec<u64> = all(&direct, "t").await.iter().map(|event| event.payload).collect();
    assert_eq!(payloads.len(), 300, "each event once");
    payloads.sort_unstable();
    assert_eq!(payloads, (0..300).collect::<Vec<_>>());
    client.close().await.unwrap();
    direct.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_rarely_and_publishes_wait_within_bounds() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    network.set(Weather::Cut);
    let client = Client::builder(&network.url()).max_queued(10, 1 << 20).build().unwrap();
    let sent: Vec<_> = (0..10).map(|n| client.publish("t", &n).send().unwrap()).collect();
    let error = client.publish("t", &0).send().unwrap_err();
    assert_eq!(
        (error.code(), error.is_retryable(), error.has_no_side_effects()),
        ("outbox_full", true, true)
    );
    let error = client.connect_within(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((error.code(), client.state()), ("unreachable", ConnectionState::Connecting));
    let tries = network.accepted.load(Ordering::SeqCst);
    assert!((2..=8).contains(&tries), "{tries} tries in 2 s");
    // The time of a publish counts while it waits for a place in the queue.
    let error = client.publish("t", &10).timeout(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.code(), error.has_no_side_effects()), ("timeout", true));
    assert!(error.details()["id"].is_string(), "{error:?}");
    let (waited, ()) = tokio::join!(client.publish("t", &11), async { network.set(Weather::Fair) });
    assert_eq!(waited.unwrap().offset, 10, "it waited for a place, and came after the others");
    assert_eq!(try_join_all(sent).await.unwrap().len(), 10);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_publish_is_given_up_with_its_id() {
    let (_dir, server) = server();
    let network = BadNetwork::before(server.address().parse().unwrap()).await;
    let client = quick(&network.url()).build().unwrap();
    client.connect().await.unwrap();
    network.set(Weather::BlackHole);
    let error = client.publish("t", &1).timeout(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.has_no_side_effects()), ("timeout", true, false));
    let id = error.details()["id"].as_str().unwrap().parse().unwrap();
    network.cut_once().await;
    let receipt = client.publish("t", &1).id(id).await.unwrap();
    assert_eq!(receipt.offset, 0);
    eventually("the client has nothing to do", || client.pending_publishes() == 0).await;
    client.close().await.unwrap();
}
