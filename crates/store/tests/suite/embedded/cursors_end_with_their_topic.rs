//! Cursors are moved all the time while their topic is deleted and made again. No cursor outlives its topic: the store
//! opens after every deletion, as it stands and after a crash, and no cursor is beyond the end of its topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use promethean_model::{EventId, Offset};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{Batch, CursorReads, EventReads, Store, TopicOp, Watch};
use promethean_testkit::until;
use tokio::task::JoinSet;

use crate::suite::support::{Embedded, clock, commit, cursor, event, topic, try_open};

const DELETIONS: u64 = 40;
const EVENTS: u64 = 20;

/// Moves the cursor of a group to the end of the topic until it is told to stop.
async fn move_cursor(store: Arc<EmbeddedStore>, group: &str, class: Batch, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        let end = store.durable_end(&topic("a"));
        if let Err(error) = store.commit(class.clone().with(cursor(group, "a", end.get()))).await {
            assert_eq!(error.code(), "beyond_end", "{error}");
        }
    }
}

async fn check_cursors(store: &EmbeddedStore, when: &str) {
    let end = store.durable_end(&topic("a"));
    for found in store.cursors_of_topic(&topic("a")).await.unwrap() {
        assert!(found.cursor.floor <= end, "{when}: {found:?} beyond {end}");
    }
}

async fn fill(store: &EmbeddedStore, round: u64) {
    let events = (0..EVENTS).map(|n| event("a", &format!("{round}-{n}")));
    commit(store, Batch { events: events.collect(), ..Batch::new() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_cursor_outlives_its_topic() {
    let subject = Embedded::new().await;
    for round in 0..DELETIONS {
        let stop = Arc::new(AtomicBool::new(false));
        let mut movers = JoinSet::new();
        for (group, class) in [("g", Batch::new()), ("p", Batch::derived()), ("q", Batch::derived())] {
            movers.spawn(move_cursor(Arc::clone(&subject.store), group, class, Arc::clone(&stop)));
        }
        fill(&subject.store, round).await;
        until("a moved cursor", async || {
            let cursors = subject.store.cursors_of_topic(&topic("a")).await.unwrap();
            cursors.iter().any(|found| found.cursor.floor == Offset(EVENTS))
        })
        .await;
        commit(&*subject.store, Batch::new().with(TopicOp::Delete(topic("a")))).await;
        stop.store(true, Ordering::SeqCst);
        movers.join_all().await;
        check_cursors(&subject.store, "after the deletion").await;
        let image = subject.image();
        let store = try_open(image.path(), &clock()).await.unwrap_or_else(|error| panic!("{round}: {error}"));
        check_cursors(&store, "after a crash").await;
        store.close().await;
    }
    subject.store.close().await;
    try_open(subject.dir.path(), &clock()).await.unwrap();
}

/// Writers publish to one topic and delete it, all at once. Every deletion is answered, and takes the events before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_deletion_is_carried_out() {
    const WRITERS: u64 = 8;
    let subject = Embedded::new().await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&subject.store);
        writers.spawn(async move {
            for round in 0..DELETIONS {
                let name = format!("{round}-{writer}");
                // Another writer may delete the topic between its creation and this event.
                let published = store.commit(Batch::new().event(event("a", &name))).await;
                commit(&*store, Batch::new().with(TopicOp::Delete(topic("a")))).await;
                let id = EventId::derive(b"test", name.as_bytes());
                let left = store.by_id(&topic("a"), id).await.unwrap();
                assert!(left.is_none(), "{name} {published:?} outlives its topic: {left:?}");
            }
        });
    }
    writers.join_all().await;
    commit(&*subject.store, Batch::new().with(TopicOp::Delete(topic("a")))).await;
    assert!(subject.store.topic_info(&topic("a")).await.unwrap().is_none());
}
