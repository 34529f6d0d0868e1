//! The keys of the configuration file. Unknown keys are refused.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use promethean_bus::limits::Rate;
use promethean_gateway::auth::{Quota, Secret, TokenHash};
use promethean_model::{CollectionName, Durability, Limits, Millis, Moment, TopicName, TopicSettings};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, de};
use toml::value::Datetime;

use super::listen::ListenAddress;
use super::state::{ChangelogSection, CollectionSection, CompactorSection, ProjectorSection};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(super) listen: Option<OneOrMany<ListenAddress>>,
    pub(super) data: Option<PathBuf>,
    pub(super) store: Option<String>,
    /// The most bytes of events that the store `memory` keeps.
    pub(super) memory_bytes: Option<NonZeroU64>,
    /// The durability of events whose topic names none, in the embedded store.
    pub(super) durability: Option<Durability>,
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
    pub(super) check_every: Option<SpanText>,
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
    pub(super) jwks_refresh: Option<SpanText>,
    pub(super) jwks_max_age: Option<SpanText>,
    pub(super) issuer: Option<String>,
    pub(super) audience: Option<OneOrMany<String>>,
    pub(super) leeway: Option<Millis>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) check_every: Option<SpanText>,
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
    pub(super) auth_timeout: Option<SpanText>,
    pub(super) head_timeout: Option<SpanText>,
    pub(super) idle_timeout: Option<SpanText>,
    pub(super) body_timeout: Option<SpanText>,
    pub(super) ping_every: Option<SpanText>,
    pub(super) write_timeout: Option<SpanText>,
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
    pub(super) every: Option<SpanText>,
    pub(super) addresses: Option<NonZeroUsize>,
}

/// A length of time above zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanText(pub(super) u64);

/// One text, or a list of texts.
#[derive(Debug, Clone)]
pub(super) struct OneOrMany<T>(Vec<T>);

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        self.0
    }
}

/// Not derived with `untagged`, which would hide why the text is refused.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Texts<T> {
            type Value = Vec<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a text, or a list of texts in `[...]`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
                T::deserialize(text.into_deserializer()).map(|one| vec![one])
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list))
            }
        }

        deserializer.deserialize_any(Texts(PhantomData)).map(Self)
    }
}

impl TlsSection {
    pub(super) fn in_dir(self, dir: &Path) -> Self {
        Self { certificate: dir.join(self.certificate), key: dir.join(self.key), ..self }
    }
}

impl<'de> Deserialize<'de> for SpanText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Millis::deserialize(deserializer)?.get() {
            0 => Err(de::Error::custom("the length of time is 0; give at least `1ms`")),
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
