//! Schemas from a folder or a server.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use promethean_bus::schemas::folder::SchemaFolder;
use promethean_model::TopicName;
use promethean_schema::{SchemaText, validator};
use serde_json::Value;

use crate::remote::Remote;
use crate::schema_files::SchemaFiles;
use crate::target::TargetArgs;

/// The latest version of a topic's schema.
#[derive(Debug)]
pub(super) struct LatestSchema {
    pub(super) topic: TopicName,
    pub(super) version: u32,
    pub(super) schema: SchemaText,
}

/// The latest schemas of a folder. A folder that a server would not start with is refused.
pub(super) fn from_folder(root: &Path, wanted: impl Fn(&TopicName) -> bool) -> Result<Vec<LatestSchema>> {
    SchemaFolder::read(root)?;
    let mut all = Vec::new();
    for (name, files) in SchemaFiles::read(root)?.topics {
        let topic: TopicName = name.parse()?;
        let Some((version, file)) = files.versions.into_iter().next_back() else { continue };
        if wanted(&topic) {
            let schema = file.text.map_err(|fault| anyhow!("`{}`: {fault}", file.path.display()))?;
            let compiled = validator::compile(schema.value());
            compiled.with_context(|| format!("`{}`", file.path.display()))?;
            all.push(LatestSchema { topic, version, schema });
        }
    }
    Ok(all)
}

/// The latest schemas of a server.
pub(super) async fn from_server(
    args: &TargetArgs,
    wanted: impl Fn(&TopicName) -> bool,
) -> Result<Vec<LatestSchema>> {
    let remote = Remote::new(args)?;
    let mut all = Vec::new();
    for entry in remote.pages::<Value>("/schemas", "topics").await? {
        let name = entry.get("topic").and_then(Value::as_str).context("a topic without a name")?;
        let topic: TopicName = name.parse()?;
        if wanted(&topic) {
            all.push(latest(&remote, topic).await?);
        }
    }
    Ok(all)
}

async fn latest(remote: &Remote, topic: TopicName) -> Result<LatestSchema> {
    let body: Value = remote.get(&format!("/schemas/{topic}/latest")).await?;
    let version = body.get("version").and_then(Value::as_u64).and_then(|version| u32::try_from(version).ok());
    let (Some(version), Some(schema)) = (version, body.get("schema")) else {
        bail!("the server's answer about `{topic}` has another form; is it another version of Promethean?");
    };
    // The answer holds the schema as a value: its meaning is kept, its formatting is not.
    let schema = SchemaText::parse(serde_json::to_string_pretty(schema)?)?;
    Ok(LatestSchema { topic, version, schema })
}
