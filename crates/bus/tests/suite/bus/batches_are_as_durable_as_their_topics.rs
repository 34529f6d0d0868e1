//! A batch is as durable as the most demanding of its topics, whatever the default of the store is.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{Durability, SystemClock, TopicSettings};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::Store;
use promethean_testkit::world::small_files;

use super::harness::*;

/// A topic and the durability that its settings ask for.
const TOPICS: [(&str, Option<Durability>); 3] =
    [("plain", None), ("weak", Some(Durability::Os)), ("strong", Some(Durability::Fsync))];

fn rank(durability: Durability) -> u8 {
    u8::from(durability == Durability::Fsync)
}

async fn check(default: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let options = promethean_store::embedded::EmbeddedOptions { durability: default, ..small_files() };
    // The real clock: events acknowledged as `os` are synced after some time.
    let clock = Arc::new(SystemClock::new());
    let (store, _) = EmbeddedStore::open(dir.path(), Arc::clone(&clock) as _, options).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let bus = Bus::open(Arc::clone(&store), clock, BusOptions::default()).await.unwrap();
    for (name, durability) in TOPICS {
        let settings = TopicSettings { durability, ..TopicSettings::default() };
        bus.set_topic(&topic(name), settings).await.unwrap();
    }
    let event = |to: &str| Publish::new(topic(to), "1".to_owned());
    for (one, asked) in TOPICS {
        for (other, also_asked) in TOPICS {
            let expected = [asked, also_asked].map(|asked| asked.unwrap_or(default));
            let expected = expected.into_iter().max_by_key(|durability| rank(*durability)).unwrap();
            let published = bus.publish_batch(vec![event(one), event(other)]).await.unwrap();
            for published in published {
                assert_eq!(published.durability, expected.as_str(), "{one} with {other}, default {default}");
            }
        }
        let alone = bus.publish(event(one)).await.unwrap();
        assert_eq!(alone.durability, asked.unwrap_or(default).as_str(), "{one}, default {default}");
    }
    bus.close().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_strongest_wish_counts() {
    for default in [Durability::Fsync, Durability::Os] {
        soon("batches of all pairs of topics", check(default)).await;
    }
}
