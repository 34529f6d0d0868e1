//! The configuration: a TOML file, then the environment, then flags; each replaces what the one before says.
//!
//! A key of the file is a field of `file::File` (or of one of its sections) and is used in `options`; its
//! default is that of the option. A key with a flag or an environment variable is a field of [`Overrides`] and
//! [`Config`] too.
//!
//! | module | holds |
//! | --- | --- |
//! | `file` | the keys of the file |
//! | `mistakes` | all mistakes of a file with their lines, for `lint` |
//! | `listen` | addresses to listen on, as people write them |
//! | `auth` | tokens and keys of the file, and who may be served without them |
//! | `reload` | reading tokens and keys again while the server runs |
//! | `options` | from keys to the options of bus and gateway |
//! | `overrides` | the environment and flags |
//! | `shown` | the settings that admins see |
//! | `state` | collections and projectors |

mod auth;
mod file;
mod listen;
mod mistakes;
mod options;
mod overrides;
mod reload;
mod shown;
mod state;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::Secret;
use promethean_gateway::options::{check_origins, check_stored_headers};
use promethean_model::{TopicName, TopicSettings, plain};
use promethean_projections::Declared;

pub(crate) use self::auth::read_secret;
use self::file::{File, LimitsSection};
pub(crate) use self::listen::parse_listen;
pub(crate) use self::mistakes::{ConfigMistake, find_line, mistakes};
pub(crate) use self::overrides::Overrides;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The permission of all users to write a file, and to read it.
const WRITABLE_BY_ALL: u32 = 0o002;
const READABLE_BY_ALL: u32 = 0o004;
const PORT_DEFAULT: u16 = 8090;
const DATA_DEFAULT: &str = "promethean-data";

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The addresses to listen on.
    pub(crate) listen: Vec<SocketAddr>,
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The name of the store; `promethean serve` knows which there are.
    pub(crate) store: Option<String>,
    /// Whether other machines may be served without authentication.
    pub(crate) insecure: bool,
    /// The declared collections, projectors, compactors and reducers.
    pub(crate) state: Declared,
    /// All other keys of the file; its paths are relative to the current directory.
    pub(crate) file: File,
    auth: auth::Auth,
    /// The path of the file, from which tokens are read again while the server runs.
    source: Option<PathBuf>,
    /// The token of the command line or the environment.
    token: Option<Secret>,
}

impl Config {
    /// Files with secrets that every user of the machine can read.
    pub(crate) fn readable_secrets(&self) -> Vec<&Path> {
        let is_readable = |path: &&Path| {
            std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & READABLE_BY_ALL != 0)
        };
        let key = self.file.tls.iter().map(|tls| tls.key.as_path());
        let secrets = self.auth.secret_files.iter().map(PathBuf::as_path);
        secrets.chain(key).filter(is_readable).collect()
    }
}

/// Reads a file. Paths in it are relative to its folder.
pub(crate) fn load(path: &Path) -> Result<Config> {
    let text = read_text(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let config = parse(&text, dir).with_context(|| format!("the configuration `{}`", path.display()))?;
    Ok(Config { source: Some(path.to_owned()), ..config })
}

/// Reads the file if one is named, then applies the environment, then the flags.
pub(crate) fn resolve(path: Option<&Path>, flags: Overrides) -> Result<Config> {
    let mut config = path.map_or_else(|| parse("", Path::new("")), load)?;
    config.apply(Overrides::from_environment(|name| std::env::var(name).ok())?)?;
    config.apply(flags)?;
    Ok(config)
}

/// Reads and checks the text of a file. Paths in it are relative to `dir`.
pub(crate) fn parse(text: &str, dir: &Path) -> Result<Config> {
    let mut file: File = toml::from_str(text).map_err(|error| explain(text, &error))?;
    check(&file)?;
    let default = || vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_DEFAULT))];
    let listen = file.listen.take().map(|listen| listen.into_vec().into_iter().map(|one| one.0).collect());
    let listen: Vec<SocketAddr> = listen.unwrap_or_else(default);
    if listen.is_empty() {
        bail!("`listen` names no address; leave it out for 127.0.0.1:{PORT_DEFAULT}");
    }
    let sections = state::Sections {
        collections: std::mem::take(&mut file.collections),
        projectors: std::mem::take(&mut file.projectors),
        changelogs: std::mem::take(&mut file.changelogs),
        compactors: std::mem::take(&mut file.compactors),
        reducers: std::mem::take(&mut file.reducers),
        reserved: file.audit.iter().map(|audit| audit.topic.clone()).collect(),
    };
    file.schemas = file.schemas.map(|schemas| dir.join(schemas));
    file.tls = file.tls.map(|section| section.in_dir(dir));
    Ok(Config {
        listen,
        data: file.data.take().map_or(DATA_DEFAULT.into(), |data| dir.join(data)),
        store: file.store.take(),
        insecure: false,
        state: sections.declared(dir)?,
        auth: file.auth.take().map(|section| auth::Auth::read(section, dir)).transpose()?.unwrap_or_default(),
        file,
        source: None,
        token: None,
    })
}

/// Checks what the types of the keys do not.
fn check(file: &File) -> Result<()> {
    check_origins(&file.allowed_origins).context("`allowed_origins`")?;
    check_stored_headers(file.stored_headers.iter().flatten()).context("`stored_headers`")?;
    if let Some(other) = file.durability.filter(|durability| !durability.is_embedded()) {
        bail!("`durability`: the embedded store does not offer `{other}`; use `fsync` or `os`");
    }
    for (name, settings) in &file.topics {
        check_topic(name, settings).with_context(|| format!("[topics.\"{name}\"]"))?;
    }
    if let Some(audit) = &file.audit {
        TopicName::parse_user(audit.topic.as_str()).context("[audit]")?;
    }
    file.limits.events.validate().context("[limits.events]")?;
    check_receiving(&file.limits)
}

/// Whether the server derives this topic from another one and writes it itself, as `orders.dlq`.
pub(crate) fn is_derived(topic: &TopicName) -> bool {
    topic.system_suffix().is_some() && !topic.as_str().starts_with('_')
}

/// Checks the settings of a topic. A topic that the server writes can have retention and durability only.
fn check_topic(topic: &TopicName, settings: &TopicSettings) -> Result<()> {
    settings.validate()?;
    if let Some(word) = settings.durability.filter(|word| !word.is_embedded()) {
        bail!("no store of this server offers durability `{word}`; use `fsync` or `os`");
    }
    if !is_derived(topic) {
        TopicName::parse_user(topic.as_str())?;
        return Ok(());
    }
    let plain = TopicSettings {
        retention: settings.retention,
        durability: settings.durability,
        ..TopicSettings::default()
    };
    let (given, plain) = (serde_json::to_value(settings)?, serde_json::to_value(plain)?);
    let fields = given.as_object().into_iter().flatten();
    let others = fields.filter(|(name, value)| plain.get(name.as_str()) != Some(value));
    let others: Vec<String> = others.map(|(name, _)| format!("`{name}`")).collect();
    ensure!(
        others.is_empty(),
        "the server writes this topic, so only `retention` and `durability` can be set for it; leave out {}",
        others.join(", ")
    );
    Ok(())
}

/// Refuses budgets that could never hold a message of the largest size.
fn check_receiving(limits: &LimitsSection) -> Result<()> {
    let default = GatewayOptions::default();
    let all = limits.receiving_bytes.map_or(default.receiving_bytes_max, Into::into);
    let token = limits.token_receiving_bytes.map_or(default.token_receiving_bytes_max, Into::into);
    let message = limits.events.message_bytes_max;
    for (key, bytes) in [("receiving_bytes", all), ("token_receiving_bytes", token)] {
        ensure!(
            bytes >= message,
            "[limits]: `{key}` is {bytes}, less than one message may have (`message_bytes_max` of [limits.events], \
             {message}); raise `{key}`, or lower `message_bytes_max`"
        );
    }
    Ok(())
}

/// Reads a text file of at most [`FILE_BYTES_MAX`].
pub(crate) fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| anyhow!("`{}` is not text", path.display()))
}

/// Reads a file; one that is too large was named by mistake. A file that every user of the machine can write is
/// refused: its content decides who may use the server.
fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let read = opened.and_then(|(metadata, file)| {
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(metadata)
    });
    let metadata = read
        .with_context(|| format!("cannot read `{}`; check the path and who may read it", path.display()))?;
    ensure!(
        !(metadata.is_file() && metadata.mode() & WRITABLE_BY_ALL != 0),
        "every user of this machine can write `{0}`; remove that right with `chmod o-w {0}`",
        path.display()
    );
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("`{}` has more than 4 MiB; check the path", path.display());
    }
    Ok(bytes)
}

/// An error with its line and reason. It leaves out the text of the line and any text of a wrong type, which
/// may be a secret.
fn explain(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let message = error.message();
    let message = match (message.split_once("string \""), message.rsplit_once('"')) {
        (Some((before, _)), Some((_, after))) if message.starts_with("invalid") => {
            format!("{before}string{after}")
        }
        _ => message.to_owned(),
    };
    let message = plain::reason(&message, "a table");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => anyhow!("line {}: {message}", before.matches('\n').count() + 1),
        None => anyhow!("{message}"),
    }
}
