//! The accesses that a client can ask for, and the rules that allow or deny them.
//!
//! | module | holds |
//! | --- | --- |
//! | `rule` | one rule, which allows or denies accesses |
//! | `scope` | rules as texts, `publish:orders.*` |
//! | `policy` | rules as JSON, `{effect, action, topics, groups}` |
//! | `names` | which groups or collections a rule is about |

mod names;
mod policy;
mod rule;
mod scope;

use std::fmt;

pub use policy::PolicyError;
use promethean_delivery::Subject;
use promethean_model::{GroupName, TopicName};
pub use scope::ScopeError;

use self::rule::Rule;

/// One access that a client asks for.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// Publish to a topic.
    Publish(&'a TopicName),
    /// Subscribe to or read a topic or pattern, its dead letters and snapshots; in a group, or without one.
    Subscribe(&'a Subject, Option<&'a GroupName>),
    /// Read a collection.
    Read(&'a str),
    /// Seek, pause and delete groups, redrive, change settings and schemas.
    Manage(&'a Subject),
    /// Calls that concern no topic.
    Admin,
}

/// The rules of a client. An access is allowed only if a rule grants it and no rule denies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

impl Grants {
    /// Grants that allow everything.
    pub fn everything() -> Self {
        Self { allow: vec![Rule::Admin], deny: Vec::new() }
    }

    /// Parses scopes; one that is not understood is an error.
    pub fn parse<S: AsRef<str>>(scopes: impl IntoIterator<Item = S>) -> Result<Self, ScopeError> {
        let mut grants = Self::default();
        for text in scopes {
            let (denies, rule) = scope::parse(text.as_ref())?;
            grants.push(denies, rule);
        }
        Ok(grants)
    }

    /// As [`Grants::parse`], for tokens of other issuers, which also have scopes for other services, such as
    /// `openid`: a scope that is not understood allows nothing. A denial that is not understood is an error.
    pub fn parse_foreign<S: AsRef<str>>(scopes: impl IntoIterator<Item = S>) -> Result<Self, ScopeError> {
        let mut grants = Self::default();
        for text in scopes {
            match scope::parse(text.as_ref()) {
                Ok((denies, rule)) => grants.push(denies, rule),
                Err(error) if scope::is_denial(text.as_ref()) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(grants)
    }

    /// Parses a policy: a list of `{effect, action, topics, groups?}`, or `{rules: [...]}`.
    pub fn from_policy(policy: &serde_json::Value) -> Result<Self, PolicyError> {
        let mut grants = Self::default();
        for (denies, rule) in policy::rules(policy)? {
            grants.push(denies, rule);
        }
        Ok(grants)
    }

    /// Adds the rules of other grants; a denial of either side holds for both.
    pub fn and(mut self, other: Self) -> Self {
        self.allow.extend(other.allow);
        self.deny.extend(other.deny);
        self
    }

    /// Whether an access is allowed. A pattern must be contained in a single grant, and no part of it may be
    /// denied.
    pub fn allow(&self, access: &Access<'_>) -> bool {
        self.allow.iter().any(|rule| rule.covers(access))
            && !self.deny.iter().any(|rule| rule.touches(access))
    }

    /// Whether no access is allowed.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty()
    }

    /// All rules as scopes, denials last.
    pub fn scopes(&self) -> Vec<String> {
        let denied = self.deny.iter().map(|rule| format!("!{rule}"));
        self.allow.iter().map(Rule::to_string).chain(denied).collect()
    }

    fn push(&mut self, denies: bool, rule: Rule) {
        let rules = if denies { &mut self.deny } else { &mut self.allow };
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scopes().join(" "))
    }
}
