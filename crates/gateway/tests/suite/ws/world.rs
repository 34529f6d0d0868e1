//! A gateway to talk to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::{Bus, BusOptions};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Authenticator, Open};
use promethean_gateway::gateway::{Gateway, Parts};
use promethean_testkit::ManualClock;
use promethean_testkit::store::embedded::{self, EmbeddedStore};
use promethean_testkit::store::memory::{MemoryStore, Options};
use promethean_testkit::store::port::Store;
use tempfile::TempDir;

use super::client::Client;

/// A time to begin with.
pub(in crate::suite) const WALL_MS: i64 = 1_700_000_000_000;

/// A gateway over a store, with a clock that stands still until it is moved.
pub(in crate::suite) struct World {
    pub(in crate::suite) clock: Arc<ManualClock>,
    pub(in crate::suite) bus: Bus,
    pub(in crate::suite) gateway: Gateway,
    store: Arc<dyn Store>,
    _dir: Option<TempDir>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::suite) enum Kind {
    Memory,
    Embedded,
}

impl World {
    pub(in crate::suite) async fn open() -> World {
        World::with(Kind::Memory, GatewayOptions::default(), Arc::new(Open)).await
    }

    pub(in crate::suite) async fn limited(options: GatewayOptions) -> World {
        World::with(Kind::Memory, options, Arc::new(Open)).await
    }

    pub(in crate::suite) async fn with(
        kind: Kind,
        options: GatewayOptions,
        auth: Arc<dyn Authenticator>,
    ) -> World {
        let clock = Arc::new(ManualClock::new(WALL_MS));
        let (store, dir): (Arc<dyn Store>, _) = match kind {
            Kind::Memory => (Arc::new(MemoryStore::new(clock.clone(), Options::default())), None),
            Kind::Embedded => {
                let dir = tempfile::tempdir().unwrap();
                let opened = EmbeddedStore::open(dir.path(), clock.clone(), embedded::Options::default());
                (Arc::new(opened.await.unwrap().0), Some(dir))
            }
        };
        let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await.unwrap();
        let parts = Parts { bus: bus.clone(), projections: None, auth, clock: clock.clone(), options };
        let gateway = Gateway::start(parts, &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        World { clock, bus, gateway, store, _dir: dir }
    }

    pub(in crate::suite) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(in crate::suite) async fn client(&self) -> Client {
        Client::connect(self.address(), None).await.unwrap()
    }

    /// Moves time, and lets everyone look at the clock.
    pub(in crate::suite) fn advance(&self, ms: u64) {
        self.clock.advance(ms);
        self.bus.wake();
    }

    pub(in crate::suite) async fn close(self) {
        soon("the gateway stops", self.gateway.stop()).await;
        self.bus.close().await;
        self.store.close().await;
    }
}

/// Fails rather than hangs.
pub(in crate::suite) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let within = Duration::from_secs(120);
    tokio::time::timeout(within, future).await.unwrap_or_else(|_| panic!("this takes too long: {what}"))
}
