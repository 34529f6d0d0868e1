//! Requests that two servers could understand differently.

use super::client::raw;
use crate::suite::world::World;

/// Statuses of all answers on one connection.
async fn statuses(world: &World, request: &str) -> Vec<u16> {
    let answer = raw(world.address(), request.as_bytes()).await;
    let heads = answer.split("HTTP/1.").skip(1);
    heads.map(|head| head[2..5].parse().unwrap()).collect()
}

#[tokio::test]
async fn nothing_is_smuggled() {
    let world = World::new().await;
    let hidden = "POST /publish/smuggled HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n1";
    let body = hidden.len();
    for (name, request, expected) in [
        ("two lengths", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n1{hidden}"), vec![400]),
        ("a list of lengths", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1, 2\r\n\r\n1{hidden}"), vec![400]),
        ("a signed length", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: +1\r\n\r\n1{hidden}"), vec![400]),
        ("a negative length", "POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n1".to_owned(), vec![400]),
        ("an odd encoding", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n1{hidden}"), vec![400]),
        ("chunked not last", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, gzip\r\n\r\n1{hidden}"), vec![400]),
        ("space before colon", format!("POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length : {body}\r\n\r\n{hidden}"), vec![400]),
        ("a folded header", "GET /health HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n c: d\r\n\r\n".to_owned(), vec![400]),
        ("a bad chunk size", "POST /publish/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n1\r\n0\r\n\r\n".to_owned(), vec![400]),
        ("a huge chunk size", "POST /publish/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n1\r\n0\r\n\r\n".to_owned(), vec![400]),
        ("no host", "GET /health HTTP/1.1\r\n\r\n".to_owned(), vec![400]),
        ("two hosts", "GET /health HTTP/1.1\r\nhost: localhost\r\nhost: y\r\n\r\n".to_owned(), vec![400]),
        ("no method", "/health HTTP/1.1\r\n\r\n".to_owned(), vec![400]),
        ("another protocol", "GET /health SMTP/1.1\r\n\r\n".to_owned(), vec![400]),
        ("a null in the path", "GET /he\0alth HTTP/1.1\r\n\r\n".to_owned(), vec![400]),
        ("a null in a header", "GET /health HTTP/1.1\r\nx-a: b\0c\r\n\r\n".to_owned(), vec![400]),
    ] {
        assert_eq!(statuses(&world, &request).await, expected, "{name}");
    }
    // Length and chunks: the chunks count, and nothing of the rest is read as another request.
    let both = format!(
        "POST /publish/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n{hidden}",
        11 + body
    );
    let answers = statuses(&world, &both).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    world.get("/topics/smuggled").await.refused(404, "unknown_topic");
    // The bytes after the body of a request are the next request.
    let two = "POST /publish/b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n1GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(statuses(&world, two).await, [200, 200]);
    world.get("/health").await.json(200);
    world.stop().await;
}

#[tokio::test]
async fn odd_but_allowed() {
    let world = World::new().await;
    for request in [
        "GET http://elsewhere/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /health HTTP/1.0\r\n\r\n",
        "\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /h%65alth?  HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let answers = statuses(&world, request).await;
        assert_eq!(answers.len(), 1, "{request}");
        assert!(matches!(answers[0], 200 | 400 | 403 | 404), "{request}: {answers:?}");
    }
    world.stop().await;
}
