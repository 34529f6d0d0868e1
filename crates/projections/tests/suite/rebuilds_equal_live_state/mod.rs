//! Random histories: a rebuild makes the state that a plain fold makes, and the live state is that state too.
//!
//! Events fail, letters are dropped, redriven and corrected, unique indexes come and go, schemas get versions, programs change, and
//! the store refuses commits at any moment. `REBUILD_SEED=n` repeats a run.

mod model;

use std::sync::Arc;

use promethean_bus::StoredEvent;
use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_bus::publish::Publish;
use promethean_bus::schemas::{RegisterOptions, Upcaster};
use promethean_jq::Program;
use promethean_model::{Compat, Offset, TopicSettings};
use promethean_projections::{Declared, Direction, Index, Projections, Projector, RebuildStatus};
use promethean_schema::SchemaText;
use promethean_testkit::SeededRng;
use promethean_testkit::patience::until_some;
use promethean_testkit::seeds::seeds;
use serde_json::{Map, Value, json};

use self::model::{Docs, Model, Rules};
use super::world::*;

const ACTIONS: u64 = 30;
const KEYS: u64 = 5;
const VALUES: u64 = 6;
const VERSIONS_MAX: u64 = 3;
const LIFT: &str = r#"if .bad == 3 then error("no lift") else . + {lifted: ((.lifted // 0) + 1)} end"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_is_the_fold_of_the_events() {
    for seed in seeds("REBUILD", 24, &[], 40) {
        let hint = SeedHint(seed);
        Run::play(seed).await;
        drop(hint);
    }
}

/// Prints how to repeat a failed run.
struct SeedHint(u64);

impl Drop for SeedHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("REBUILD_SEED={} repeats this run", self.0);
        }
    }
}

struct Run {
    rng: SeededRng,
    world: World,
    /// The gates of a store in memory. An embedded store is closed and opened again instead.
    faults: Option<Arc<FaultStore>>,
    projections: Projections,
    rules: Rules,
    model: Model,
    trace: Vec<String>,
}

impl Run {
    async fn play(seed: u64) {
        let mut rng = SeededRng::new(seed);
        let (world, faults) = match seed % 4 {
            3 => (World::running(StoreKind::Embedded).await, None),
            _ => {
                let (world, faults) = faulty().await;
                (world, Some(faults))
            }
        };
        let rules =
            Rules { refuses: 1, factor: 1, unique: rng.chance(30), normalize: rng.chance(50), latest: 1 };
        let settings = TopicSettings { compat: Compat::None, ..TopicSettings::default() };
        world.bus.set_topic(&topic("in"), settings).await.unwrap();
        register(&world, 1).await;
        let projections = world.open_projections(declare(&rules)).await;
        let model = Model::default();
        let mut run = Self { rng, world, faults, projections, rules, model, trace: Vec::new() };
        for _ in 0..ACTIONS {
            run.act().await;
        }
        run.restart().await;
        run.rebuild().await;
        let last = run.rebuild().await;
        assert_eq!((last.equal, last.skipped), (Some(true), 0), "nothing has changed: {:#?}", run.trace);
        run.projections.close().await;
    }

    async fn act(&mut self) {
        match self.rng.range(0..100) {
            0..50 => self.publish_some().await,
            50..56 => self.settle_letters(true).await,
            56..60 => self.correct_letter().await,
            60..66 => self.settle_letters(false).await,
            66..72 => self.restart().await,
            72..78 => self.change_program().await,
            78..84 => self.change_index().await,
            84..88 => self.new_version().await,
            88..95 => drop(self.rebuild().await),
            _ => self.crash().await,
        }
    }

    /// Publishes some events. A refused one is no event.
    async fn publish_burst(&mut self) {
        for _ in 0..self.rng.range(1..12) {
            let payload = self.payload();
            let key = format!("k{}", self.rng.range(0..KEYS));
            let ts = 1_700_000_000_000 + self.rng.range(0..40) as i64 * 3_600_000;
            let event = Publish::new(topic("in"), payload.to_string()).key(key).ts(ts);
            let published = self.world.bus.publish(event).await.is_ok();
            self.trace.push(format!("publish {payload} at {ts}: {published}"));
        }
    }

    fn payload(&mut self) -> Value {
        let bad = if self.rng.chance(20) { self.rng.range(1..4) } else { 0 };
        let op = if self.rng.chance(15) { "del" } else { "set" };
        let a = format!("v{}", self.rng.range(0..VALUES));
        let mut payload = json!({"op": op, "a": a, "n": self.rng.range(1..9), "bad": bad});
        if self.rng.chance(30) {
            payload["version"] = json!(self.rng.range(1..6));
        }
        payload
    }

    async fn publish_some(&mut self) {
        self.publish_burst().await;
        self.settled().await;
    }

    /// Redrives some letters to the topic, or drops them.
    async fn settle_letters(&mut self, redrives: bool) {
        let chosen: Vec<u64> = self.model.open.iter().copied().filter(|_| self.rng.chance(50)).collect();
        if chosen.is_empty() {
            return;
        }
        self.trace.push(format!("redrive {redrives}: {chosen:?}"));
        let choice = LetterChoice::Offsets(chosen.iter().copied().map(Offset).collect());
        let (bus, of, by) = (&self.world.bus, topic("in"), group("p"));
        match redrives {
            true => drop(bus.redrive(&of, &by, choice, RedriveTo::Topic).await.unwrap()),
            false => drop(bus.drop_letters(&of, &by, choice).await.unwrap()),
        }
        self.model.open.retain(|offset| !chosen.contains(offset));
        self.settled().await;
    }

    /// Redrives one letter to the topic with another payload, which may fail again. A projector reads its topic in order,
    /// so nothing is redriven to its group.
    async fn correct_letter(&mut self) {
        let open: Vec<u64> = self.model.open.iter().copied().collect();
        let Some(chosen) = self.rng.choose(&open).copied() else { return };
        let payload = self.payload();
        self.trace.push(format!("redrive {chosen} as {payload}"));
        let choice = || LetterChoice::Offsets(vec![Offset(chosen)]);
        let (bus, of, by) = (&self.world.bus, topic("in"), group("p"));
        let refused = bus.redrive(&of, &by, choice(), RedriveTo::Group).await.unwrap_err();
        assert_eq!(refused.code(), "projector_group");
        bus.redrive_edited(&of, &by, choice(), payload.to_string()).await.unwrap();
        self.model.open.retain(|offset| *offset != chosen);
        self.settled().await;
    }

    async fn restart(&mut self) {
        self.trace.push("restart".to_owned());
        self.reopen(self.rules).await;
        self.settled().await;
    }

    /// Another program: the documents there are stay.
    async fn change_program(&mut self) {
        let rules =
            Rules { refuses: self.rng.range(1..4), factor: self.rng.range(1..4) as i64, ..self.rules };
        self.trace.push(format!("{rules:?}"));
        self.reopen(rules).await;
        self.settled().await;
    }

    /// A change of the indexes makes the projector rebuild its state by itself, unless the collection is empty.
    async fn change_index(&mut self) {
        let rules = Rules { unique: !self.rules.unique, ..self.rules };
        self.trace.push(format!("{rules:?}"));
        self.reopen(rules).await;
        if !self.model.docs.is_empty() {
            self.model = self.model.rebuilt(rules, &self.events().await);
        }
        self.settled().await;
    }

    async fn new_version(&mut self) {
        if self.rules.latest == VERSIONS_MAX {
            return;
        }
        self.rules.latest += 1;
        self.trace.push(format!("version {}", self.rules.latest));
        register(&self.world, self.rules.latest).await;
    }

    /// The store refuses everything from some commit on, while events or a rebuild are under way.
    async fn crash(&mut self) {
        let Some(faults) = self.faults.clone() else { return self.restart().await };
        let (commits, rebuilds) = (self.rng.range(0..9), self.rng.chance(50));
        self.trace.push(format!("refuse after {commits} commits, rebuild {rebuilds}"));
        let failed = faults.failed();
        faults.refuse_after(usize::try_from(commits).unwrap());
        if rebuilds {
            // A refusal of the rebuild itself is a crash at its first commit.
            let _ = self.projections.rebuild(&group("p"), false).await;
        } else {
            self.publish_burst().await;
        }
        let is_over = async || {
            let status = self.projections.projector(&group("p")).unwrap();
            let running = status.rebuild.is_some_and(|rebuild| rebuild.running && rebuild.error.is_none());
            (faults.failed() > failed || !running).then_some(())
        };
        until_some("a refusal, or the end", is_over).await;
        self.projections.close().await;
        faults.refuse_after(usize::MAX);
        self.reopen_closed(self.rules).await;
        if rebuilds {
            self.rebuild().await;
        } else {
            self.settled().await;
        }
    }

    async fn reopen(&mut self, rules: Rules) {
        self.projections.close().await;
        self.reopen_closed(rules).await;
    }

    async fn reopen_closed(&mut self, rules: Rules) {
        self.rules = rules;
        if self.faults.is_none() {
            // Only an embedded store is opened anew: gates around a store in memory must stay.
            let placeholder = World::new(StoreKind::Memory).await;
            self.world = std::mem::replace(&mut self.world, placeholder).restart().await;
            lift(&self.world, rules.latest);
        }
        self.projections = self.world.open_projections(declare(&rules)).await;
    }

    /// Rebuilds, and compares with the fold.
    async fn rebuild(&mut self) -> RebuildStatus {
        self.trace.push("rebuild".to_owned());
        let start = async || self.projections.rebuild(&group("p"), false).await.ok();
        // A rebuild that the projector began by itself may still be running.
        until_some("the rebuild begins", start).await;
        let is_over = |status: &promethean_projections::ProjectorStatus| {
            status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
        };
        let status = until(&self.projections, "p", is_over).await.rebuild.unwrap();
        assert_eq!(status.error, None, "{:#?}", self.trace);
        self.model = self.model.rebuilt(self.rules, &self.events().await);
        self.settled().await;
        status
    }

    /// Waits until documents and letters are what the model says.
    async fn settled(&mut self) {
        for event in &self.events().await[usize::try_from(self.model.position).unwrap()..] {
            self.model.project(self.rules, event);
        }
        let expected = (&self.model.docs, &self.model.stats, self.model.open.iter().copied().collect());
        let mut found = (Docs::new(), Docs::new(), Vec::new());
        let wait = async {
            loop {
                let status = self.projections.projector(&group("p")).unwrap();
                let is_idle = status.position == self.model.position
                    && !status.rebuild.is_some_and(|rebuild| rebuild.running);
                found = (
                    docs_of(&self.world, "docs").await,
                    docs_of(&self.world, "stats").await,
                    self.letters().await,
                );
                if is_idle && (&found.0, &found.1, found.2.clone()) == expected {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.is_err() {
            let status = self.projections.projector(&group("p"));
            panic!("{:#?}\n{:#?}\nfound {found:#?}\nexpected {expected:#?}", self.trace, status);
        }
    }

    async fn letters(&self) -> Vec<u64> {
        let page = self.world.bus.dead_letters(&topic("in"), &group("p"), None, 1_000).await.unwrap();
        page.letters.iter().map(|letter| letter.offset.get()).collect()
    }

    async fn events(&self) -> Vec<StoredEvent> {
        self.world.events("in").await
    }
}

fn declare(rules: &Rules) -> Declared {
    let logic = jq(&rules.program());
    let mut all =
        declared(Projector { normalize: rules.normalize, batch: 4, ..projector(logic, &["docs", "stats"]) });
    if rules.unique {
        let fields = vec![("a".to_owned(), Direction::Ascending)];
        all.collections[0].indexes = vec![Index { fields, unique: true }];
    }
    all
}

/// Registers a version of the schema, and the programs that lift to it.
async fn register(world: &World, version: u64) {
    lift(world, version);
    let text =
        json!({"type": "object", "title": format!("version {version}"), "maxProperties": 100 + version});
    let text = SchemaText::parse(text.to_string()).unwrap();
    world.bus.register_schema(&topic("in"), text, RegisterOptions::default()).await.unwrap();
}

fn lift(world: &World, latest: u64) {
    let program = || Program::compile(LIFT).unwrap();
    let step = |from: u64| Upcaster { from: from as u32, to: from as u32 + 1, program: program() };
    world.bus.set_upcasters(&topic("in"), (1..latest).map(step).collect()).unwrap();
}

/// The documents of a collection, without their times.
async fn docs_of(world: &World, of: &str) -> Docs {
    let docs = world.store.docs_by_key(&collection(of), None, 10_000).await.unwrap();
    let plain = |body: &str| {
        let mut doc: Map<String, Value> = serde_json::from_str(body).unwrap();
        doc.remove("_ts").unwrap();
        doc
    };
    docs.iter().map(|doc| (doc.key.clone(), plain(&doc.body))).collect()
}
