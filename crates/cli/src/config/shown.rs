//! The settings in force, as `/admin/config` shows them. Each key is named here, so a new secret is never shown by itself.

use std::collections::BTreeMap;

use promethean_bus::limits::Rate;
use promethean_gateway::GatewayOptions;
use promethean_model::Millis;
use serde::Serialize;
use serde_json::{Value, json};

use super::Config;

/// Settings by their keys in the configuration file.
type Shown = BTreeMap<String, Value>;

impl Config {
    /// The settings of a server with these options of the gateway, without secrets.
    pub(crate) fn shown_settings(&self, options: &GatewayOptions) -> Shown {
        let mut shown = Shown::new();
        let mut put = |key: &str, value: Value| drop(shown.insert(key.to_owned(), value));
        let bus = self.bus_options();
        put("listen", json!(self.listen));
        put("data", json!(self.data));
        put("store", json!(self.store.as_deref().map_or("embedded", without_credentials)));
        match self.keeps_files() {
            true => put("durability", json!(self.durability())),
            false => put("memory_bytes", json!(self.memory_options().event_bytes_max)),
        }
        put("auto_create_topics", json!(bus.auto_create));
        put("allowed_origins", json!(options.allowed_origins));
        put("stored_headers", json!(options.stored_headers));
        put("max_age_seconds", json!(options.snap_max_age_secs));
        put("schemas", json!(self.file.schemas));
        put("audit.topic", json!(options.audit));
        put("tls.certificate", json!(self.file.tls.as_ref().map(|tls| &tls.certificate)));
        put("auth.check_every", ms(options.auth_check_every_ms));
        put("auth.tokens", json!(format!("{} tokens", self.auth.tokens.len())));
        put("auth.jwt", json!(if self.auth.jwt.is_some() { "signed tokens are accepted" } else { "none" }));
        put("limits.connections", json!(options.connections_max));
        put("limits.subscriptions", json!(options.subscriptions_max));
        put("limits.receiving_bytes", json!(options.receiving_bytes_max));
        put("limits.token_receiving_bytes", json!(options.token_receiving_bytes_max));
        put("limits.unknown_message_bytes", json!(options.unknown_message_bytes_max));
        put("limits.auth_timeout", ms(options.auth_timeout_ms));
        put("limits.head_timeout", ms(options.head_timeout_ms));
        put("limits.idle_timeout", ms(options.idle_timeout_ms));
        put("limits.body_timeout", ms(options.body_timeout_ms));
        put("limits.ping_every", ms(options.ping_every_ms));
        put("limits.write_timeout", ms(options.write_timeout_ms));
        put("limits.publish_rate", rate(options.publish_rate));
        put("limits.delivery_rate", rate(options.delivery_rate));
        put("limits.topic_rate", rate(bus.topic_rate));
        put("limits.rated_topics", json!(bus.rated_topics_max));
        put("limits.series", json!(bus.series_max));
        put("limits.group_page_bytes", json!(bus.group_page_bytes_max));
        put("limits.auth_failures.burst", json!(options.auth_failures.burst));
        put("limits.auth_failures.every", ms(options.auth_failures.every_ms));
        put("limits.auth_failures.addresses", json!(options.auth_failures.addresses));
        put_fields(&mut shown, "limits.token", &options.quota);
        put_fields(&mut shown, "limits.events", &bus.limits);
        for (topic, settings) in &self.file.topics {
            put_fields(&mut shown, &format!("topics.\"{topic}\""), settings);
        }
        shown.retain(|_, value| !value.is_null());
        shown
    }
}

fn put_fields(shown: &mut Shown, section: &str, fields: &impl Serialize) {
    if let Ok(Value::Object(fields)) = serde_json::to_value(fields) {
        shown.extend(fields.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
    }
}

fn ms(ms: u64) -> Value {
    json!(Millis::new(ms))
}

fn rate(rate: Option<Rate>) -> Value {
    json!(rate)
}

/// The address of a store without its user and password.
fn without_credentials(store: &str) -> &str {
    match store.split_once("://") {
        // A password may contain `@`, so the last one ends it.
        Some((_, rest)) => rest.rsplit_once('@').map_or(store, |(_, host)| host),
        None => store,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;
    use super::*;

    #[test]
    fn settings_are_shown_by_their_keys_without_secrets() {
        let secret = "canary-canary-canary-canary-canary";
        let text = format!(
            "store = \"mongodb://user:{secret}@db.example:27017\"\nallowed_origins = [\"https://a.example\"]\n\
             [limits]\nping_every = \"7s\"\n[limits.token]\nmax_connections = 5\n\
             [topics.\"a.b\"]\nmax_attempts = 3\n[auth.jwt]\nsecret = \"{secret}\"\n\
             [[auth.tokens]]\nname = \"{secret}\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\n",
            "ab".repeat(32),
        );
        let config = parse(&text, Path::new("")).unwrap();
        let shown = config.shown_settings(&config.gateway_options());
        for (key, value) in [
            ("store", json!("db.example:27017")),
            ("allowed_origins", json!(["https://a.example"])),
            ("limits.ping_every", json!("7s")),
            ("limits.token.max_connections", json!(5)),
            ("limits.events.payload_bytes_max", json!(1 << 20)),
            ("topics.\"a.b\".max_attempts", json!(3)),
            ("auth.tokens", json!("1 tokens")),
        ] {
            assert_eq!(shown.get(key), Some(&value), "{key}");
        }
        let all = json!(shown).to_string();
        assert!(!all.contains("canary") && !all.contains("abab"), "{all}");
    }
}
