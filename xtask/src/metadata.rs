//! The dependency graph, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::repo::Repo;

/// The platforms a release is built for.
const LINUX: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The part of the lock file to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The packages of Linux builds, tests included.
    Linux,
    /// All packages of the lock file; cargo downloads missing ones.
    AllPlatforms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// A dependency as a manifest declares it, optional ones included.
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    pub(crate) declared: Vec<Declared>,
}

/// The packages by cargo's package id, and the links between them.
pub(crate) struct Graph {
    pub(crate) packages: BTreeMap<String, Package>,
    pub(crate) members: BTreeSet<String>,
    /// Resolved edges other than dev-dependencies.
    pub(crate) links: BTreeMap<String, Vec<String>>,
    pub(crate) target_dir: String,
}

impl Graph {
    pub(crate) fn load(repo: &Repo, scope: Scope) -> Result<Self> {
        let mut command = repo.cargo();
        command.args(["metadata", "--locked", "--format-version", "1"]);
        if scope == Scope::Linux {
            for platform in LINUX {
                command.args(["--filter-platform", platform]);
            }
        }
        let output = command.output().context("run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self::parse(&serde_json::from_slice(&output.stdout).context("parse cargo metadata")?)
    }

    fn parse(value: &Value) -> Result<Self> {
        let mut packages = BTreeMap::new();
        for package in list(value, "packages") {
            packages.insert(text(package, "id")?, parse_package(package)?);
        }
        let members = list(value, "workspace_members").iter().filter_map(|id| Some(id.as_str()?.to_owned()));
        let mut links = BTreeMap::new();
        for node in value.pointer("/resolve/nodes").and_then(Value::as_array).into_iter().flatten() {
            let mut used = Vec::new();
            for dep in list(node, "deps") {
                if list(dep, "dep_kinds").iter().any(|kind| parse_kind(kind) != Kind::Dev) {
                    used.push(text(dep, "pkg")?);
                }
            }
            links.insert(text(node, "id")?, used);
        }
        if packages.is_empty() || links.is_empty() {
            bail!("cargo metadata named no packages");
        }
        Ok(Self { packages, members: members.collect(), links, target_dir: text(value, "target_directory")? })
    }

    /// The workspace's own packages.
    pub(crate) fn workspace(&self) -> impl Iterator<Item = &Package> {
        self.members.iter().filter_map(|id| self.packages.get(id))
    }
}

fn parse_package(value: &Value) -> Result<Package> {
    let mut declared = Vec::new();
    for dep in list(value, "dependencies") {
        declared.push(Declared { name: text(dep, "name")?, kind: parse_kind(dep) });
    }
    Ok(Package {
        name: text(value, "name")?,
        version: text(value, "version")?,
        licence: value.get("license").and_then(Value::as_str).map(str::to_owned),
        declared,
    })
}

fn parse_kind(value: &Value) -> Kind {
    match value.get("kind").and_then(Value::as_str) {
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        _ => Kind::Normal,
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, field: &str) -> Result<String> {
    let found = value.get(field).and_then(Value::as_str);
    Ok(found.with_context(|| format!("find text field `{field}` in cargo metadata"))?.to_owned())
}
