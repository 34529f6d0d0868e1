//! The configuration: a TOML file, over which the environment and then flags are laid.
//!
//! | module | holds |
//! | --- | --- |
//! | `file` | what a file may say |
//! | `auth` | from that to who is let in |
//! | `reload` | tokens and keys that change while the server runs |
//! | `limits` | from that to the options of bus and gateway |
//! | `overrides` | what the environment and flags say |
//! | `exposure` | who may be served without authentication |
//! | `state` | collections and projectors |

mod auth;
mod exposure;
mod file;
mod limits;
mod overrides;
mod reload;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use promethean_gateway::auth::Secret;
use promethean_gateway::options::check_origins;
use promethean_model::{TopicName, TopicSettings};
use promethean_projections::Declared;

pub(crate) use self::auth::read_secret;
use self::file::{File, LimitsSection, TlsSection};
pub(crate) use self::overrides::Overrides;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
const PORT_DEFAULT: u16 = 8090;
const DATA_DEFAULT: &str = "promethean-data";

/// Everything that can be set.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where to listen.
    pub(crate) listen: Vec<SocketAddr>,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// Where events live; the serving command knows which there are.
    pub(crate) store: Option<String>,
    /// Whether other machines may be served without authentication.
    pub(crate) insecure: bool,
    /// Settings of topics, which hold whatever was set before.
    pub(crate) topics: BTreeMap<TopicName, TopicSettings>,
    /// A folder of schemas, which are registered at the start.
    pub(crate) schemas: Option<PathBuf>,
    /// Collections and projectors.
    pub(crate) state: Declared,
    max_age_seconds: Option<u32>,
    allowed_origins: Vec<String>,
    auto_create: bool,
    auth: auth::Auth,
    tls: Option<TlsSection>,
    audit: Option<TopicName>,
    limits: LimitsSection,
    /// The file all this is from; tokens are read from it again.
    source: Option<PathBuf>,
    /// The one token of the command line or the environment.
    token: Option<Secret>,
}

impl Default for Config {
    /// What is served without any configuration.
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_DEFAULT))],
            data: DATA_DEFAULT.into(),
            store: None,
            insecure: false,
            topics: BTreeMap::new(),
            schemas: None,
            state: Declared::default(),
            max_age_seconds: None,
            allowed_origins: Vec::new(),
            auto_create: true,
            auth: auth::Auth::default(),
            tls: None,
            audit: None,
            limits: LimitsSection::default(),
            source: None,
            token: None,
        }
    }
}

/// Reads a file. Paths in it are relative to where it is.
pub(crate) fn load(path: &Path) -> Result<Config> {
    let text = read_text(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let config = parse(&text, dir).with_context(|| format!("the configuration `{}`", path.display()))?;
    Ok(Config { source: Some(path.to_owned()), ..config })
}

/// All that there is: the file if one is named, over it the environment, over that the flags.
pub(crate) fn resolve(path: Option<&Path>, flags: Overrides) -> Result<Config> {
    let mut config = path.map(load).transpose()?.unwrap_or_default();
    config.apply(Overrides::from_environment(|name| std::env::var(name).ok())?)?;
    config.apply(flags)?;
    Ok(config)
}

/// Reads a file's text. Paths in it are relative to `dir`.
pub(crate) fn parse(text: &str, dir: &Path) -> Result<Config> {
    let file: File = toml::from_str(text).map_err(|error| explain(text, &error))?;
    let default = Config::default();
    let listen = file.listen.map_or(default.listen, file::OneOrMany::into_vec);
    if listen.is_empty() {
        bail!("`listen` names no address; leave it out for 127.0.0.1:{PORT_DEFAULT}");
    }
    check_origins(&file.allowed_origins).context("`allowed_origins`")?;
    for (name, settings) in &file.topics {
        TopicName::parse_user(name.as_str()).with_context(|| format!("[topics.\"{name}\"]"))?;
        settings.validate().with_context(|| format!("[topics.\"{name}\"]"))?;
    }
    if let Some(audit) = &file.audit {
        TopicName::parse_user(audit.topic.as_str()).context("[audit]")?;
    }
    file.limits.events.validate().context("[limits.events]")?;
    let sections = state::Sections {
        collections: file.collections,
        projectors: file.projectors,
        changelogs: file.changelogs,
        compactors: file.compactors,
        reducers: file.reducers,
    };
    Ok(Config {
        listen,
        data: file.data.map_or(default.data, |data| dir.join(data)),
        store: file.store,
        insecure: false,
        topics: file.topics,
        schemas: file.schemas.map(|schemas| dir.join(schemas)),
        state: sections.declared(dir)?,
        max_age_seconds: file.max_age_seconds,
        allowed_origins: file.allowed_origins,
        auto_create: file.auto_create_topics.unwrap_or(true),
        auth: file.auth.map(|section| auth::Auth::read(section, dir)).transpose()?.unwrap_or_default(),
        audit: file.audit.map(|section| section.topic),
        tls: file.tls.map(|section| section.in_dir(dir)),
        limits: file.limits,
        source: None,
        token: None,
    })
}

fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| anyhow!("`{}` is not text", path.display()))
}

/// All of a file that is not too large to be meant.
fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read `{}`; check the path and who may read it", path.display()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("`{}` has more than 4 MiB; check the path", path.display());
    }
    Ok(bytes)
}

/// Line and reason. The line's text is left out, and so is any text that is of a wrong type: it may be a secret.
fn explain(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let message = error.message();
    let message = match (message.split_once("string \""), message.rsplit_once('"')) {
        (Some((before, _)), Some((_, after))) if message.starts_with("invalid") => {
            format!("{before}a text{after}")
        }
        _ => message.to_owned(),
    };
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => anyhow!("line {}: {message}", before.matches('\n').count() + 1),
        None => anyhow!("{message}"),
    }
}
