//! A trial: applies the configuration and the folder to a bus in memory, as a server would at its start.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use promethean_bus::Bus;
use promethean_bus::schemas::folder::SchemaFolder;
use promethean_model::{Clock, SystemClock};
use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_store::port::Store;

use super::config::Configured;
use super::finding::{LintFindings, LintRule};

/// Reports refusals of the bus that no other rule finds.
pub(super) async fn run(root: &Path, configured: &Configured, findings: &mut LintFindings) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock), MemoryOptions::default()));
    let bus = Bus::open(Arc::clone(&store), clock, configured.options.clone()).await.context("open a bus")?;
    for (topic, settings) in &configured.topics {
        if let Err(error) = bus.set_topic(topic, settings.clone()).await {
            let place = format!("[topics.\"{topic}\"]");
            findings.add(
                LintRule::ConfigInvalid,
                place,
                error.to_string(),
                "the server would not start; correct it",
            );
        }
    }
    let applied = match SchemaFolder::read(root) {
        Ok(folder) => bus.apply_schemas(folder).await.map(|_| ()),
        Err(error) => Err(error),
    };
    if let Err(error) = applied {
        let place = error.path.display().to_string();
        findings.add(LintRule::FolderRefused, place, error.reason, "the server would not start; correct it");
    }
    bus.close().await;
    store.close().await;
    Ok(())
}
