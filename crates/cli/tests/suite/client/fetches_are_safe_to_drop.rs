//! A `fetch` that is dropped, as `select!` does, loses no event and blocks no later `fetch`.

use std::pin::pin;
use std::time::Duration;

use promethean_client::{Client, StartFrom};
use promethean_testkit::{starts_waiting, until};

use super::server;

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_next_fetch_starts_when_the_dropped_one_is_answered() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).pull().await.unwrap();
    assert!(starts_waiting(pin!(leases.fetch(1, Duration::from_millis(300)))).await);
    let second = tokio::time::timeout(LONG, leases.fetch(1, Duration::from_millis(10)));
    assert!(second.await.expect("the second fetch hangs").unwrap().is_empty());
    assert!(starts_waiting(pin!(leases.fetch(1, LONG))).await);
    client.publish("t", &7).await.unwrap();
    let second = tokio::time::timeout(LONG, leases.fetch(1, LONG));
    let taken = second.await.expect("the second fetch hangs").unwrap();
    assert_eq!(taken[0].payload, 7);
    drop(taken);
    drop(leases);
    client.close().await.unwrap();
}

#[tokio::test]
async fn events_that_came_for_a_dropped_fetch_are_for_the_next() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).pull().await.unwrap();
    {
        let mut fetch = pin!(leases.fetch(5, LONG));
        assert!(starts_waiting(fetch.as_mut()).await);
        client.publish("t", &7).await.unwrap();
        let admin = client.admin();
        until("the event is delivered", async || {
            admin.group("t", "g").await.unwrap().topics[0].in_flight == 1
        })
        .await;
        // Frames come in order, so the delivery has arrived when this is answered. The fetch is not polled again.
        client.publish("other", &1).await.unwrap();
    }
    let taken =
        tokio::time::timeout(LONG, leases.fetch(5, Duration::from_millis(10))).await.unwrap().unwrap();
    assert_eq!(taken.iter().map(|lease| lease.payload).collect::<Vec<_>>(), [7]);
    for lease in taken {
        lease.ack().await.unwrap();
    }
    drop(leases);
    client.close().await.unwrap();
}
