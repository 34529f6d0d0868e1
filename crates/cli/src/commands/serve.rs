//! `promethean serve`: opens store, bus, projectors and gateway, and closes them in the opposite order on a
//! signal.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use promethean_bus::Bus;
use promethean_bus::schemas::folder::{SchemaFolder, TopicReport};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::{Authenticator, Secret};
use promethean_gateway::gateway::{Gateway, GatewayParts};
use promethean_model::{Clock, Durability, Moment, SystemClock};
use promethean_projections::Projections;
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};
use promethean_store::memory::MemoryStore;
use promethean_store::port::Store;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use crate::config::{self, Config, Overrides};
use crate::descriptors::Descriptors;
use crate::failure::FailureKind;

/// How long clients may take to close their connections when the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// The flags of `promethean serve`. A key without a flag is taken from the environment, then from the file,
/// then its default.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  promethean serve\n  promethean serve --listen :8090 --config promethean.toml"
)]
pub(crate) struct ServeArgs {
    /// Listen on this address, such as localhost:8090, or :8090 for all addresses of this machine; can be given several
    /// times [env: PROMETHEAN_LISTEN] [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR", value_delimiter = ',', value_parser = config::parse_listen)]
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
    match (runtime.block_on(serve(args)), args.log_format) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err(error), LogFormat::Text) => Err(error),
        // Programs read the log, so its last line is JSON too.
        (Err(error), LogFormat::Json) => {
            error!(error = format!("{error:#}"), "the server cannot run");
            Ok(FailureKind::Usage.code())
        }
    }
}

/// Sends log messages to standard error, one per line.
pub(super) fn start_log(level: tracing::Level, format: LogFormat) {
    // A closed standard error must not end the server.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    let lines = lines.with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    match format {
        // A person who watches the terminal needs no module names.
        LogFormat::Text if std::io::stderr().is_terminal() => lines.compact().with_target(false).init(),
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
    if std::env::var_os("MONGO_URL").is_some_and(|url| !url.is_empty()) {
        warn!(
            "MONGO_URL is set, but not used: there is no MongoDB store yet; the store is {}",
            config.store_name()
        );
    }
    let server = Server::start(&config).await?;
    for address in server.addresses() {
        info!(%address, "listening");
        announce(address, &server.exposure, &config.dashboard_url(address), args.log_format);
    }
    if let (Some(address), LogFormat::Text) = (server.addresses().first(), args.log_format) {
        for line in first_steps(&config, &config.dashboard_url(address), server.auth.is_open()) {
            eprintln!("{line}");
        }
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

/// Tells the operator that the server is there and where its dashboard is, whatever the log level is, in the
/// format of the log.
fn announce(address: &SocketAddr, exposure: &str, dashboard: &str, format: LogFormat) {
    let message = format!("promethean listens on {address}; it {exposure}");
    match format {
        LogFormat::Text => {
            eprintln!("{message}");
            eprintln!("the dashboard is at {dashboard}");
        }
        LogFormat::Json => {
            let fields = json!({"message": message, "address": address, "dashboard": dashboard});
            let now = Moment::from_ms(SystemClock::new().wall_ms()).to_string();
            let line = json!({"timestamp": now, "level": "INFO", "fields": fields, "target": "promethean"});
            eprintln!("{line}");
        }
    }
}

/// Tells a newcomer where the data is, what an acknowledgement promises, and what to do next.
fn first_steps(config: &Config, dashboard: &str, is_open: bool) -> Vec<String> {
    let data = match config.keeps_files() {
        true => {
            let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
            let promise = match config.durability() {
                Durability::Os => {
                    "a crash of the server; a power cut can lose the last 50 ms (durability os)"
                }
                _ => "a power cut (durability fsync), unless its topic asks for less",
            };
            format!("data is in {}; an acknowledged event survives {promise}", data.display())
        }
        false => "data is in memory only, and lost when the server stops".to_owned(),
    };
    let url = dashboard.trim_end_matches('/');
    let url = if url == "http://127.0.0.1:8090" { String::new() } else { format!(" --url {url}") };
    let token = if is_open { "" } else { " --token-file FILE" };
    let next = format!(
        "publish a first event from another terminal: promethean pub hello '{{\"x\": 1}}'{url}{token}"
    );
    vec![data, next, "`promethean cheat` has more to try; Ctrl-C stops the server".to_owned()]
}

impl Server {
    /// Starts every part as the configuration says.
    pub(super) async fn start(config: &Config) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let auth = config.authenticator(&clock)?;
        config.check_exposure(&*auth)?;
        for path in config.readable_secrets() {
            let path = path.display();
            warn!(%path, "every user of this machine can read this secret; remove that right with `chmod o-r`");
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
        let options = GatewayOptions { connections_max: descriptors.connections, ..config.gateway_options() };
        let shown_settings = config.shown_settings(&options);
        let parts = GatewayParts {
            bus: bus.clone(),
            projections: Some(projections.clone()),
            auth: Arc::clone(&auth),
            clock: Arc::clone(&clock),
            options: GatewayOptions { shown_settings, ..options },
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
            open_embedded(config, clock, descriptors).await
        }
        Some("memory") => Ok(Arc::new(MemoryStore::new(Arc::clone(clock), config.memory_options()))),
        Some(other) => bail!("no store `{other}`; use `embedded` or `memory`"),
    }
}

async fn open_embedded(
    config: &Config,
    clock: &Arc<dyn Clock>,
    descriptors: &Descriptors,
) -> Result<Arc<dyn Store>> {
    // The state engine makes files at any time, with the rights that the process gives by default.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let mut options = EmbeddedOptions {
        durability: config.durability(),
        state_open_files: descriptors.state_files,
        ..EmbeddedOptions::default()
    };
    options.log.open_files = descriptors.segment_files;
    options.log.topics = u32::try_from(config.topics_max()).unwrap_or(u32::MAX);
    let data = &config.data;
    let opened = EmbeddedStore::open(data, Arc::clone(clock), options).await;
    // The command that repairs is told as the operator can type it.
    let named =
        |error: OpenError| error.to_string().replace("--data DIR", &format!("--data {}", data.display()));
    let (store, report) = opened.map_err(|error| anyhow!("open {}: {}", data.display(), named(error)))?;
    for damage in &report.damage {
        error!(
            "the data directory is damaged: {damage}; stop the server and run `promethean verify --repair --data {}`",
            data.display()
        );
    }
    Ok(Arc::new(store))
}
