//! State that all clients share, and one connection.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean_testkit::ledger::Ledger;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

pub(super) struct Shared {
    address: SocketAddr,
    pub(super) ledger: Ledger,
    pub(super) deliveries: Mutex<Deliveries>,
    /// How often the server was ended.
    pub(super) epoch: AtomicU64,
    /// Connections that were made.
    pub(super) connected: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    /// Topics that were deleted.
    pub(super) deletions: AtomicU64,
    /// Publishes that were not answered.
    pub(super) unknown: AtomicU64,
    /// Publishes that were stored before without an answer, and acknowledged as duplicates.
    pub(super) doubled: AtomicU64,
    /// Connections that were closed with 1001.
    pub(super) goodbyes: AtomicU64,
    /// Connections that ended without a close frame.
    pub(super) broken: AtomicU64,
    /// Set when publishers must stop.
    pub(super) done: AtomicBool,
}

/// A group, a topic and an event's id.
type Name = (String, String, String);

/// The deliveries and acks of all consumers.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Answered acks, with the epoch of the server that answered.
    acked: HashMap<Name, u64>,
    /// Acks that are not answered yet.
    pub(super) waiting: usize,
    /// Events that were delivered again after their ack was answered.
    pub(super) repeated: Vec<String>,
    /// Acks whose answer was lost with the connection.
    perhaps_acked: BTreeSet<Name>,
}

impl Deliveries {
    /// Records a delivery. An acked event must not be delivered again in the same or a later epoch. A
    /// connection of an earlier epoch may still hold deliveries that were sent before the ack.
    pub(super) fn delivered(&mut self, name: &Name, epoch: u64) {
        if let Some(acked) = self.acked.get(name).filter(|acked| epoch >= **acked) {
            self.repeated.push(format!("{name:?} was acked in epoch {acked} and delivered again in {epoch}"));
        }
        self.waiting += 1;
    }

    pub(super) fn acked(&mut self, name: Name, epoch: u64) {
        self.acked.insert(name, epoch);
        self.waiting -= 1;
    }

    pub(super) fn unanswered(&mut self, names: impl ExactSizeIterator<Item = Name>) {
        self.waiting -= names.len();
        self.perhaps_acked.extend(names);
    }

    /// The ids of events that a group acked, with or without an answer.
    pub(super) fn settled(&self, group: &str, topic: &str) -> BTreeSet<&str> {
        let of = |name: &&Name| name.0 == group && name.1 == topic;
        self.acked.keys().chain(&self.perhaps_acked).filter(of).map(|name| name.2.as_str()).collect()
    }
}

/// A connection and the epoch of the server it belongs to.
pub(super) struct Client {
    socket: WebSocketStream<TcpStream>,
    pub(super) epoch: u64,
}

impl Shared {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            ledger: Ledger::new(),
            deliveries: Mutex::default(),
            epoch: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            deletions: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            goodbyes: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            done: AtomicBool::new(false),
        }
    }

    /// Connects; tries again until it succeeds.
    pub(super) async fn connect(&self) -> Client {
        let mut often = tokio::time::interval(Duration::from_millis(20));
        loop {
            often.tick().await;
            let epoch = self.epoch.load(Ordering::SeqCst);
            let Ok(stream) = TcpStream::connect(self.address).await else { continue };
            let url = format!("ws://{}/", self.address);
            let Ok((socket, _)) = tokio_tungstenite::client_async(url, stream).await else { continue };
            if self.epoch.load(Ordering::SeqCst) == epoch {
                self.connected.fetch_add(1, Ordering::Relaxed);
                return Client { socket, epoch };
            }
        }
    }
}

impl Client {
    /// Sends a frame. A failure shows when the next frame is read.
    pub(super) async fn send(&mut self, frame: &Value) {
        let _ = self.socket.send(Message::text(frame.to_string())).await;
    }

    /// The next frame; `None` if the connection is over.
    pub(super) async fn next(&mut self, shared: &Shared) -> Option<Value> {
        loop {
            match self.socket.next().await.unwrap_or(Err(Error::ConnectionClosed)) {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => {
                    let code: u16 = frame.map_or(0, |frame| frame.code.into());
                    assert_eq!(code, 1001, "closed for another reason");
                    shared.goodbyes.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                Ok(_) => {}
                Err(_) => {
                    shared.broken.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            }
        }
    }
}
