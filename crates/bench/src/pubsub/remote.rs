//! Publishing and subscribing on a server, over WebSocket.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{GROUP, IN_FLIGHT, PubsubArgs, Stamps, sample};
use crate::timing::{Samples, now};
use crate::wire::block_on;
use crate::wire::events::is_ok;
use crate::wire::pump::{PublishWindow, pump};
use crate::wire::socket::{ClientSocket, put_text};

/// Longer than any run.
const LIMIT: Duration = Duration::from_secs(86_400);
const PORT: u16 = 80;

#[derive(Debug, Deserialize)]
struct RemoteDelivery<'a> {
    #[serde(borrow)]
    event: Delivered<'a>,
}

#[derive(Debug, Deserialize)]
struct Delivered<'a> {
    id: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
}

pub(super) fn publish(args: &PubsubArgs, url: &str) -> Result<Duration> {
    let (authority, stamps) = (authority(url)?, Stamps::new());
    block_on(async {
        let mut socket = ClientSocket::open(&authority, args.token.as_deref()).await?;
        let start = now();
        publish_all(&mut socket, args, &stamps).await?;
        Ok(start.elapsed())
    })
}

pub(super) fn subscribe(args: &PubsubArgs, url: &str) -> Result<Samples> {
    let (authority, stamps) = (authority(url)?, Stamps::new());
    block_on(async {
        let mut publisher = ClientSocket::open(&authority, args.token.as_deref()).await?;
        let mut subscriber = ClientSocket::open(&authority, args.token.as_deref()).await?;
        let opts = json!({ "from": "earliest", "batchSize": IN_FLIGHT, "maxInFlight": IN_FLIGHT });
        let wanted =
            json!({ "op": "SUBSCRIBE", "topic": args.topic, "group": GROUP, "opts": opts, "corr": "s" });
        subscriber.request(&wanted.to_string()).await?;
        let (published, received) =
            tokio::join!(publish_all(&mut publisher, args, &stamps), receive(&mut subscriber, args, &stamps));
        published?;
        received
    })
}

/// The `HOST:PORT` of a WebSocket address.
fn authority(url: &str) -> Result<String> {
    let rest = url
        .strip_prefix("ws://")
        .with_context(|| format!("`{url}` is not an address such as ws://127.0.0.1:8090"))?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    ensure!(!authority.is_empty(), "`{url}` names no host");
    // A colon inside of brackets belongs to an IPv6 address.
    let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
    Ok(if has_port { authority.to_owned() } else { format!("{authority}:{PORT}") })
}

async fn publish_all(socket: &mut ClientSocket, args: &PubsubArgs, stamps: &Stamps) -> Result<()> {
    let topic = serde_json::to_string(&args.topic)?;
    let window = PublishWindow { frames: args.n, outstanding: args.window.into(), until: now() + LIMIT };
    let put = |out: &mut Vec<u8>, number| {
        let payload = stamps.payload(number);
        let text = format!(r#"{{"op":"PUBLISH","topic":{topic},"payload":{payload},"corr":{number}}}"#);
        put_text(out, text.as_bytes());
    };
    pump(socket, window, put).await?;
    Ok(())
}

async fn receive(socket: &mut ClientSocket, args: &PubsubArgs, stamps: &Stamps) -> Result<Samples> {
    let topic = serde_json::to_string(&args.topic)?;
    let mut samples = Samples::default();
    while (samples.len() as u64) < args.n {
        socket.fill().await?;
        while let Some(text) = socket.input.next_text()? {
            if is_ok(text)? {
                continue;
            }
            let RemoteDelivery { event } = serde_json::from_slice(text)?;
            sample(stamps, &mut samples, event.payload.get().as_bytes());
            let id = event.id;
            let ack = format!(r#"{{"op":"ACK","topic":{topic},"group":"{GROUP}","id":"{id}"}}"#);
            put_text(&mut socket.output, ack.as_bytes());
        }
        socket.flush().await?;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        for (url, expected) in [
            ("ws://127.0.0.1:8090", "127.0.0.1:8090"),
            ("ws://localhost:8090/ws", "localhost:8090"),
            ("ws://example.org/", "example.org:80"),
            ("ws://[::1]", "[::1]:80"),
            ("ws://[::1]:9/", "[::1]:9"),
        ] {
            assert_eq!(authority(url).unwrap(), expected);
        }
        assert!(authority("http://x").is_err() && authority("ws://").is_err());
    }
}
