//! Checks of the configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use promethean_gateway::options::is_credential;
use promethean_model::{Clock, SchemaRule, SystemClock, TopicName, TopicSettings};

use super::finding::{LintFindings, LintRule};
use super::names;
use crate::config::{self, Config, ConfigMistake};

/// The parts of a configuration that other checks need.
#[derive(Debug, Default)]
pub(super) struct Configured {
    pub(super) topics: BTreeMap<TopicName, TopicSettings>,
    pub(super) schemas: Option<PathBuf>,
    /// The options of the bus that a server would open.
    pub(super) options: promethean_bus::BusOptions,
}

pub(super) fn check(path: &Path, findings: &mut LintFindings) -> Result<Configured> {
    if !path.is_file() {
        bail!("there is no file `{}`; check --config", path.display());
    }
    let loaded = config::load(path);
    let configured = match &loaded {
        Ok(config) => {
            exposure(config, path, findings);
            headers(config, path, findings);
            let options = config.bus_options();
            Configured { topics: config.file.topics.clone(), schemas: config.file.schemas.clone(), options }
        }
        Err(error) => salvage(path, error, findings),
    };
    for (topic, settings) in &configured.topics {
        let place = section(path, topic.as_str());
        if !config::is_derived(topic) {
            names::check(topic, &place, findings);
        }
        contradictions(settings, &place, findings);
    }
    Ok(configured)
}

/// Gives the findings of the file their lines: that of their section, or of the key that they name.
pub(super) fn locate(path: &Path, findings: &mut LintFindings) {
    let text = config::read_text(path).unwrap_or_default();
    findings.locate(&path.display().to_string(), |finding| {
        let section = finding.place.split_once(" [").map(|(_, section)| format!("[{section}"));
        let by_section = section.and_then(|section| config::find_line(&text, &section));
        by_section.or_else(|| config::find_line(&text, &finding.what))
    });
}

pub(super) fn section(path: &Path, topic: &str) -> String {
    format!("{} [topics.\"{topic}\"]", path.display())
}

/// Reads what is readable of a file that the server refuses: the names of all topics, and the settings that
/// are valid.
fn salvage(path: &Path, error: &anyhow::Error, findings: &mut LintFindings) -> Configured {
    let mut configured = Configured::default();
    let text = config::read_text(path).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let (mistakes, rest) = config::mistakes(&text, path.parent().unwrap_or(Path::new("")));
    let rest: toml::Table = toml::from_str(&rest).unwrap_or_default();
    let mut reported = false;
    for (name, settings) in table.get("topics").and_then(toml::Value::as_table).into_iter().flatten() {
        let place = section(path, name);
        let Some(topic) = names::read(name, &place, findings) else {
            reported = true;
            continue;
        };
        // A name that only the server may use is reported with the other names.
        reported |= topic.is_system() && !config::is_derived(&topic);
        let settings = rest.get("topics").and_then(|topics| topics.get(name)).unwrap_or(settings);
        let settings = settings.clone().try_into::<TopicSettings>().unwrap_or_default();
        configured.topics.insert(topic, settings);
    }
    let place = path.display().to_string();
    let is_known = |message: &str| reported && message.contains("topic name");
    for ConfigMistake { line, what, fix } in &mistakes {
        if !is_known(what) {
            findings.add_at(*line, LintRule::ConfigInvalid, &place, what, fix);
        }
    }
    // The file itself can be refused, for example because other users may write it.
    if mistakes.is_empty() {
        let (what, fix) = split(&format!("{error:#}"));
        findings.add(LintRule::ConfigInvalid, place, what, fix);
    }
    let schemas = table.get("schemas").and_then(toml::Value::as_str);
    configured.schemas = schemas.map(|schemas| path.parent().unwrap_or(Path::new("")).join(schemas));
    configured
}

/// Reports settings that contradict each other.
fn contradictions(settings: &TopicSettings, place: &str, findings: &mut LintFindings) {
    let retention = &settings.retention;
    let limits = [
        ("age", retention.age.is_some()),
        ("bytes", retention.bytes.is_some()),
        ("count", retention.count.is_some()),
    ];
    for (limit, _) in limits.into_iter().filter(|(_, given)| settings.compacted && *given) {
        let what =
            format!("`compacted` keeps the latest event of each key, and `retention.{limit}` drops it");
        findings.add(
            LintRule::SettingsContradict,
            place,
            what,
            format!("leave out one of them, preferably `retention.{limit}`"),
        );
    }
    let default = TopicSettings::default();
    if settings.schema == SchemaRule::Off
        && (settings.compat, settings.undeclared) != (default.compat, default.undeclared)
    {
        let what = "`schema` is `off`, so no payload is checked, and still `compat` or `undeclared` is set";
        findings.add(LintRule::SettingsContradict, place, what, "leave out `schema`, or the others");
    }
}

/// Reports headers that look like credentials and would be stored with events.
fn headers(config: &Config, path: &Path, findings: &mut LintFindings) {
    for name in config.file.stored_headers.iter().flatten().filter(|name| is_credential(name)) {
        let what = format!(
            "`stored_headers` names `{name}`, which looks like a credential, and every consumer of the topic would read it"
        );
        findings.add(LintRule::HeaderCredential, path.display().to_string(), what, "leave it out");
    }
}

/// Reports a server that other machines could reach without authentication or TLS, and missing TLS files.
fn exposure(config: &Config, path: &Path, findings: &mut LintFindings) {
    let place = path.display().to_string();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = config.gateway_options();
    match config.authenticator(&clock) {
        Err(error) => {
            let what = format!("authentication cannot be set up: {error:#}");
            findings.add(LintRule::ConfigInvalid, &place, what, "the server would not start; correct [auth]");
        }
        Ok(auth) => {
            if let Err(error) = config.check_exposure(&*auth) {
                let (what, fix) = split(&error.to_string());
                findings.add(LintRule::Exposure, &place, what, fix);
            }
        }
    }
    if let (Some(address), None) = (config.exposed_address(), &options.tls) {
        let what = format!(
            "{address} can be reached from other machines without TLS, so tokens and events can be read on the way"
        );
        findings.add(
            LintRule::ExposurePlain,
            &place,
            what,
            "add [tls], or listen on 127.0.0.1 behind a proxy that has it",
        );
    }
    for file in config.readable_secrets() {
        let what = format!("every user of this machine can read `{}`, which holds a secret", file.display());
        findings.add(LintRule::SecretReadable, &place, what, "remove that right with `chmod o-r`");
    }
    for file in options.tls.iter().flat_map(|tls| [&tls.certificate, &tls.key]) {
        if !file.is_file() {
            let what = format!("[tls] names `{}`, which is not there", file.display());
            findings.add(
                LintRule::FileMissing,
                &place,
                what,
                "correct the path, which is relative to the configuration",
            );
        }
    }
}

/// Splits a message of the form "what is wrong; what to do".
fn split(message: &str) -> (String, String) {
    let (what, fix) = message.split_once("; ").unwrap_or((message, "correct it"));
    (what.to_owned(), fix.to_owned())
}
