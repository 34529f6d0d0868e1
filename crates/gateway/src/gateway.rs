//! Starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::{Bus, BusError};
use promethean_model::Clock;
use promethean_projections::Projections;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Inner};
use crate::audit::Audit;
use crate::auth::{Authenticator, Quota};
use crate::http::table;
use crate::listen::tls::TlsError;
use crate::listen::{self, origin::Origins};
use crate::metrics::GatewayMetrics;
use crate::options::GatewayOptions;
use crate::usage::accounts::Accounts;
use crate::usage::failures::Failures;

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    app: App,
    addresses: Vec<SocketAddr>,
}

/// What a gateway is made of.
#[derive(Debug)]
pub struct Parts {
    /// The bus, which stays the caller's to close, after the gateway.
    pub bus: Bus,
    /// What is derived from its events, which stays the caller's to close too.
    pub projections: Option<Projections>,
    /// Who may do what.
    pub auth: Arc<dyn Authenticator>,
    /// The bus's clock.
    pub clock: Arc<dyn Clock>,
    /// Limits and timeouts.
    pub options: GatewayOptions,
}

/// Why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {error}; use another address, or stop what uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The topic for who did what cannot be made.
    #[error("no audit: {0}")]
    Audit(#[from] BusError),
    /// The certificate or its key is of no use.
    #[error("no TLS: {0}")]
    Tls(#[from] TlsError),
}

impl Gateway {
    /// Serves on all addresses; port 0 takes a free one.
    pub async fn start(parts: Parts, addresses: &[SocketAddr]) -> Result<Self, StartError> {
        let Parts { bus, projections, auth, clock, options } = parts;
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
        let failures = Failures::new(options.auth_failures);
        // Where nobody needs a token there are no identities to be limited.
        let accounts = Accounts::new(if auth.is_open() { Quota::default() } else { options.quota });
        let inner = Inner {
            bus,
            projections,
            auth,
            clock,
            options,
            origins,
            metrics,
            failures,
            accounts,
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

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Accepts nothing more, says goodbye to every connection, and waits until all are gone. Cancel-safe.
    pub async fn stop(&self) {
        self.app.stopping.cancel();
        self.app.tasks.close();
        self.app.tasks.wait().await;
    }
}

/// Lets the authenticator look for changes, again and again.
async fn keep_fresh(app: App) {
    let every = Duration::from_millis(app.options.auth_check_every_ms.max(10));
    // What was read a moment ago need not be read again.
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let looking = async {
        loop {
            ticks.tick().await;
            app.auth.refresh().await;
        }
    };
    tokio::select! {
        () = app.stopping.cancelled() => {}
        () = looking => {}
    }
}
