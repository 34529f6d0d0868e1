//! A gateway over a store in memory, open to all of this machine: `cargo run --example gateway --
//! 127.0.0.1:8090`.
//!
//! With a directory as second argument, over a store there.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use promethean_bus::{Bus, BusOptions};
use promethean_gateway::auth::Open;
use promethean_gateway::gateway::{Gateway, GatewayParts};
use promethean_gateway::options::GatewayOptions;
use promethean_model::{Clock, SystemClock};
use promethean_testkit::store::embedded::{self, EmbeddedStore};
use promethean_testkit::store::memory::{self, MemoryStore};
use promethean_testkit::store::port::Store;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8090").parse()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = match arguments.next() {
        Some(folder) => {
            let options = embedded::EmbeddedOptions::default();
            let (store, _) = EmbeddedStore::open(folder, Arc::clone(&clock), options).await?;
            Arc::new(store)
        }
        None => Arc::new(MemoryStore::new(Arc::clone(&clock), memory::MemoryOptions::default())),
    };
    let bus = Bus::open(Arc::clone(&store), Arc::clone(&clock), BusOptions::default()).await?;
    let parts = GatewayParts {
        bus: bus.clone(),
        projections: None,
        auth: Arc::new(Open),
        clock,
        options: GatewayOptions::default(),
    };
    let gateway = Gateway::start(parts, &[address]).await?;
    eprintln!("listening on {:?}", gateway.addresses());
    tokio::signal::ctrl_c().await?;
    gateway.stop().await;
    bus.close().await;
    store.close().await;
    Ok(())
}
