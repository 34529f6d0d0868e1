//! One gateway on a free port, over a store in memory or on disk. Its clock stands still until a test moves
//! it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::{Bus, BusOptions};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Authenticator, Open};
use promethean_gateway::gateway::{Gateway, GatewayParts};
use promethean_projections::{Declared, Projections};
use promethean_testkit::ManualClock;
use promethean_testkit::store::embedded::{self, EmbeddedStore};
use promethean_testkit::store::memory::{self, MemoryStore};
use promethean_testkit::store::port::Store;
use serde_json::Value;
use tempfile::TempDir;

use super::http::client::{Answer, Client as HttpClient};
use super::ws::client::Client as WsClient;

/// The time at the start, epoch ms.
pub(super) const NOW: i64 = 1_800_000_000_000;

pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) bus: Bus,
    pub(super) store: Arc<dyn Store>,
    pub(super) projections: Projections,
    pub(super) gateway: Gateway,
    _dir: Option<TempDir>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    Memory,
    /// In memory, with at most 20 topics.
    FewTopics,
    Embedded,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with_options(GatewayOptions::default()).await
    }

    pub(super) async fn on_disk() -> Self {
        Self::over(StoreKind::Embedded, GatewayOptions::default()).await
    }

    pub(super) async fn with_options(options: GatewayOptions) -> Self {
        Self::over(StoreKind::Memory, options).await
    }

    pub(super) async fn with_auth(options: GatewayOptions, auth: Arc<dyn Authenticator>) -> Self {
        Self::start(StoreKind::Memory, options, auth, Declared::default()).await
    }

    pub(super) async fn with_few_topics(auth: Arc<dyn Authenticator>) -> Self {
        Self::start(StoreKind::FewTopics, GatewayOptions::default(), auth, Declared::default()).await
    }

    pub(super) async fn with_state(auth: Arc<dyn Authenticator>, declared: Declared) -> Self {
        Self::start(StoreKind::Memory, GatewayOptions::default(), auth, declared).await
    }

    pub(super) async fn over(kind: StoreKind, options: GatewayOptions) -> Self {
        Self::start(kind, options, Arc::new(Open), Declared::default()).await
    }

    async fn start(
        kind: StoreKind,
        options: GatewayOptions,
        auth: Arc<dyn Authenticator>,
        declared: Declared,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let (store, dir): (Arc<dyn Store>, _) = match kind {
            StoreKind::Memory => {
                (Arc::new(MemoryStore::new(clock.clone(), memory::MemoryOptions::default())), None)
            }
            StoreKind::FewTopics => {
                let options = memory::MemoryOptions { topics_max: 20, ..memory::MemoryOptions::default() };
                (Arc::new(MemoryStore::new(clock.clone(), options)), None)
            }
            StoreKind::Embedded => {
                let dir = tempfile::tempdir().unwrap();
                let opened =
                    EmbeddedStore::open(dir.path(), clock.clone(), embedded::EmbeddedOptions::default());
                (Arc::new(opened.await.unwrap().0), Some(dir))
            }
        };
        let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await.unwrap();
        let opened = Projections::open(bus.clone(), store.clone(), clock.clone(), declared);
        let projections = opened.await.unwrap();
        let parts = GatewayParts {
            bus: bus.clone(),
            projections: Some(projections.clone()),
            auth,
            clock: clock.clone(),
            options,
        };
        let gateway = Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        Self { clock, bus, store, projections, gateway, _dir: dir }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    /// A new HTTP/1 connection.
    pub(super) async fn http(&self) -> HttpClient {
        HttpClient::http1(self.address()).await
    }

    /// A new WebSocket.
    pub(super) async fn ws(&self) -> WsClient {
        WsClient::connect(self.address(), None).await.unwrap()
    }

    /// Sends one request on a connection of its own.
    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.http().await.send(method, path, &[], body.to_owned()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    pub(super) async fn publish(&self, topic: &str, payload: &str) -> Value {
        let answer = self.send("POST", &format!("/publish/{topic}"), payload).await;
        answer.json(200)
    }

    /// Moves the clock, and wakes every task that waits for it.
    pub(super) fn advance(&self, ms: u64) {
        self.clock.advance(ms);
        self.bus.wake();
    }

    /// Moves the clock in steps until the future ends.
    pub(super) async fn pass_time_until<T>(&self, step_ms: u64, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        loop {
            self.advance(step_ms);
            let others_run = async {
                for _ in 0..1_000 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                result = &mut future => return result,
                () = others_run => {}
            }
        }
    }

    pub(super) async fn stop(self) {
        let all = async {
            self.gateway.stop().await;
            self.projections.close().await;
            self.bus.close().await;
            self.store.close().await;
        };
        soon("everything stops", all).await;
    }
}

/// Fails if the future takes so long that it hangs.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let within = Duration::from_secs(120);
    tokio::time::timeout(within, future).await.unwrap_or_else(|_| panic!("this takes too long: {what}"))
}
