//! What connections and requests share.

use std::sync::Arc;

use promethean_bus::Bus;
use promethean_model::Clock;
use promethean_projections::Projections;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Authenticator;
use crate::http::metrics::GatewayMetrics;
use crate::listen::origin::Origins;
use crate::options::GatewayOptions;

/// Shared by everything that serves. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) inner: Arc<Inner>,
}

/// The parts of an [`App`].
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) bus: Bus,
    /// What is derived from its events; `None` where nothing is.
    pub(crate) projections: Option<Projections>,
    pub(crate) auth: Arc<dyn Authenticator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: GatewayOptions,
    /// Which pages browsers may connect for.
    pub(crate) origins: Origins,
    pub(crate) metrics: GatewayMetrics,
    /// Everything that was spawned; joined at shutdown.
    pub(crate) tasks: TaskTracker,
    /// Set when the gateway stops.
    pub(crate) stopping: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}
