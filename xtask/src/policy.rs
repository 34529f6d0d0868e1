//! `xtask/policy.json`: what the dependency checks let through, each exception with its reason.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::repo::Repo;

pub(crate) const PATH: &str = "xtask/policy.json";

pub(crate) struct Policy {
    /// SPDX identifiers, `X WITH Y` spelled whole.
    pub(crate) licences: Vec<String>,
    /// Crate name -> why two versions of it are accepted.
    pub(crate) duplicates: BTreeMap<String, String>,
}

impl Policy {
    pub(crate) fn load(repo: &Repo) -> Result<Self> {
        Self::parse(&repo.read(PATH)?).with_context(|| format!("parse {PATH}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let fields = value.as_object().context("expected an object")?;
        if let Some(unknown) = fields.keys().find(|key| !matches!(key.as_str(), "licences" | "duplicates")) {
            bail!("unknown key `{unknown}`");
        }
        let mut licences = Vec::new();
        for licence in
            value.get("licences").and_then(Value::as_array).context("expected a list `licences`")?
        {
            licences.push(licence.as_str().context("a licence is a string")?.to_owned());
        }
        let mut duplicates = BTreeMap::new();
        for (name, reason) in
            value.get("duplicates").and_then(Value::as_object).context("expected an object `duplicates`")?
        {
            let reason = reason.as_str().filter(|reason| !reason.trim().is_empty());
            let reason = reason.with_context(|| format!("the exception for `{name}` needs a reason"))?;
            duplicates.insert(name.clone(), reason.to_owned());
        }
        Ok(Self { licences, duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_need_a_reason() {
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {"syn": "two majors"}}"#).is_ok());
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {"syn": " "}}"#).is_err());
        assert!(Policy::parse(r#"{"licences": ["MIT"], "duplicates": {}, "extra": 1}"#).is_err());
    }
}
