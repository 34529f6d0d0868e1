//! `promethean serve`: the server, until it is told to stop.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use promethean_bus::Bus;
use promethean_bus::schemas::folder::{SchemaFolder, TopicReport};
use promethean_gateway::auth::Authenticator;
use promethean_gateway::gateway::{Gateway, Parts};
use promethean_model::{Clock, SystemClock};
use promethean_projections::Projections;
use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::Store;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use crate::args::{LogFormat, ServeArgs};
use crate::config::{self, Config};

/// How long clients have to take their leave.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// How often what time has ended is removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Everything that serves, in the order it is started in.
pub(crate) struct Server {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    bus: Bus,
    projections: Projections,
    gateway: Gateway,
    auth: Arc<dyn Authenticator>,
    /// Who is let in, for people.
    exposure: String,
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    start_log(args.log_level, args.log_format);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes what happens to standard error, a line each.
pub(crate) fn start_log(level: tracing::Level, format: LogFormat) {
    // Nobody may read what is written any more, which is no reason to end.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    let lines = lines.with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

async fn serve(args: &ServeArgs) -> Result<()> {
    // Before anything is opened: a signal that comes meanwhile is not lost.
    let mut interrupted = signal(SignalKind::interrupt()).context("listen for signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("listen for signals")?;
    let mut hung_up = signal(SignalKind::hangup()).context("listen for signals")?;
    let config = config::resolve(args.config.as_deref(), args.overrides())?;
    let server = Server::start(&config).await?;
    for address in server.addresses() {
        info!(%address, "listening");
        eprintln!("promethean listens on {address}; it {}", server.exposure);
    }
    // New tokens count within seconds anyway; a signal does not wait for that.
    let reload = async {
        while hung_up.recv().await.is_some() {
            server.auth.refresh().await;
        }
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        () = reload => {}
        () = sweep(&*server.store, &*server.clock) => {}
    }
    server.stop().await;
    Ok(())
}

impl Server {
    /// Starts everything that is configured.
    pub(crate) async fn start(config: &Config) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let auth = config.authenticator(&clock)?;
        config.check_exposure(&*auth)?;
        let store = open_store(config, &clock).await?;
        let bus = Bus::open(Arc::clone(&store), Arc::clone(&clock), config.bus_options()).await?;
        for (topic, settings) in &config.topics {
            let set = bus.set_topic(topic, settings.clone()).await;
            set.with_context(|| format!("set topic `{topic}` as the configuration says"))?;
        }
        if let Some(folder) = &config.schemas {
            apply_schemas(&bus, folder).await?;
        }
        let state = config.state.clone();
        let projections = Projections::open(bus.clone(), Arc::clone(&store), Arc::clone(&clock), state).await;
        let projections = projections.context("start the projectors")?;
        let exposure = config.describe_exposure(&*auth);
        let parts = Parts {
            bus: bus.clone(),
            projections: Some(projections.clone()),
            auth: Arc::clone(&auth),
            clock: Arc::clone(&clock),
            options: config.gateway_options(),
        };
        let gateway = Gateway::start(parts, &config.listen).await?;
        Ok(Self { store, clock, bus, projections, gateway, auth, exposure })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.gateway.addresses()
    }

    pub(crate) const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Stops in the opposite order.
    pub(crate) async fn stop(self) {
        info!("stopping");
        if tokio::time::timeout(STOP_WITHIN, self.gateway.stop()).await.is_err() {
            warn!("some clients did not take their leave in time");
        }
        self.projections.close().await;
        self.bus.close().await;
        self.store.close().await;
    }
}

/// Registers what a folder has and the topics lack. Nothing is served before: no event comes in between.
async fn apply_schemas(bus: &Bus, folder: &Path) -> Result<()> {
    let path = folder.to_owned();
    let read =
        tokio::task::spawn_blocking(move || SchemaFolder::read(&path)).await.context("read the schemas")?;
    let report = bus.apply_schemas(read?).await?;
    for TopicReport { topic, registered, .. } in &report.topics {
        if !registered.is_empty() {
            info!(%topic, ?registered, "schemas registered");
        }
    }
    Ok(())
}

async fn open_store(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    match config.store.as_deref() {
        None | Some("embedded") => {
            let data = &config.data;
            // What is in it is the server's alone.
            let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
            created.with_context(|| format!("create {}", data.display()))?;
            open_embedded(data, clock).await
        }
        Some("memory") => Ok(Arc::new(MemoryStore::new(Arc::clone(clock), memory::Options::default()))),
        Some(other) => bail!("no store `{other}`; use `embedded` or `memory`"),
    }
}

async fn open_embedded(data: &Path, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    let opened = EmbeddedStore::open(data, Arc::clone(clock), Options::default()).await;
    let (store, report) = opened.with_context(|| format!("open {}", data.display()))?;
    for damage in &report.damage {
        error!(?damage, "damage");
    }
    Ok(Arc::new(store))
}

/// Removes what time has ended, again and again.
async fn sweep(store: &dyn Store, clock: &dyn Clock) {
    let mut every = tokio::time::interval(SWEEP_EVERY);
    loop {
        every.tick().await;
        loop {
            match store.sweep(clock.wall_ms()).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(error) => {
                    warn!(%error, "could not remove what has expired");
                    break;
                }
            }
        }
    }
}
