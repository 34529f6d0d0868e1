//! `promethean serve`: opens store, bus, projectors and gateway, and closes them in the opposite order on a
//! signal.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use promethean_bus::Bus;
use promethean_bus::schemas::folder::{SchemaFolder, TopicReport};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Authenticator, Secret};
use promethean_gateway::gateway::{Gateway, Parts};
use promethean_model::{Clock, SystemClock};
use promethean_projections::Projections;
use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::Store;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use crate::config::{self, Config, Overrides};
use crate::descriptors::Descriptors;

/// How long clients may take to close their connections when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// The flags of `promethean serve`. A key without a flag is taken from the environment, then from the file,
/// then its default.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen on this address; can be given several times [env: PROMETHEAN_LISTEN] [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Keep data in this directory [env: PROMETHEAN_DATA] [default: promethean-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Store events in `embedded` (files in the data directory) or in `memory` (lost when the server stops)
    /// [env: PROMETHEAN_STORE] [default: embedded]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Read more settings from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept clients that send this token, which allows everything; without a token clients are refused [env:
    /// PROMETHEAN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Serve other machines without authentication: every client may do everything
    #[arg(long)]
    insecure: bool,
    /// Log messages of this level and above to standard error
    #[arg(long, value_name = "LEVEL", env = "PROMETHEAN_LOG", default_value = "warn")]
    log_level: tracing::Level,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

impl ServeArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            data: self.data.clone(),
            store: self.store.clone(),
            token: self.token.clone().map(Secret::from),
            insecure: self.insecure,
        }
    }
}

/// The parts of a running server, in the order they were started.
pub(super) struct Server {
    store: Arc<dyn Store>,
    bus: Bus,
    projections: Projections,
    gateway: Gateway,
    auth: Arc<dyn Authenticator>,
    /// Which clients are accepted, in words for the operator.
    exposure: String,
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    start_log(args.log_level, args.log_format);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Sends log messages to standard error, one per line.
pub(super) fn start_log(level: tracing::Level, format: LogFormat) {
    // A closed standard error must not end the server.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    let lines = lines.with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}

async fn serve(args: &ServeArgs) -> Result<()> {
    // Listen for signals before anything is opened, so that an early one is not lost.
    let mut interrupted = signal(SignalKind::interrupt()).context("listen for signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("listen for signals")?;
    let mut hung_up = signal(SignalKind::hangup()).context("listen for signals")?;
    let config = config::resolve(args.config.as_deref(), args.overrides())?;
    let server = Server::start(&config).await?;
    for address in server.addresses() {
        info!(%address, "listening");
        eprintln!("promethean listens on {address}; it {}", server.exposure);
    }
    // Changed tokens are noticed within seconds; SIGHUP makes the server read them at once.
    let reload = async {
        while hung_up.recv().await.is_some() {
            server.auth.refresh().await;
        }
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        () = reload => {}
    }
    server.stop().await;
    Ok(())
}

impl Server {
    /// Starts every part as the configuration says.
    pub(super) async fn start(config: &Config) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let auth = config.authenticator(&clock)?;
        config.check_exposure(&*auth)?;
        for path in config.readable_secrets() {
            let path = path.display();
            warn!(%path, "every user of this machine can read this secret; take that right away with `chmod o-r`");
        }
        let descriptors = Descriptors::claim(config.connections(), config.keeps_files())?;
        let store = open_store(config, &clock, &descriptors).await?;
        let bus = Bus::open(Arc::clone(&store), Arc::clone(&clock), config.bus_options()).await?;
        for (topic, settings) in &config.file.topics {
            let set = bus.set_topic(topic, settings.clone()).await;
            set.with_context(|| format!("set topic `{topic}` as the configuration says"))?;
        }
        if let Some(folder) = &config.file.schemas {
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
            options: GatewayOptions { connections_max: descriptors.connections, ..config.gateway_options() },
        };
        let gateway = Gateway::start(parts, &config.listen).await?;
        Ok(Self { store, bus, projections, gateway, auth, exposure })
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        self.gateway.addresses()
    }

    pub(super) const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Stops the parts in the opposite order.
    pub(super) async fn stop(self) {
        info!("stopping");
        if tokio::time::timeout(STOP_WITHIN, self.gateway.stop()).await.is_err() {
            warn!("some clients did not close their connections in time");
        }
        self.projections.close().await;
        self.bus.close().await;
        self.store.close().await;
    }
}

/// Registers the schemas of a folder that the topics do not have yet. It runs before anything is served, so
/// that no event is published in between.
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

async fn open_store(
    config: &Config,
    clock: &Arc<dyn Clock>,
    descriptors: &Descriptors,
) -> Result<Arc<dyn Store>> {
    match config.store.as_deref() {
        None | Some("embedded") => {
            let data = &config.data;
            // Only the user of the server may read the data.
            let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
            created.with_context(|| format!("create {}", data.display()))?;
            open_embedded(data, clock, descriptors).await
        }
        Some("memory") => Ok(Arc::new(MemoryStore::new(Arc::clone(clock), memory::Options::default()))),
        Some(other) => bail!("no store `{other}`; use `embedded` or `memory`"),
    }
}

async fn open_embedded(
    data: &Path,
    clock: &Arc<dyn Clock>,
    descriptors: &Descriptors,
) -> Result<Arc<dyn Store>> {
    // The state engine makes files at any time, with the rights that the process gives by default.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let mut options = Options { state_open_files: descriptors.state_files, ..Options::default() };
    options.log.open_files = descriptors.segment_files;
    let opened = EmbeddedStore::open(data, Arc::clone(clock), options).await;
    let (store, report) = opened.with_context(|| format!("open {}", data.display()))?;
    for damage in &report.damage {
        error!(?damage, "the data directory is damaged");
    }
    Ok(Arc::new(store))
}
