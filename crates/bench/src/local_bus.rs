//! A bus over an embedded store inside this process.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{Clock, SystemClock};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::Store;

/// A bus with its store and clock, for one directory.
pub(crate) struct LocalBus {
    pub(crate) bus: Bus,
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl LocalBus {
    pub(crate) async fn open(dir: &Path) -> Result<LocalBus> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (store, _) = EmbeddedStore::open(dir, Arc::clone(&clock), EmbeddedOptions::default()).await?;
        let store = Arc::new(store);
        let bus = Bus::open(Arc::clone(&store) as _, Arc::clone(&clock), BusOptions::default()).await?;
        Ok(LocalBus { bus, store, clock })
    }

    pub(crate) async fn close(&self) {
        self.bus.close().await;
        Store::close(&*self.store).await;
    }
}
