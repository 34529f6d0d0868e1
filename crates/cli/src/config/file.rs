//! The keys of the configuration file. Unknown keys are refused.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use promethean_bus::limits::Rate;
use promethean_gateway::auth::{Quota, Secret, TokenHash};
use promethean_model::{CollectionName, Limits, Millis, Moment, TopicName, TopicSettings};
use serde::{Deserialize, Deserializer, de};
use toml::value::Datetime;

use super::state::{ChangelogSection, CollectionSection, CompactorSection, ProjectorSection};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(super) listen: Option<OneOrMany<SocketAddr>>,
    pub(super) data: Option<PathBuf>,
    pub(super) store: Option<String>,
    pub(super) allowed_origins: Vec<String>,
    /// Headers of requests that become headers of events; without it, the rule of the gateway.
    pub(crate) stored_headers: Option<Vec<String>>,
    pub(super) auto_create_topics: Option<bool>,
    pub(super) auth: Option<AuthSection>,
    pub(super) tls: Option<TlsSection>,
    pub(super) audit: Option<AuditSection>,
    pub(super) limits: LimitsSection,
    /// Settings of topics; they replace earlier ones.
    pub(crate) topics: BTreeMap<TopicName, TopicSettings>,
    /// A folder of schemas and of programs between their versions, registered at the start.
    pub(crate) schemas: Option<PathBuf>,
    pub(super) collections: BTreeMap<CollectionName, CollectionSection>,
    pub(super) projectors: Vec<ProjectorSection>,
    pub(super) changelogs: Vec<ChangelogSection>,
    pub(super) compactors: Vec<CompactorSection>,
    /// The reducer of a topic: `latest`, `merge`, or a jq program.
    pub(super) reducers: BTreeMap<TopicName, String>,
    /// How long clients may cache a document.
    pub(super) max_age_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthSection {
    pub(super) tokens: Vec<TokenEntry>,
    /// A separate file with `[[tokens]]`.
    pub(super) tokens_file: Option<PathBuf>,
    /// How often the server checks whether tokens and keys have changed.
    pub(super) check_every: Option<Span>,
    pub(super) jwt: Option<JwtSection>,
}

/// The file that `tokens_file` names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokensFile {
    pub(super) tokens: Vec<TokenEntry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenEntry {
    pub(super) name: String,
    pub(super) sha256: TokenHash,
    pub(super) scopes: Vec<String>,
    #[serde(default, deserialize_with = "moment")]
    pub(super) expires: Option<Moment>,
    /// Limits that are not given are those of `[limits.token]`.
    #[serde(default)]
    pub(super) limits: Quota,
}

/// Exactly one of the first five keys is given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtSection {
    pub(super) secret: Option<Secret>,
    pub(super) secret_file: Option<PathBuf>,
    pub(super) public_key_file: Option<PathBuf>,
    pub(super) jwks_file: Option<PathBuf>,
    pub(super) jwks_url: Option<String>,
    pub(super) jwks_ca_file: Option<PathBuf>,
    pub(super) jwks_plain_http: bool,
    pub(super) jwks_refresh: Option<Span>,
    pub(super) jwks_max_age: Option<Span>,
    pub(super) issuer: Option<String>,
    pub(super) audience: Option<OneOrMany<String>>,
    pub(super) leeway: Option<Millis>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) check_every: Option<Span>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditSection {
    pub(super) topic: TopicName,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsSection {
    pub(super) connections: Option<NonZeroUsize>,
    pub(super) subscriptions: Option<NonZeroUsize>,
    pub(super) receiving_bytes: Option<NonZeroUsize>,
    pub(super) token_receiving_bytes: Option<NonZeroUsize>,
    pub(super) unknown_message_bytes: Option<NonZeroUsize>,
    pub(super) auth_timeout: Option<Span>,
    pub(super) head_timeout: Option<Span>,
    pub(super) idle_timeout: Option<Span>,
    pub(super) body_timeout: Option<Span>,
    pub(super) ping_every: Option<Span>,
    pub(super) write_timeout: Option<Span>,
    pub(super) publish_rate: Option<Rate>,
    pub(super) delivery_rate: Option<Rate>,
    pub(super) topic_rate: Option<Rate>,
    pub(super) rated_topics: Option<NonZeroUsize>,
    pub(super) series: Option<NonZeroUsize>,
    pub(super) group_page_bytes: Option<NonZeroUsize>,
    pub(super) auth_failures: FailuresSection,
    /// The limits of every token that has none of its own.
    pub(super) token: Quota,
    pub(super) events: Limits,
}

/// The limit on invalid tokens from one address.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FailuresSection {
    pub(super) burst: Option<NonZeroU32>,
    pub(super) every: Option<Span>,
    pub(super) addresses: Option<NonZeroUsize>,
}

/// A length of time above zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) u64);

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "not understood; give one, or a list of them in `[...]`")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

impl TlsSection {
    pub(super) fn in_dir(self, dir: &Path) -> Self {
        Self { certificate: dir.join(self.certificate), key: dir.join(self.key), ..self }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Millis::deserialize(deserializer)?.get() {
            0 => Err(de::Error::custom("a length of time of 0; give at least `1ms`")),
            ms => Ok(Self(ms)),
        }
    }
}

/// Reads a TOML date as a moment. A date without time or offset is refused.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Moment>, D::Error> {
    let datetime = Datetime::deserialize(deserializer)?;
    datetime.to_string().parse().map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Moment, toml::de::Error> {
        #[derive(Deserialize)]
        struct Table {
            #[serde(deserialize_with = "moment")]
            t: Option<Moment>,
        }
        toml::from_str::<Table>(&format!("t = {text}")).map(|table| table.t.unwrap())
    }

    #[test]
    fn reads_dates() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799_000),
            ("2027-01-31T12:00:00+02:00", 1_801_389_600_000),
            ("2024-12-31T23:30:00-01:00", 1_735_691_400_000),
            ("1969-12-31T23:59:59.5Z", -500),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(read(text).unwrap().ms(), ms, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_another_moment_elsewhere() {
        for text in ["2027-01-31", "2027-01-31T12:00:00", "12:00:00", "\"2027-01-31T12:00:00Z\"", "5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
