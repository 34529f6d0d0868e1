//! The plain fold that judges a run: one event after the other over documents in memory.

use std::collections::{BTreeMap, BTreeSet};

use promethean_bus::StoredEvent;
use promethean_model::EventMeta;
use serde_json::{Map, Value, json};

/// How long the version of a deleted document is kept.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// The documents of a collection by key.
pub(super) type Docs = BTreeMap<String, Map<String, Value>>;

/// The program in force, the schema in force, and the unique index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    /// Events with this `bad` fail.
    pub(super) refuses: u64,
    /// The factor of the numbers that are added up.
    pub(super) factor: i64,
    /// Whether no two documents may have the same `a`.
    pub(super) unique: bool,
    /// Whether events are lifted.
    pub(super) normalize: bool,
    /// The latest version of the schema.
    pub(super) latest: u64,
}

/// The state that the projector must have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) docs: Docs,
    pub(super) stats: Docs,
    /// The versions of deleted documents, and until when they are kept.
    deleted: BTreeMap<String, (i64, i64)>,
    /// The latest time of a versioned change since the first versioned deletion.
    time: Option<i64>,
    /// Events that are or were dead letters.
    pub(super) given_up: BTreeSet<u64>,
    /// Events whose letters are open.
    pub(super) open: BTreeSet<u64>,
    /// The next offset.
    pub(super) position: u64,
}

impl Rules {
    /// The program in jq.
    pub(super) fn program(self) -> String {
        let Self { refuses, factor, .. } = self;
        format!(
            r#"if .payload.bad == {refuses} then error("bad") else
                 ((if .payload.version then {{version: .payload.version}} else {{}} end) as $v
                  | if .payload.op == "del" then {{delete: ({{collection: "docs", key: .key}} + $v)}}
                    else {{upsert: ({{collection: "docs", key: .key,
                      set: {{a: .payload.a, lifted: (.payload.lifted // 0)}},
                      inc: {{n: (.payload.n * {factor})}}}} + $v)}} end),
                 {{upsert: {{collection: "stats", key: "all", inc: {{seen: 1}}}}}}
               end"#
        )
    }

    /// The payload as the program sees it; `None` if it cannot be lifted.
    fn seen(self, event: &StoredEvent) -> Option<Value> {
        let mut payload: Value = serde_json::from_slice(event.payload()).unwrap();
        let meta = EventMeta::decode(event.meta()).unwrap();
        let version: u64 = meta.headers.unwrap()["x-schema-version"].parse().unwrap();
        let steps = self.latest - version;
        if self.normalize && steps > 0 {
            if payload["bad"] == 3 {
                return None;
            }
            payload["lifted"] = json!(payload["lifted"].as_u64().unwrap_or(0) + steps);
        }
        Some(payload)
    }
}

impl Model {
    /// Projects the next event live.
    pub(super) fn project(&mut self, rules: Rules, event: &StoredEvent) {
        assert_eq!(event.offset.get(), self.position);
        self.position += 1;
        if self.apply(rules, event).is_none() {
            self.given_up.insert(event.offset.get());
            self.open.insert(event.offset.get());
        }
    }

    /// The state after a rebuild.
    pub(super) fn rebuilt(&self, rules: Rules, events: &[StoredEvent]) -> Self {
        let mut next = Self { given_up: self.given_up.clone(), open: self.open.clone(), ..Self::default() };
        for event in events {
            if self.given_up.contains(&event.offset.get()) {
                next.position += 1;
            } else {
                next.project(rules, event);
            }
        }
        next
    }

    /// Applies an event, or nothing of it.
    fn apply(&mut self, rules: Rules, event: &StoredEvent) -> Option<()> {
        let payload = rules.seen(event)?;
        if payload["bad"] == rules.refuses {
            return None;
        }
        let (key, offset) = (event.key().unwrap().to_owned(), event.offset.get());
        let given = payload["version"].as_i64();
        let there = self.docs.get(&key).and_then(|doc| doc.get("_v")).and_then(Value::as_i64);
        let (is_deletion, before) = (payload["op"] == "del", self.time);
        if given.is_some() || (is_deletion && there.is_some()) {
            self.time = self.time.map(|time| time.max(event.ts));
        }
        let kept = |(_, until): &&(i64, i64)| self.time.is_some_and(|time| time < *until);
        let deleted = self.deleted.get(&key).filter(kept).map(|(version, _)| *version);
        if there.or(deleted).zip(given).is_some_and(|(there, given)| there >= given) {
            // An older change is ignored.
        } else if is_deletion {
            let known = if given.is_some() || there.is_some() { [given, there, deleted] } else { [None; 3] };
            if let Some(version) = known.into_iter().flatten().max() {
                let time = self.time.map_or(event.ts, |time| time.max(event.ts));
                self.time = Some(time);
                self.deleted.insert(key.clone(), (version, time + KEPT_MS));
            }
            self.docs.remove(&key);
        } else {
            let taken =
                |(other, doc): (&String, &Map<String, Value>)| *other != key && doc["a"] == payload["a"];
            if rules.unique && self.docs.iter().any(taken) {
                self.time = before;
                return None;
            }
            if given.is_some() {
                self.deleted.remove(&key);
            }
            let doc = self.docs.entry(key.clone()).or_default();
            let n = doc.get("n").and_then(Value::as_i64).unwrap_or(0);
            doc.insert("_key".to_owned(), json!(key));
            doc.insert("_offset".to_owned(), json!(offset));
            doc.insert("a".to_owned(), payload["a"].clone());
            doc.insert("lifted".to_owned(), json!(payload["lifted"].as_u64().unwrap_or(0)));
            doc.insert("n".to_owned(), json!(n + payload["n"].as_i64().unwrap() * rules.factor));
            if let Some(version) = given.or(there) {
                doc.insert("_v".to_owned(), json!(version));
            }
        }
        let all = self.stats.entry("all".to_owned()).or_default();
        let seen = all.get("seen").and_then(Value::as_i64).unwrap_or(0);
        all.insert("_key".to_owned(), json!("all"));
        all.insert("_offset".to_owned(), json!(offset));
        all.insert("seen".to_owned(), json!(seen + 1));
        Some(())
    }
}
