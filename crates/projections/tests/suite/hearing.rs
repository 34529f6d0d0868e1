//! Projectors that have much to do hear what they are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promethean_bus::jq::Program;
use promethean_projections::{Activity, Projections, Projector, Timer};
use promethean_store::port::{DocOp, StateOp};
use serde_json::json;

use super::shaky::{Answer, Asked, Shaky};
use super::world::*;

const SET: &str = r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#;

/// Counts the pages of documents that are read, each of which takes a while.
fn slow_pages(shaky: &Shaky) -> Arc<AtomicUsize> {
    let pages = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pages);
    shaky.rule(move |asked| match asked {
        Asked::Docs => {
            count.fetch_add(1, Ordering::SeqCst);
            Answer::After(100)
        }
        _ => Answer::Works,
    });
    pages
}

async fn some(pages: &AtomicUsize) -> usize {
    while pages.load(Ordering::SeqCst) == 0 {
        pass_ms(2).await;
    }
    pages.load(Ordering::SeqCst)
}

/// A projector with so many documents.
async fn with_docs(world: &World, projector: Projector, count: usize) -> Projections {
    let projections = world.open(declared(projector)).await;
    for n in 0..count {
        world.publish("in", &format!("k{n}"), "{}").await;
    }
    caught_up(world, &projections, "p").await;
    projections
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_its_place_is_compared_a_page_at_a_time() {
    within(async {
        let (world, shaky) = World::shaky().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 5_000).await;
        let pages = slow_pages(&shaky);
        projections.rebuild(&group("p"), false).await.unwrap();
        let before = some(&pages).await;
        // Of twelve.
        assert_eq!(projections.rebuild(&group("p"), false).await.unwrap_err().code(), "rebuilding");
        projections.close().await;
        let read = pages.load(Ordering::SeqCst) - before;
        assert!(read <= 4, "{read}");
        assert_eq!(world.docs("docs").await.len(), 5_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_a_store_is_in_the_way_of_goes_on_later() {
    within(async {
        let (world, shaky) = World::shaky().await;
        let count = r#"{upsert: {collection: "docs", key: .key, inc: {n: 1}}}"#;
        let projections = with_docs(&world, projector(jq(count), &["docs"]), 20).await;
        shaky.rule(|asked| if matches!(asked, Asked::Docs) { Answer::Fails } else { Answer::Works });
        projections.rebuild(&group("p"), false).await.unwrap();
        let waits = |status: &promethean_projections::ProjectorStatus| {
            status.rebuild.as_ref().is_some_and(|rebuild| rebuild.running && rebuild.error.is_some())
        };
        until(&projections, "p", waits).await;
        shaky.heal();
        let over = |status: &promethean_projections::ProjectorStatus| {
            status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
        };
        let rebuild = until(&projections, "p", over).await.rebuild.unwrap();
        assert_eq!((rebuild.equal, rebuild.error), (Some(true), None));
        world.publish("in", "k0", "{}").await;
        caught_up(&world, &projections, "p").await;
        assert_eq!(world.docs("docs").await[0], json!({"_key": "k0", "n": 2}));
        projections.close().await;
    })
    .await;
}

fn timed(program: &str) -> Projector {
    let program = Program::compile(program).unwrap();
    let timer = Timer { every: Duration::from_millis(20), over: collection("docs"), program };
    Projector { timer: Some(timer), ..projector(jq(SET), &["docs"]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_and_commands_come_between_the_pages_of_a_timer() {
    within(async {
        let (world, shaky) = World::shaky().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 1_000).await;
        projections.close().await;
        let pages = slow_pages(&shaky);
        let projections = world.open(declared(timed("empty"))).await;
        let before = some(&pages).await;
        world.publish("in", "k0", "{}").await;
        projections.resume(&group("p")).await.unwrap();
        let status = caught_up(&world, &projections, "p").await;
        projections.close().await;
        // Of seventeen.
        let read = pages.load(Ordering::SeqCst) - before;
        assert!(read <= 6 && status.timer_runs == 0, "{read}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_whose_program_is_slow_can_be_stopped() {
    within(async {
        let world = World::memory().await;
        let slow = "reduce range(60000) as $n (0; . + $n) | empty";
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 500).await;
        projections.close().await;
        let projections = world.open(declared(timed(slow))).await;
        // Into its first page.
        pass_ms(100).await;
        let stopped = tokio::time::timeout(Duration::from_millis(700), projections.close()).await;
        assert!(stopped.is_ok());
        let runs = projections.projector(&group("p")).unwrap().timer_runs;
        assert_eq!(runs, 0, "the program is slow enough for this test to say something");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_tries_again_hears_commands() {
    within(async {
        let world = World::memory().await;
        let strict = r#"if .payload.bad then error("bad") else {upsert: {collection: "docs", key: .key, inc: {n: 1}}} end"#;
        let patient = Projector { retries: 1_000, ..projector(jq(strict), &["docs"]) };
        let projections = world.open(declared(patient)).await;
        world.publish("in", "a", "{}").await;
        world.publish("in", "b", r#"{"bad":true}"#).await;
        let tried = |times: u64| {
            move |status: &promethean_projections::ProjectorStatus| {
                status.activity == Activity::Retrying && status.failures >= times
            }
        };
        // By then it waits for a second.
        let before = until(&projections, "p", tried(10)).await.failures;
        let told = async {
            for n in 1..=5 {
                projections.resume(&group("p")).await.unwrap();
                until(&projections, "p", tried(before + n)).await;
            }
            projections.rebuild(&group("p"), false).await.unwrap();
            let refused = projections.rebuild(&group("p"), false).await;
            assert_eq!(refused.unwrap_err().code(), "rebuilding");
            assert_eq!(world.docs("docs").await, [json!({"_key": "a", "n": 1})]);
            projections.close().await;
        };
        let told = tokio::time::timeout(Duration::from_secs(2), told).await;
        assert!(told.is_ok(), "it waits for its time");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_commit_writes_is_bounded_in_bytes() {
    within(async {
        let (world, shaky) = World::shaky().await;
        let logic = jq(r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#);
        let projections = world.open(declared(projector(logic, &["docs"]))).await;
        let filler = json!({"filler": "x".repeat(900 << 10)}).to_string();
        for n in 0..50 {
            world.publish("in", &format!("k{n}"), &filler).await;
        }
        caught_up(&world, &projections, "p").await;
        projections.close().await;
        for n in 0..50 {
            world.publish("in", &format!("k{n}"), r#"{"n":1}"#).await;
        }
        let (largest, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, counted) = (Arc::clone(&largest), Arc::clone(&commits));
        shaky.rule(move |asked| {
            if let Asked::Commit(batch) = asked {
                let bytes = |op: &StateOp| match op {
                    StateOp::Doc(DocOp::Put(put)) => put.body.len(),
                    _ => 0,
                };
                let bytes: usize = batch.state.iter().map(bytes).sum();
                seen.fetch_max(bytes, Ordering::SeqCst);
                counted.fetch_add(usize::from(bytes > 0), Ordering::SeqCst);
            }
            Answer::Works
        });
        // All of the small events are one batch, all of their documents 45 MiB.
        let projections = world.open(declared(projector(jq(SET), &["docs"]))).await;
        caught_up(&world, &projections, "p").await;
        let (largest, commits) = (largest.load(Ordering::SeqCst), commits.load(Ordering::SeqCst));
        assert!(largest <= 17 << 20 && (3..=6).contains(&commits), "{largest} bytes in {commits} commits");
        assert!(world.docs("docs").await.iter().all(|doc| doc["n"] == 1));
        projections.close().await;
    })
    .await;
}
