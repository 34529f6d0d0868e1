//! A store opens despite damaged events. Reads and `verify` find the damage and name its range.

use promethean_model::Offset;
use promethean_store::port::{AppendEvent, Batch, EventReads, Keeping, PageLimit, ReadError, Store};

use crate::suite::support::{Embedded, clock, commit, declare, doc, event, topic, try_open};

#[tokio::test(flavor = "multi_thread")]
async fn damaged_events_are_named() {
    let subject = Embedded::new().await;
    for n in 0..100u64 {
        let mut big = event("a", &n.to_string());
        big.payload = format!("\"{n:0>1000}\"");
        commit(&*subject.store, Batch::new().event(big)).await;
    }
    commit(&*subject.store, Batch::new().event(event("b", "0"))).await;
    subject.store.close().await;
    let segments = subject.dir.path().join("segments");
    let mut names: Vec<_> =
        std::fs::read_dir(&segments).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    names.sort();
    let victim = &names[3];
    let mut bytes = std::fs::read(victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(victim, bytes).unwrap();
    let store = try_open(subject.dir.path(), &clock()).await.unwrap();
    let (mut at, mut read) = (Offset::ZERO, 0);
    let damage = loop {
        match store.read(&topic("a"), at, PageLimit::default()).await {
            Ok(page) => {
                assert!(page.next > at, "the damage was passed over");
                read += page.events.len() as u64;
                at = page.next;
            }
            Err(ReadError::CorruptRange(damage)) => break damage,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((damage.range.start, damage.topic.as_str(), read), (at, "a", at.get()));
    assert!(damage.range.end > damage.range.start && damage.range.end <= Offset(100), "{damage}");
    assert!(store.health().damage.contains(&damage));
    assert!(!store.verify(|_, _| {}).await.unwrap().is_clean());
    // Events after the damage and events of other topics can be read.
    let mut behind = damage.range.end;
    let after = loop {
        match store.read(&topic("a"), behind, PageLimit::default()).await {
            Ok(page) => break page,
            Err(ReadError::CorruptRange(more)) => {
                assert!(more.range.end > behind && more.range.end < Offset(100), "{more}");
                behind = more.range.end;
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(after.events.first().map(|event| event.offset), Some(behind));
    assert_eq!(store.read(&topic("b"), Offset::ZERO, PageLimit::default()).await.unwrap().events.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_index_entry_is_found() {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().with(declare("c", Keeping::Durable))).await;
    for n in 0..20 {
        commit(&*subject.store, Batch::new().with(doc("c", &format!("k{n}"), n))).await;
    }
    assert!(subject.store.verify(|_, _| {}).await.unwrap().is_clean());
    subject.store.close().await;
    {
        let db = fjall::Database::builder(subject.dir.path().join("state")).open().unwrap();
        let index = db.keyspace("index", fjall::KeyspaceCreateOptions::default).unwrap();
        let entry = index.iter().nth(25).unwrap().key().unwrap();
        index.remove(entry).unwrap();
        index.insert([0, 0, 0, 0, 0, 1, 9, 9], []).unwrap();
    }
    let store = try_open(subject.dir.path(), &clock()).await.unwrap();
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.log.is_clean());
    let text = report.state_details.join("\n");
    assert!(report.state_faults >= 1 && text.contains("lacks an index entry"), "{text}");
}

/// `append_each` refuses only the event whose id cannot be looked up.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_cannot_be_looked_up_refuses_its_event_alone() {
    let subject = Embedded::new().await;
    let big = |n: u64| AppendEvent { payload: format!("\"{n:0>1000}\""), ..event("a", &n.to_string()) };
    for n in 0..100 {
        commit(&*subject.store, Batch::new().event(big(n))).await;
    }
    subject.store.close().await;
    let segments = subject.dir.path().join("segments");
    let mut names: Vec<_> =
        std::fs::read_dir(&segments).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    names.sort();
    let mut bytes = std::fs::read(&names[3]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&names[3], bytes).unwrap();
    let store = try_open(subject.dir.path(), &clock()).await.unwrap();
    let mut damaged = None;
    for n in 0..100 {
        if let Err(ReadError::CorruptRange(_)) =
            store.read(&topic("a"), Offset(n), PageLimit { events: 1, bytes: 1 }).await
        {
            damaged.get_or_insert(n);
        }
    }
    let damaged = damaged.unwrap();
    let good = if damaged == 0 { 99 } else { 0 };
    let events = vec![event("a", "new"), big(damaged), big(good), event("b", "new")];
    let outcomes = store.append_each(events.clone(), None, None).await;
    let codes: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(|e| e.code(), |_| "ok")).collect();
    assert_eq!(codes, ["ok", "storage_failed", "ok", "ok"]);
    assert!(outcomes[2].as_ref().unwrap().placed.duplicate);
    // A commit is all or nothing, so the whole batch is refused.
    let batch = events.into_iter().fold(Batch::new(), Batch::event);
    assert_eq!(store.commit(batch).await.unwrap_err().code(), "storage_failed");
}
