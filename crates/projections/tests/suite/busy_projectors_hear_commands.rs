//! A projector that has much to do still hears commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promethean_jq::Program;
use promethean_projections::{Activity, Projections, Projector, ProjectorStatus, Timer};
use promethean_store::port::{DocOp, StateOp};
use serde_json::json;

use super::world::*;
use promethean_testkit::{Fault, FaultStore, StoreCall};

const SET: &str = r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#;

/// Holds every page of documents that is read.
fn hold_pages(store: &FaultStore) {
    store.rule(|asked| if matches!(asked, StoreCall::DocsByKey) { Fault::Hold } else { Fault::None });
}

/// Opens a projector and gives it this many documents.
async fn with_docs(world: &World, projector: Projector, count: usize) -> Projections {
    let projections = world.open_projections(declared(projector)).await;
    for n in 0..count {
        world.publish_json("in", &format!("k{n}"), "{}").await;
    }
    caught_up(world, &projections, "p").await;
    projections
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_its_place_is_compared_a_page_at_a_time() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 5_000).await;
        hold_pages(&store);
        projections.rebuild(&group("p"), false).await.unwrap();
        // A command that comes while the projector reads a page is heard before the next page.
        store.reached().await;
        let name = group("p");
        let (told, ()) = tokio::join!(projections.rebuild(&name, false), async { store.let_through() });
        assert_eq!(told.unwrap_err().code(), "rebuilding");
        store.reached().await;
        tokio::join!(projections.close(), async { store.let_through() });
        store.heal();
        assert_eq!(docs(&world, "docs").await.len(), 5_000);
    })
    .await;
}

fn waits(status: &ProjectorStatus) -> bool {
    status.rebuild.as_ref().is_some_and(|rebuild| rebuild.running && rebuild.error.is_some())
}

fn over(status: &ProjectorStatus) -> bool {
    status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_served_and_cannot_be_read_is_replaced() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 20).await;
        let asked = AtomicUsize::new(0);
        store.rule(move |what| match what {
            StoreCall::DocsByKey if asked.fetch_add(1, Ordering::SeqCst) == 0 => Fault::Fail,
            _ => Fault::None,
        });
        projections.rebuild(&group("p"), false).await.unwrap();
        let rebuild = until(&projections, "p", over).await.rebuild.unwrap();
        assert_eq!((rebuild.equal, rebuild.error, store.failed()), (Some(false), None, 1));
        assert_eq!(docs(&world, "docs").await.len(), 20);
        projections.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projector_goes_on_while_its_rebuild_waits() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 20).await;
        store.rule(|asked| if matches!(asked, StoreCall::DocsByKey) { Fault::Fail } else { Fault::None });
        projections.rebuild(&group("p"), false).await.unwrap();
        until(&projections, "p", waits).await;
        world.publish_json("in", "k20", "{}").await;
        caught_up(&world, &projections, "p").await;
        store.heal();
        assert_eq!(until(&projections, "p", over).await.rebuild.unwrap().error, None);
        assert_eq!(docs(&world, "docs").await.len(), 21);
        projections.close().await;
    })
    .await;
}

/// The rebuild would try its event again for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_fails_at_an_event_hears_commands() {
    soon("the test", async {
        let world = World::running(StoreKind::Memory).await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 3).await;
        projections.close().await;
        let strict = Projector { retries: u32::MAX, ..projector(jq(r#"error("no")"#), &["docs"]) };
        let projections = world.open_projections(declared(strict)).await;
        projections.rebuild(&group("p"), false).await.unwrap();
        for _ in 0..3 {
            let refused = projections.rebuild(&group("p"), false).await;
            assert_eq!(refused.unwrap_err().code(), "rebuilding");
        }
        projections.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_a_store_is_in_the_way_of_goes_on_later() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let count = r#"{upsert: {collection: "docs", key: .key, inc: {n: 1}}}"#;
        let projections = with_docs(&world, projector(jq(count), &["docs"]), 20).await;
        let asked = AtomicUsize::new(0);
        // The served collection can be read: it takes two pages.
        store.rule(move |what| match what {
            StoreCall::DocsByKey if asked.fetch_add(1, Ordering::SeqCst) >= 2 => Fault::Fail,
            _ => Fault::None,
        });
        projections.rebuild(&group("p"), false).await.unwrap();
        until(&projections, "p", waits).await;
        store.heal();
        let rebuild = until(&projections, "p", over).await.rebuild.unwrap();
        assert_eq!((rebuild.equal, rebuild.error), (Some(true), None));
        world.publish_json("in", "k0", "{}").await;
        caught_up(&world, &projections, "p").await;
        assert_eq!(docs(&world, "docs").await[0], json!({"_key": "k0", "n": 2}));
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
    soon("the test", async {
        let (world, store) = faulty().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 1_000).await;
        projections.close().await;
        hold_pages(&store);
        let projections = world.open_projections(declared(timed("empty"))).await;
        store.reached().await;
        world.publish_json("in", "k0", "{}").await;
        let name = group("p");
        // After one page of seventeen.
        let (told, ()) = tokio::join!(projections.resume(&name), async { store.let_through() });
        told.unwrap();
        let status = caught_up(&world, &projections, "p").await;
        assert_eq!(status.timer_runs, 0);
        projections.close().await;
    })
    .await;
}

/// The publish of the timer never returns, so the timer ends only because it is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_takes_long_can_be_stopped() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let projections = with_docs(&world, projector(jq(SET), &["docs"]), 3).await;
        projections.close().await;
        store.rule(|asked| if matches!(asked, StoreCall::Append) { Fault::Hold } else { Fault::None });
        let says = r#"{publish: {topic: "out", key: .key, payload: {}}}"#;
        let projections = world.open_projections(declared(timed(says))).await;
        store.reached().await;
        projections.close().await;
        assert_eq!(projections.projector(&group("p")).unwrap().timer_runs, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_tries_again_hears_commands() {
    soon("the test", async {
        let world = World::running(StoreKind::Memory).await;
        let strict = r#"if .payload.bad then error("bad") else {upsert: {collection: "docs", key: .key, inc: {n: 1}}} end"#;
        let patient = Projector { retries: 1_000, ..projector(jq(strict), &["docs"]) };
        let projections = world.open_projections(declared(patient)).await;
        world.publish_json("in", "a", "{}").await;
        world.publish_json("in", "b", r#"{"bad":true}"#).await;
        let tried = |times: u64| {
            move |status: &promethean_projections::ProjectorStatus| {
                status.activity == Activity::Retrying && status.failures >= times
            }
        };
        // Each wait is longer than the last: without commands, this many waits would take three minutes.
        let before = until(&projections, "p", tried(1)).await.failures;
        for n in 1..=60 {
            projections.resume(&group("p")).await.unwrap();
            until(&projections, "p", tried(before + n)).await;
        }
        projections.rebuild(&group("p"), false).await.unwrap();
        let refused = projections.rebuild(&group("p"), false).await;
        assert_eq!(refused.unwrap_err().code(), "rebuilding");
        assert_eq!(docs(&world, "docs").await, [json!({"_key": "a", "n": 1})]);
        projections.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_commit_writes_is_bounded_in_bytes() {
    soon("the test", async {
        let (world, store) = faulty().await;
        let logic = jq(r#"{upsert: {collection: "docs", key: .key, set: .payload}}"#);
        let projections = world.open_projections(declared(projector(logic, &["docs"]))).await;
        let filler = json!({"filler": "x".repeat(900 << 10)}).to_string();
        for n in 0..50 {
            world.publish_json("in", &format!("k{n}"), &filler).await;
        }
        caught_up(&world, &projections, "p").await;
        projections.close().await;
        for n in 0..50 {
            world.publish_json("in", &format!("k{n}"), r#"{"n":1}"#).await;
        }
        let (largest, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, counted) = (Arc::clone(&largest), Arc::clone(&commits));
        store.rule(move |asked| {
            if let StoreCall::Commit(batch) = asked {
                let bytes = |op: &StateOp| match op {
                    StateOp::Doc(DocOp::Put(put)) => put.body.len(),
                    _ => 0,
                };
                let bytes: usize = batch.state.iter().map(bytes).sum();
                seen.fetch_max(bytes, Ordering::SeqCst);
                counted.fetch_add(usize::from(bytes > 0), Ordering::SeqCst);
            }
            Fault::None
        });
        // All small events are one batch; their documents take 45 MiB.
        let projections = world.open_projections(declared(projector(jq(SET), &["docs"]))).await;
        caught_up(&world, &projections, "p").await;
        let (largest, commits) = (largest.load(Ordering::SeqCst), commits.load(Ordering::SeqCst));
        assert!(largest <= 17 << 20 && (3..=6).contains(&commits), "{largest} bytes in {commits} commits");
        assert!(docs(&world, "docs").await.iter().all(|doc| doc["n"] == 1));
        projections.close().await;
    })
    .await;
}
