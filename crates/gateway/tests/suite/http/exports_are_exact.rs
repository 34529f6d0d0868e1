use std::io::Read;

use http_body_util::BodyExt;
use promethean_bus::publish::Publish;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, raw};
use crate::suite::world::{NOW, World};

/// Publishes `count` events, ten of each millisecond, in batches.
async fn fill(world: &World, count: usize) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(1000) {
        let event = |n: &usize| {
            let payload = format!("{{\"n\":{n}}}");
            Publish::new("a".parse().unwrap(), payload).ts(1000 + *n as i64 / 10).key(format!("k{}", n % 7))
        };
        world.bus.publish_batch(chunk.iter().map(event).collect()).await.unwrap();
    }
}

fn offsets(text: &str) -> Vec<u64> {
    let offset = |line: &str| serde_json::from_str::<Value>(line).unwrap()["offset"].as_u64().unwrap();
    text.lines().map(offset).collect()
}

#[tokio::test]
async fn an_export_is_exact_to_the_millisecond() {
    for world in [World::new().await, World::on_disk().await] {
        fill(&world, 100_000).await;
        let all = world.get("/export?topic=a").await;
        assert_eq!(all.headers["content-type"], "application/x-ndjson");
        assert_eq!(all.headers["x-next-offset"], "100000");
        assert_eq!(offsets(&all.text()), (0..100_000).collect::<Vec<_>>());
        let part = world.get("/export?topic=a&fromTs=1005&toTs=1006").await;
        assert_eq!(offsets(&part.text()), (50..70).collect::<Vec<_>>());
        let one = world.get("/export?topic=a&fromTs=1005&toTs=1005&fromOffset=57").await;
        assert_eq!(offsets(&one.text()), (57..60).collect::<Vec<_>>());
        assert_eq!(world.get("/export?topic=a&fromTs=9&toTs=8").await.text(), "");
        assert_eq!(world.get("/export?topic=none.such").await.text(), "");
        world.stop().await;
    }
}

#[tokio::test]
async fn events_out_of_the_order_of_time_are_found_and_the_future_is_left_out() {
    let world = World::new().await;
    for ts in [50, 10, 99, 20, NOW + 1] {
        world.publish(&format!("a?ts={ts}"), "1").await;
    }
    assert_eq!(offsets(&world.get("/export?topic=a&fromTs=10&toTs=50").await.text()), [0, 1, 3]);
    assert_eq!(offsets(&world.get("/export?topic=a").await.text()), [0, 1, 2, 3]);
    world.stop().await;
}

/// An export that goes on where the last one said it should, until nothing comes, has every event.
#[tokio::test]
async fn going_on_never_skips_an_event() {
    for world in [World::new().await, World::on_disk().await] {
        for ts in [NOW - 5, NOW + 1_000, NOW - 4] {
            world.publish(&format!("a?ts={ts}"), "1").await;
        }
        let export = async |query: &str| {
            let answer = world.get(&format!("/export?topic=a{query}")).await;
            let next: u64 = answer.headers["x-next-offset"].to_str().unwrap().parse().unwrap();
            (offsets(&answer.text()), next)
        };
        assert_eq!(export("").await, (vec![0, 2], 1));
        assert_eq!(export("&fromOffset=1").await, (vec![2], 1));
        assert_eq!(export("&fromOffset=2").await, (vec![2], 3), "the range has no such event");
        world.clock.advance(1_000);
        world.publish("a", "1").await;
        assert_eq!(export("&fromOffset=1").await, (vec![1, 2, 3], 4));
        // Also where the client says when.
        assert_eq!(export(&format!("&toTs={}", NOW - 5)).await, (vec![0], 1));
        assert_eq!(export(&format!("&toTs={}&fromOffset=2", NOW - 5)).await, (vec![], 2));
        assert_eq!(export(&format!("&toTs={}", i64::from(i32::MAX) * 100_000)).await, (vec![0, 1, 2, 3], 4));
        // A second event of the future after one that is passed over already.
        for ts in [NOW + 90_000, NOW, NOW + 80_000, NOW] {
            world.publish(&format!("a?ts={ts}"), "1").await;
        }
        assert_eq!(export("&fromOffset=4").await, (vec![5, 7], 4));
        assert_eq!(export("&fromOffset=5").await, (vec![5, 7], 6));
        assert_eq!(export("&fromOffset=7").await, (vec![7], 8));
        assert_eq!(export("&fromOffset=8").await, (vec![], 8));
        world.stop().await;
    }
}

#[tokio::test]
async fn an_array_is_whole_json() {
    let world = World::new().await;
    assert_eq!(world.get("/export?topic=a&ndjson=0").await.json(200), serde_json::json!([]));
    fill(&world, 5000).await;
    let array = world.get("/export?topic=a&ndjson=0&fromTs=1001").await.json(200);
    let array = array.as_array().unwrap();
    assert_eq!((array.len(), &array[0]["offset"], &array[0]["payload"]["n"]), (4990, &10.into(), &10.into()));
    world.stop().await;
}

#[tokio::test]
async fn an_export_goes_on_where_a_client_lost_it() {
    let world = World::on_disk().await;
    fill(&world, 50_000).await;
    let whole = world.get("/export?topic=a").await.text();
    let mut got = String::new();
    let mut breaks = 0;
    loop {
        let from = offsets(&got).last().map_or(0, |last| last + 1);
        let mut client = world.http().await;
        let path = format!("/export?topic=a&fromOffset={from}");
        let mut body = client.open("GET", &path, &[], "").await.into_body();
        let mut part = Vec::new();
        let done = loop {
            match body.frame().await {
                Some(frame) => part.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => break true,
            }
            if part.len() > 1 << 20 && breaks < 4 {
                break false;
            }
        };
        // The client goes away in the middle of a line.
        drop((client, body));
        let part = String::from_utf8(part).unwrap();
        let end = part.rfind('\n').map_or(0, |at| at + 1);
        got.push_str(&part[..end]);
        breaks += 1;
        if done {
            break;
        }
    }
    assert!(breaks > 2);
    assert!(got == whole, "{} of {} bytes", got.len(), whole.len());
    world.stop().await;
}

#[tokio::test]
async fn compressed_when_asked_and_understood() {
    let world = World::new().await;
    fill(&world, 20_000).await;
    let plain = world.get("/export?topic=a").await.text();
    let mut client = world.http().await;
    let gzip = [("accept-encoding", "br, gzip;q=0.5")];
    let packed = client.send("GET", "/export?topic=a&gzip=1", &gzip, "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < plain.len() / 4);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    assert!(text == plain);
    for (path, accept) in [
        ("/export?topic=a", "gzip"),
        ("/export?topic=a&gzip=1", "br"),
        ("/export?topic=a&gzip=1", "gzip;q=0"),
    ] {
        let answer = client.send("GET", path, &[("accept-encoding", accept)], "").await;
        assert!(!answer.headers.contains_key("content-encoding"));
        assert!(answer.text() == plain);
    }
    world.stop().await;
}

#[tokio::test]
async fn old_clients_read_until_the_end_and_http2_ones_too() {
    let world = World::new().await;
    fill(&world, 3000).await;
    let whole = world.get("/export?topic=a").await.text();
    let answer = raw(world.address(), b"GET /export?topic=a HTTP/1.0\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert!(body == whole);
    let mut client = Client::http2(world.address()).await;
    assert!(client.send("GET", "/export?topic=a", &[], "").await.text() == whole);
    let head = client.send("HEAD", "/export?topic=a", &[], "").await;
    assert_eq!(
        (head.status.as_u16(), head.body.len(), &head.headers["x-next-offset"]),
        (200, 0, &"3000".parse().unwrap())
    );
    let posted = client.send("POST", "/publish/a", &[], "{}").await.json(200);
    assert_eq!(posted["offset"], 3000);
    world.stop().await;
}

#[tokio::test]
async fn an_export_that_is_cut_by_shutdown_does_not_look_whole() {
    let world = World::new().await;
    let payload = format!("\"{}\"", "x".repeat(500_000));
    for _ in 0..100 {
        world.publish("a", &payload).await;
    }
    let mut stream = tokio::net::TcpStream::connect(world.address()).await.unwrap();
    stream.write_all(b"GET /export?topic=a HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut begun = [0; 4096];
    stream.read_exact(&mut begun).await.unwrap();
    let mut rest = Vec::new();
    let stopping = world.stop();
    let reading = async {
        // The client can also see a reset.
        let _ = stream.read_to_end(&mut rest).await;
    };
    tokio::join!(stopping, reading);
    assert!(rest.len() < 45_000_000 && !rest.ends_with(b"0\r\n\r\n"), "{} bytes", rest.len());
}
