//! Which headers of a request become headers of the event.
//!
//! Clients and proxies add headers that do not belong to the event, and some of them are credentials: stored,
//! they would reach every consumer of the topic.

use std::collections::BTreeSet;

use axum::http::HeaderName;
use thiserror::Error;

/// A header whose name contains one of these may be a credential, or the identity that a proxy vouches for.
const SECRET_WORDS: &[&str] = &[
    "auth",
    "token",
    "jwt",
    "secret",
    "pass",
    "pwd",
    "cookie",
    "session",
    "bearer",
    "credential",
    "assertion",
    "oidc",
    "principal",
    "cert",
    "api-key",
    "apikey",
    "forwarded",
    "amzn",
    "goog",
    "ms-client",
];

/// Names that are stored besides `x-*`.
const OTHER_NAMES: &[&str] = &["content-type", "t0", "traceparent", "tracestate"];
/// These are fields of the event already.
const FIELDS: &[&str] = &["x-event-id", "x-event-key"];

/// Which headers of a publish request become headers of the event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum StoredHeaders {
    /// Stores `x-*` and a few others, unless their name looks like a credential's.
    #[default]
    Plain,
    /// The names that the configuration lists, in lower case.
    Listed(BTreeSet<String>),
}

/// A text that is not the name of a header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not the name of a header; write whole names such as `x-region`, without `*`")]
pub struct HeaderNameError(String);

/// Checks the names of `GatewayOptions::stored_headers`.
pub fn check_stored_headers<S: AsRef<str>>(
    names: impl IntoIterator<Item = S>,
) -> Result<(), HeaderNameError> {
    names.into_iter().try_for_each(|name| {
        let name = name.as_ref();
        // A name may have a `*`, but in a list it is meant as a pattern, which is not supported.
        let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok() && !name.contains('*');
        if is_name { Ok(()) } else { Err(HeaderNameError(name.chars().take(100).collect())) }
    })
}

/// Whether the name of a header looks like that of a credential.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

impl StoredHeaders {
    /// Follows the list of the configuration, if there is one.
    pub(crate) fn new(listed: Option<&[String]>) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        listed.map_or(Self::Plain, |names| Self::Listed(lower(names)))
    }

    /// Whether a header of this name, in lower case, is stored.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            _ if FIELDS.contains(&name) => false,
            Self::Listed(names) => names.contains(name),
            Self::Plain => OTHER_NAMES.contains(&name) || name.starts_with("x-") && !is_credential(name),
        }
    }
}

/// Whether the media type is that of a form. `curl -d` sends it with any body, so it says nothing about the
/// payload.
pub(super) fn is_form(media_type: &str) -> bool {
    media_type == "application/x-www-form-urlencoded" || media_type.starts_with("multipart/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers that proxies and clients use for credentials and identities.
    const CREDENTIALS: &[&str] = &[
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-api-key",
        "x-apikey",
        "x-auth-request-email",
        "x-auth-token",
        "x-csrf-token",
        "x-session-id",
        "x-amz-security-token",
        "x-goog-iam-authorization-token",
        "x-goog-iap-jwt-assertion",
        "x-goog-authenticated-user-email",
        "x-amzn-oidc-data",
        "x-amzn-oidc-identity",
        "x-amzn-oidc-accesstoken",
        "x-amzn-mtls-clientcert",
        "x-ms-client-principal",
        "x-ms-client-principal-name",
        "x-ms-token-aad-id-token",
        "x-forwarded-client-cert",
        "x-forwarded-for",
        "x-forwarded-user",
        "x-forwarded-access-token",
        "x-client-cert",
        "x-ssl-client-cert",
        "x-jwt-payload",
        "x-user-password",
        "x-pwd",
        "x-bearer",
        "x-vault-secret",
        "x-remote-principal",
    ];

    #[test]
    fn credentials_are_never_stored() {
        let plain = StoredHeaders::default();
        for name in ["x-region", "x-request-id", "content-type", "traceparent", "tracestate", "t0", "x-t0"] {
            assert!(plain.has(name), "{name}");
        }
        for name in CREDENTIALS.iter().chain(&["host", "user-agent", "accept", "x-event-id", "x-event-key"]) {
            assert!(!plain.has(name), "{name}");
        }
        assert!(CREDENTIALS.iter().all(|name| is_credential(name)));
        assert!(is_credential("X-API-Key") && !is_credential("x-region"));
    }

    #[test]
    fn a_list_replaces_the_rule() {
        let listed = StoredHeaders::new(Some(&["X-Region".to_owned(), "x-forwarded-for".to_owned()]));
        assert!(listed.has("x-region") && listed.has("x-forwarded-for"));
        for name in ["x-other", "content-type", "traceparent", "x-event-id"] {
            assert!(!listed.has(name), "{name}");
        }
        assert!(!StoredHeaders::new(Some(&[])).has("x-region"), "an empty list stores nothing");
        assert_eq!(StoredHeaders::new(None), StoredHeaders::Plain);
    }

    #[test]
    fn names_are_checked() {
        assert_eq!(check_stored_headers(["x-region", "X-Region", "t0"]), Ok(()));
        for name in ["", "x region", "x-*", "x:y", "x-\u{e4}"] {
            assert!(check_stored_headers([name]).is_err(), "{name}");
        }
    }
}
