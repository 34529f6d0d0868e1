//! Rules as scopes, such as `publish:orders.*`.

use promethean_delivery::Subject;
use promethean_model::limits::{PLAIN_NAME_BYTES_MAX, TOPIC_NAME_BYTES_MAX};
use thiserror::Error;

use super::names::GrantNames;
use super::rule::Rule;

/// Bytes of the longest possible scope: `!subscribe:` TOPIC `@` GROUP `**`.
const SCOPE_BYTES_MAX: usize = TOPIC_NAME_BYTES_MAX + PLAIN_NAME_BYTES_MAX + 16;

/// A text that is not a scope. The message says what to change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("scope `{scope}`: {reason}")]
pub struct ScopeError {
    /// The beginning of the text.
    pub scope: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Whether the scope denies.
pub(super) fn is_denial(text: &str) -> bool {
    text.starts_with('!')
}

/// Parses a scope into a rule and whether it denies.
pub(super) fn parse(text: &str) -> Result<(bool, Rule), ScopeError> {
    let fail = |reason: String| ScopeError { scope: text.chars().take(60).collect(), reason };
    if text.len() > SCOPE_BYTES_MAX {
        return Err(fail(format!("longer than {SCOPE_BYTES_MAX} bytes; no topic and group need that many")));
    }
    let (denies, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    rule(rest).map(|rule| (denies, rule)).map_err(fail)
}

fn rule(text: &str) -> Result<Rule, String> {
    match text {
        "admin" => return Ok(Rule::Admin),
        "topic:write" => return Ok(Rule::Publish(subject("**")?)),
        "topic:read" => return Ok(Rule::Subscribe(subject("**")?, None)),
        _ => {}
    }
    let (verb, object) = text.split_once(':').unwrap_or((text, ""));
    match verb {
        "publish" => Ok(Rule::Publish(subject(object)?)),
        "manage" => Ok(Rule::Manage(subject(object)?)),
        "read" => Ok(Rule::Read(GrantNames::parse(object).map_err(|error| error.to_string())?)),
        "subscribe" => match object.split_once('@') {
            None => Ok(Rule::Subscribe(subject(object)?, None)),
            Some((object, group)) => {
                let groups = GrantNames::parse(group).map_err(|error| error.to_string())?;
                Ok(Rule::Subscribe(subject(object)?, Some(groups)))
            }
        },
        _ => Err(
            "unknown; use `publish:TOPIC`, `subscribe:TOPIC`, `subscribe:TOPIC@GROUP`, `read:COLLECTION`, \
                  `manage:TOPIC` or `admin`, each with `!` before it to deny"
                .to_owned(),
        ),
    }
}

pub(super) fn subject(text: &str) -> Result<Subject, String> {
    text.parse().map_err(|error: promethean_delivery::DeliveryError| error.to_string())
}
