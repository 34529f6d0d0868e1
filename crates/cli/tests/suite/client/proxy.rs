//! A network between a client and a server that misbehaves as a test wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Bytes pass.
    Fair,
    /// Bytes pass after this time.
    Slow(Duration),
    /// Bytes vanish in both directions, and connections stay open.
    BlackHole,
    /// Bytes of the server vanish: its half of every connection is closed.
    HalfClosed,
    /// Connections that exist are closed for the client, and what it sent last reaches the server only after this
    /// weather: later connections, whose bytes pass, overtake them.
    Overtaken,
    /// Connections are cut, and new ones too.
    Cut,
}

/// A proxy in front of one address.
pub(super) struct BadNetwork {
    pub(super) address: SocketAddr,
    weather: watch::Sender<Weather>,
    /// Connections that were accepted.
    pub(super) accepted: Arc<AtomicU64>,
    /// Pieces that a black hole has swallowed.
    swallowed: Arc<AtomicU64>,
    /// Connections that are open.
    open: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl BadNetwork {
    pub(super) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, seen) = watch::channel(Weather::Fair);
        let accepted = Arc::new(AtomicU64::new(0));
        let (mut task, count) = (JoinSet::new(), Arc::clone(&accepted));
        let swallowed = Arc::new(AtomicU64::new(0));
        let hole = Arc::clone(&swallowed);
        let (opened, open) = watch::channel(0);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let counted = OpenConnection::count(&opened);
                let connection = connect(client, server, seen.clone(), Arc::clone(&hole));
                connections.spawn(async move {
                    connection.await;
                    drop(counted);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, weather, accepted, swallowed, open, _task: task }
    }

    pub(super) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// How many pieces black holes have swallowed.
    pub(super) fn swallowed(&self) -> u64 {
        self.swallowed.load(Ordering::SeqCst)
    }

    pub(super) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Cuts all connections, and lets new ones pass.
    pub(super) async fn cut_once(&self) {
        self.set(Weather::Cut);
        // New connections end at once, so there is a moment without any.
        self.open.clone().wait_for(|open| *open == 0).await.unwrap();
        self.set(Weather::Fair);
    }
}

/// Counts a connection while it is open.
struct OpenConnection(watch::Sender<u64>);

impl OpenConnection {
    fn count(open: &watch::Sender<u64>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    hole: Arc<AtomicU64>,
) {
    let now = *weather.borrow_and_update();
    if now == Weather::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Without this, small frames wait 40 ms for the acknowledgement of earlier ones.
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let is_old = now != Weather::Overtaken;
    let up = pass(client_in, server_out, weather.clone(), &hole, false, is_old);
    let down = pass(server_in, client_out, weather.clone(), &hole, true, is_old);
    let cut = async {
        while *weather.borrow_and_update() != Weather::Cut {
            if weather.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = cut => {}
        // One half may end before the other.
        _ = async { tokio::join!(up, down) } => {}
    }
}

#[expect(clippy::disallowed_methods, reason = "the delay is the fault")]
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut weather: watch::Receiver<Weather>,
    hole: &AtomicU64,
    is_down: bool,
    is_old: bool,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => Some(read),
            () = overtaken(&mut weather), if is_old => None,
        };
        let count = match read {
            Some(Ok(count @ 1..)) => count,
            Some(_) => break,
            None if is_down => return,
            None => return arrive_late(from, to, weather).await,
        };
        let now = *weather.borrow();
        match now {
            Weather::Fair | Weather::Overtaken => {}
            Weather::Slow(by) => tokio::time::sleep(by).await,
            // What vanished never comes: a stream with a hole in it would be broken by the proxy.
            Weather::BlackHole => {
                hole.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            Weather::HalfClosed if is_down => break,
            Weather::HalfClosed => {}
            Weather::Cut => return,
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Waits until connections are overtaken.
async fn overtaken(weather: &mut watch::Receiver<Weather>) {
    if weather.wait_for(|weather| *weather == Weather::Overtaken).await.is_err() {
        std::future::pending().await
    }
}

/// Delivers what a client sent before its connection was overtaken, after that weather.
async fn arrive_late(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut weather: watch::Receiver<Weather>,
) {
    let (mut held, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::ZERO, from.read(&mut buffer)).await {
        held.extend_from_slice(&buffer[..count]);
    }
    let after = weather.wait_for(|weather| *weather != Weather::Overtaken).await.map(|weather| *weather);
    if matches!(after, Ok(Weather::Fair)) && to.write_all(&held).await.is_ok() {
        // The server may have closed the connection meanwhile.
        let _ = to.shutdown().await;
    }
}
