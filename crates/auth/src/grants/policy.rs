//! Rules as JSON, in the claim `policy` of a token.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::names::GrantNames;
use super::rule::Rule;
use super::scope::subject;

/// Rules of one policy, and topics or groups of one rule.
const ENTRIES_MAX: usize = 1_000;

/// A policy that is not fully understood. No part of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("policy: {0}")]
pub struct PolicyError(String);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuleEffect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Publish,
    Subscribe,
}

/// One rule as JSON. An unknown field is refused: it may be a condition, and a rule without its condition
/// allows more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRule {
    effect: RuleEffect,
    action: Action,
    topics: Vec<String>,
    groups: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    rules: Vec<PolicyRule>,
}

/// All rules of a policy, each with whether it denies.
pub(super) fn rules(policy: &Value) -> Result<Vec<(bool, Rule)>, PolicyError> {
    let read = if policy.is_array() {
        Vec::<PolicyRule>::deserialize(policy)
    } else {
        Wrapped::deserialize(policy).map(|wrapped| wrapped.rules)
    };
    let rules = read.map_err(|error| PolicyError(error.to_string()))?;
    bounded(rules.len())?;
    let mut all = Vec::new();
    for rule in &rules {
        one(rule, &mut all).map_err(PolicyError)?;
    }
    bounded(all.len())?;
    Ok(all)
}

fn bounded(count: usize) -> Result<(), PolicyError> {
    if count > ENTRIES_MAX {
        return Err(PolicyError(format!("more than {ENTRIES_MAX} rules; use patterns")));
    }
    Ok(())
}

/// Adds one rule for each topic and group that a JSON rule names.
fn one(rule: &PolicyRule, all: &mut Vec<(bool, Rule)>) -> Result<(), String> {
    let denies = matches!(rule.effect, RuleEffect::Deny);
    let groups = rule.groups.as_deref().unwrap_or_default();
    if rule.topics.len().saturating_mul(groups.len().max(1)) > ENTRIES_MAX {
        return Err(format!("a rule with more than {ENTRIES_MAX} topics and groups; use patterns"));
    }
    for topic in &rule.topics {
        let topic = subject(topic)?;
        match (rule.action, &rule.groups) {
            (Action::Publish, None) => all.push((denies, Rule::Publish(topic))),
            (Action::Publish, Some(_)) => {
                return Err("`publish` with `groups`, which it does not have".into());
            }
            (Action::Subscribe, None) => all.push((denies, Rule::Subscribe(topic, None))),
            // Without any group a denial would deny nothing, which its author cannot want.
            (Action::Subscribe, Some(groups)) if groups.is_empty() => {
                return Err("`groups` is empty; leave it out for any group".into());
            }
            (Action::Subscribe, Some(groups)) => {
                for group in groups {
                    let names = GrantNames::parse_words(group).map_err(|error| error.to_string())?;
                    all.push((denies, Rule::Subscribe(topic.clone(), Some(names))));
                }
            }
        }
    }
    Ok(())
}
