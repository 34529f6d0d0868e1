//! A gateway on a free port, over a store in memory or in a directory.

use std::net::SocketAddr;
use std::sync::Arc;

use promethean_bus::{Bus, BusOptions};
use promethean_gateway::auth::{Authenticator, Open};
use promethean_gateway::gateway::{Gateway, Parts};
use promethean_gateway::options::GatewayOptions;
use promethean_model::Clock;
use promethean_projections::{Declared, Projections};
use promethean_testkit::ManualClock;
use promethean_testkit::store::embedded::{self, EmbeddedStore};
use promethean_testkit::store::memory::{self, MemoryStore};
use promethean_testkit::store::port::Store;
use serde_json::Value;

use super::client::{Answer, Client};

pub(super) const NOW: i64 = 1_800_000_000_000;

pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) bus: Bus,
    pub(super) store: Arc<dyn Store>,
    pub(super) projections: Projections,
    pub(super) gateway: Gateway,
    _folder: Option<tempfile::TempDir>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(GatewayOptions::default(), Arc::new(Open), false).await
    }

    pub(super) async fn on_disk() -> Self {
        Self::with(GatewayOptions::default(), Arc::new(Open), true).await
    }

    pub(super) async fn with_options(options: GatewayOptions) -> Self {
        Self::with(options, Arc::new(Open), false).await
    }

    pub(super) async fn with(options: GatewayOptions, auth: Arc<dyn Authenticator>, on_disk: bool) -> Self {
        Self::with_state(options, auth, on_disk, Declared::default()).await
    }

    pub(super) async fn with_state(
        options: GatewayOptions,
        auth: Arc<dyn Authenticator>,
        on_disk: bool,
        declared: Declared,
    ) -> Self {
        let manual = Arc::new(ManualClock::new(NOW));
        let clock: Arc<dyn Clock> = manual.clone();
        let folder = on_disk.then(|| tempfile::tempdir().unwrap());
        let store: Arc<dyn Store> = match &folder {
            Some(folder) => {
                let options = embedded::Options::default();
                Arc::new(EmbeddedStore::open(folder.path(), clock.clone(), options).await.unwrap().0)
            }
            None => Arc::new(MemoryStore::new(clock.clone(), memory::Options::default())),
        };
        let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await.unwrap();
        let projections =
            Projections::open(bus.clone(), store.clone(), clock.clone(), declared).await.unwrap();
        let parts = Parts { bus: bus.clone(), projections: Some(projections.clone()), auth, clock, options };
        let gateway = Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        Self { clock: manual, bus, projections, store, gateway, _folder: folder }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(super) async fn client(&self) -> Client {
        Client::http1(self.address()).await
    }

    /// One request on a connection of its own.
    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.client().await.send(method, path, &[], body.to_owned()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    pub(super) async fn publish(&self, topic: &str, payload: &str) -> Value {
        let answer = self.send("POST", &format!("/publish/{topic}"), payload).await;
        answer.json(200)
    }

    pub(super) async fn stop(self) {
        let all = async {
            self.gateway.stop().await;
            self.projections.close().await;
            self.bus.close().await;
            self.store.close().await;
        };
        tokio::time::timeout(std::time::Duration::from_secs(120), all).await.unwrap();
    }
}
