//! From the keys of the file to the options of bus and gateway. A key that is not given leaves the default.

use promethean_bus::BusOptions;
use promethean_gateway::GatewayOptions;
use promethean_gateway::options::{FailureLimit, TlsFiles};
use promethean_model::Durability;
use promethean_store::embedded::EmbeddedOptions;
use promethean_store::memory::MemoryOptions;

use super::Config;
use super::file::SpanText;

impl Config {
    /// The connections that the configuration allows, if it says so.
    pub(crate) fn connections(&self) -> Option<usize> {
        self.file.limits.connections.map(Into::into)
    }

    /// The name of the store.
    pub(crate) fn store_name(&self) -> &str {
        self.store.as_deref().unwrap_or("embedded")
    }

    /// Whether the store keeps files.
    pub(crate) fn keeps_files(&self) -> bool {
        self.store.as_deref() != Some("memory")
    }

    pub(crate) fn gateway_options(&self) -> GatewayOptions {
        let (file, limits, default) = (&self.file, &self.file.limits, GatewayOptions::default());
        let ms = |span: Option<SpanText>, default: u64| span.map_or(default, |span| span.0);
        GatewayOptions {
            connections_max: self.connections().unwrap_or(default.connections_max),
            subscriptions_max: limits.subscriptions.map_or(default.subscriptions_max, Into::into),
            message_bytes_max: limits.events.message_bytes_max,
            receiving_bytes_max: limits.receiving_bytes.map_or(default.receiving_bytes_max, Into::into),
            token_receiving_bytes_max: limits
                .token_receiving_bytes
                .map_or(default.token_receiving_bytes_max, Into::into),
            unknown_message_bytes_max: limits
                .unknown_message_bytes
                .map_or(default.unknown_message_bytes_max, Into::into),
            auth_timeout_ms: ms(limits.auth_timeout, default.auth_timeout_ms),
            head_timeout_ms: ms(limits.head_timeout, default.head_timeout_ms),
            idle_timeout_ms: ms(limits.idle_timeout, default.idle_timeout_ms),
            body_timeout_ms: ms(limits.body_timeout, default.body_timeout_ms),
            ping_every_ms: ms(limits.ping_every, default.ping_every_ms),
            write_timeout_ms: ms(limits.write_timeout, default.write_timeout_ms),
            publish_rate: limits.publish_rate,
            delivery_rate: limits.delivery_rate,
            snap_max_age_secs: file.max_age_seconds.unwrap_or(default.snap_max_age_secs),
            auth_failures: FailureLimit {
                burst: limits.auth_failures.burst.unwrap_or(default.auth_failures.burst),
                every_ms: ms(limits.auth_failures.every, default.auth_failures.every_ms),
                addresses: limits.auth_failures.addresses.map_or(default.auth_failures.addresses, Into::into),
            },
            quota: limits.token.or(&default.quota),
            audit: file.audit.as_ref().map(|audit| audit.topic.clone()),
            auth_check_every_ms: self.auth.check_every_ms.unwrap_or(default.auth_check_every_ms),
            allowed_origins: file.allowed_origins.clone(),
            stored_headers: file.stored_headers.clone(),
            shown_settings: default.shown_settings,
            tls: file.tls.as_ref().map(|tls| {
                let files = TlsFiles::new(&tls.certificate, &tls.key);
                TlsFiles { check_every_ms: ms(tls.check_every, files.check_every_ms), ..files }
            }),
        }
    }

    /// The durability of events whose topic names none, in the embedded store.
    pub(crate) fn durability(&self) -> Durability {
        self.file.durability.unwrap_or(EmbeddedOptions::default().durability)
    }

    /// The bounds of the store `memory`.
    pub(crate) fn memory_options(&self) -> MemoryOptions {
        let default = MemoryOptions::default();
        let event_bytes_max = self.file.memory_bytes.map_or(default.event_bytes_max, Into::into);
        MemoryOptions { event_bytes_max, topics_max: self.topics_max() }
    }

    /// How many topics there may be.
    pub(crate) fn topics_max(&self) -> usize {
        self.file.limits.events.topics_max
    }

    pub(crate) fn bus_options(&self) -> BusOptions {
        let (file, limits, default) = (&self.file, &self.file.limits, BusOptions::default());
        BusOptions {
            limits: limits.events.clone(),
            auto_create: file.auto_create_topics.unwrap_or(default.auto_create),
            topic_rate: limits.topic_rate,
            rated_topics_max: limits.rated_topics.map_or(default.rated_topics_max, Into::into),
            topics: file.topics.clone(),
            series_max: limits.series.map_or(default.series_max, Into::into),
            group_page_bytes_max: limits.group_page_bytes.map_or(default.group_page_bytes_max, Into::into),
        }
    }
}
