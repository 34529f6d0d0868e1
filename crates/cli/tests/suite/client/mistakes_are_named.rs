//! A user's mistakes have their own code and say what to do.

use std::collections::HashMap;
use std::time::Duration;

use promethean_client::{
    Client, ClientError, DedupeStore, EventId, MarkName, MemoryDedupe, ServerDedupe, StartFrom,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::running_server::RunningServer;
use super::server;

fn check(error: &ClientError, code: &str, says: &str) {
    assert_eq!(error.code(), code, "{error:?}");
    assert!(error.message().contains(says), "{error}");
    assert!(!error.is_retryable() && error.has_no_side_effects(), "{error:?}");
    assert!(!error.advice().starts_with("read the message"), "{error:?}");
}

#[tokio::test]
async fn a_url_that_is_none_or_that_names_another_server() {
    check(&Client::new("localhost:8090").unwrap_err(), "bad_url", "ws://127.0.0.1:8090");
    check(&Client::new("ws://h/?token=secret").unwrap_err(), "bad_url", "give the token as an option");
    for answer in ["HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello", "SSH-2.0-OpenSSH_9.6\r\n\r\n"]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let other_server = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        };
        tokio::select! {
            error = client.connect() => check(&error.unwrap_err(), "wrong_url", "is not a Promethean server"),
            () = other_server => {}
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&url).unwrap();
    let error = client.connect_within(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), ("unreachable", true));
    assert!(error.message().contains("check that the server runs there"), "{error}");
    let error = client.admin().health().await.unwrap_err();
    assert_eq!((error.code(), error.has_no_side_effects()), ("unreachable", true));
}

#[tokio::test]
async fn a_wrong_token_a_missing_token_and_a_missing_scope() {
    let dir = tempfile::tempdir().unwrap();
    let hash = super::super::promethean(dir.path(), &["token", "hash", "good"]);
    let text = format!(
        "[[auth.tokens]]\nname = \"n\"\nscopes = [\"publish:a.*\", \"subscribe:a.*\"]\nsha256 = \"{}\"\n",
        super::super::stdout(&hash).trim()
    );
    std::fs::write(dir.path().join("c.toml"), text).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = Client::builder(&server.url()).token("wrong").build().unwrap();
    check(&client.connect().await.unwrap_err(), "bad_token", "token");
    check(&client.publish("a.b", &1).await.unwrap_err(), "bad_token", "token");
    let client = Client::new(&server.url()).unwrap();
    check(&client.connect().await.unwrap_err(), "unauthorized", "token");
    let client = Client::builder(&server.url()).token("good").build().unwrap();
    client.publish("a.b", &1).await.unwrap();
    check(&client.publish("b", &1).await.unwrap_err(), "forbidden", "publish:b");
    let error = client.subscribe::<u64>("b", "g").leases().await.unwrap_err();
    check(&error, "forbidden", "subscribe:b");
    let error = client.subscribe::<u64>("b", "g").handle(|_| async { Ok(()) }).await.unwrap_err();
    check(&error, "forbidden", "subscribe:b");
    let once = client.subscribe::<u64>("b", "g").handle_once(MemoryDedupe::default(), |_| async { Ok(()) });
    check(&once.await.unwrap_err(), "forbidden", "subscribe:b");
    let transform = client.subscribe::<u64>("b", "g").transform(|_| async { Ok(Vec::new()) });
    check(&transform.await.unwrap_err(), "forbidden", "subscribe:b");
    let name = MarkName { topic: "b".to_owned(), group: "g".to_owned(), id: EventId::from_bytes([1; 16]) };
    let failure = ServerDedupe::new(&client).seen(&name).await.unwrap_err();
    assert!(failure.reason().contains("subscribe:b"), "{failure:?}");
    check(&client.admin().topic("b").await.unwrap_err(), "forbidden", "b");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_bad_topic_and_a_payload_that_cannot_be_json() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    check(&client.publish("No Spaces", &1).await.unwrap_err(), "bad_name", "topic name has");
    let error = client.subscribe::<u64>("a..b", "g").leases().await.unwrap_err();
    assert!(["bad_name", "bad_pattern"].contains(&error.code()), "{error:?}");
    let handled = client.subscribe::<u64>("a..b", "g").handle(|_| async { Ok(()) }).await.unwrap_err();
    assert_eq!(handled.code(), error.code());
    let keys_that_are_lists = HashMap::from([(vec![1], 1)]);
    check(&client.publish("t", &keys_that_are_lists).await.unwrap_err(), "bad_payload", "cannot be JSON");
    check(&client.publish("t", &1).key("k".repeat(2_000)).await.unwrap_err(), "key_too_large", "");
    client.publish("t", &1).await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn two_subscriptions_of_one_group_on_one_client() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let first = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    let error = client.subscribe::<u64>("t", "g").leases().await.unwrap_err();
    check(&error, "already_subscribed", "create a second client");
    drop(first);
    drop(client.subscribe::<u64>("t", "g").leases().await.unwrap());
    let error = client.subscribe::<u64>("t", "h").from(StartFrom::Offset(9)).leases().await.unwrap_err();
    check(&error, "beyond_end", "");
    client.close().await.unwrap();
}

#[tokio::test]
async fn calls_after_the_end() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").leases().await.unwrap();
    client.close().await.unwrap();
    check(&client.publish("t", &1).await.unwrap_err(), "client_closed", "create a new one");
    check(&client.publish_many([]).await.unwrap_err(), "bad_request", "at least one");
    let error = client.subscribe::<u64>("t", "g").leases().await.unwrap_err();
    check(&error, "client_closed", "create a new one");
    check(&client.connect().await.unwrap_err(), "client_closed", "create a new one");
    assert!(leases.next().await.is_none());
    client.close().await.unwrap();
}
