//! Starting and stopping a gateway.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_bus::{Bus, BusError};
use promethean_model::Clock;
use promethean_projections::Projections;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, AppInner};
use crate::audit::Audit;
use crate::auth::{Authenticator, Quota};
use crate::http::stored_headers::StoredHeaders;
use crate::http::table;
use crate::listen::connection_list::ConnectionList;
use crate::listen::tls::TlsError;
use crate::listen::{self, origin::Origins};
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::tickets::Tickets;
use crate::usage::accounts::Accounts;
use crate::usage::failures::AuthFailures;
use crate::usage::receiving::Receiving;

/// A gateway that is running.
#[derive(Debug)]
pub struct Gateway {
    app: App,
    addresses: Vec<SocketAddr>,
}

/// The parts that a gateway is made of.
#[derive(Debug)]
pub struct GatewayParts {
    /// The bus. The caller closes it, after the gateway.
    pub bus: Bus,
    /// The projections of the bus. The caller closes them too, after the gateway.
    pub projections: Option<Projections>,
    /// Decides who a client is and what it may do.
    pub auth: Arc<dyn Authenticator>,
    /// The bus's clock.
    pub clock: Arc<dyn Clock>,
    /// Limits and timeouts.
    pub options: GatewayOptions,
}

/// Why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The gateway cannot listen on an address.
    #[error("cannot listen on {address}: {error}; use another address, or stop what uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The audit topic cannot be created.
    #[error("no audit: {0}")]
    Audit(#[from] BusError),
    /// The certificate or its key cannot be used.
    #[error("no TLS: {0}")]
    Tls(#[from] TlsError),
}

impl Gateway {
    /// Serves on all these addresses; port 0 takes a free port.
    pub async fn start(parts: GatewayParts, addresses: &[SocketAddr]) -> Result<Self, StartError> {
        let GatewayParts { bus, projections, auth, clock, options } = parts;
        let (tasks, stopping) = (TaskTracker::new(), CancellationToken::new());
        let metrics = GatewayMetrics::new(&bus, table::routes());
        let origins = Origins::of(&options, auth.is_open(), addresses);
        let audit = match &options.audit {
            Some(topic) => {
                let (audit, writer) = Audit::open(&bus, Arc::clone(&clock), topic).await?;
                tasks.spawn(writer.run(stopping.clone()));
                Some(audit)
            }
            None => None,
        };
        let failures = AuthFailures::new(options.auth_failures);
        // Without tokens all clients have one identity, so a quota would limit all of them together.
        let accounts = Accounts::new(if auth.is_open() { Quota::default() } else { options.quota });
        let token_bytes_max = (!auth.is_open()).then_some(options.token_receiving_bytes_max);
        let receiving = Receiving::new(&bus, options.receiving_bytes_max, token_bytes_max);
        let stored_headers = StoredHeaders::new(options.stored_headers.as_deref());
        let inner = AppInner {
            bus,
            projections,
            auth,
            clock,
            options,
            origins,
            refused_origins: Mutex::default(),
            stored_headers,
            metrics,
            failures,
            accounts,
            receiving,
            connections: Arc::new(ConnectionList::default()),
            tickets: Tickets::default(),
            audit,
            tasks,
            stopping,
        };
        let app = App { inner: Arc::new(inner) };
        let addresses = listen::start(&app, addresses).await?;
        if !app.auth.is_open() {
            app.tasks.spawn(keep_fresh(app.clone()));
        }
        Ok(Self { app, addresses })
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Accepts no more connections, says goodbye to every open one, and waits until all are closed.
    /// Cancel-safe.
    pub async fn stop(&self) {
        self.app.stopping.cancel();
        self.app.tasks.close();
        self.app.tasks.wait().await;
    }
}

/// Lets the authenticator look for changes at a fixed interval.
async fn keep_fresh(app: App) {
    let every = Duration::from_millis(app.options.auth_check_every_ms.max(10));
    // The authenticator has just read its tokens, so the first look waits for one interval.
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let refreshes = async {
        loop {
            ticks.tick().await;
            app.auth.refresh().await;
        }
    };
    tokio::select! {
        () = app.stopping.cancelled() => {}
        () = refreshes => {}
    }
}
