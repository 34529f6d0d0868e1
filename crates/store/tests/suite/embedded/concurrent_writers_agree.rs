//! Many writers of durable and derived batches at once, with a crash at the end: documents, index entries and counts agree.

use std::sync::Arc;

use promethean_model::CollectionName;
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{
    Batch, Collection, CollectionOp, DedupeMark, Direction, Doc, DocOp, DocPut, DocReads, Expect, Field,
    Index, Keeping, Replaces, Store, Table,
};
use promethean_store::value::FieldType;
use promethean_testkit::SeededRng;
use tokio::task::JoinSet;

use crate::suite::support::{Embedded, clock, commit, event, row, try_open};

const WRITERS: u64 = 8;
const BATCHES: u64 = 80;

fn declare(name: &str, keeping: Keeping) -> CollectionOp {
    let index = |unique| Index { fields: vec![("n".to_owned(), Direction::Descending)], unique };
    CollectionOp::Declare(Collection {
        name: name.parse().unwrap(),
        keeping,
        fields: vec![Field { name: "n".to_owned(), kind: FieldType::Number }],
        indexes: vec![index(false), index(true)],
    })
}

fn changes(rng: &mut SeededRng, collection: &str, mut batch: Batch) -> Batch {
    let name: CollectionName = collection.parse().unwrap();
    for _ in 0..rng.range(1..5) {
        let key = format!("k{}", rng.range(0..30));
        batch = if rng.chance(25) {
            batch.with(DocOp::Delete { collection: name.clone(), key, expect: Expect::Any })
        } else {
            let (ts, n) = (rng.range(0..9) as i64, rng.range(0..40));
            let body = format!("{{\"n\":{n}}}");
            {
                let (collection, expect, replaces) = (name.clone(), Expect::Any, Replaces::Unknown);
                batch.with(DocPut { collection, key, ts, version: None, body, expect, replaces })
            }
        };
    }
    batch
}

async fn write(store: Arc<EmbeddedStore>, writer: u64) -> (u64, u64) {
    let mut rng = SeededRng::new(writer);
    let (mut accepted, mut violations) = (0, 0);
    for n in 0..BATCHES {
        let batch = match rng.range(0..4) {
            0 => changes(&mut rng, "derived", Batch::derived()),
            1 => changes(&mut rng, "durable", Batch::new()).event(event("a", &format!("{writer}-{n}"))),
            2 => {
                let id = rng.range(0..50).to_string();
                let expires_at = rng.range(0..100) as i64;
                let mark = DedupeMark { scope: "s".to_owned(), id, expires_at, unless_seen_at: None };
                changes(&mut rng, "durable", Batch::new()).with(mark)
            }
            _ => {
                store.sweep(50).await.unwrap();
                let kind = if rng.chance(50) { Batch::new() } else { Batch::derived() };
                kind.with(row(Table::Attempts, &rng.range(0..5).to_string(), &n.to_string()))
            }
        };
        match store.commit(batch).await {
            Ok(_) => accepted += 1,
            Err(error) => {
                assert_eq!(error.code(), "unique_violation", "{error}");
                violations += 1;
            }
        }
    }
    (accepted, violations)
}

async fn documents(store: &EmbeddedStore, name: &str) -> Vec<Doc> {
    store.docs_by_key(&name.parse().unwrap(), None, 1000).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_both_kinds_agree() {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().with(declare("durable", Keeping::Durable))).await;
    commit(&*subject.store, Batch::derived().with(declare("derived", Keeping::Derived))).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(Arc::clone(&subject.store), writer));
    }
    let (mut accepted, mut violations) = (0, 0);
    while let Some(done) = writers.join_next().await {
        let (ok, refused) = done.unwrap();
        accepted += ok;
        violations += refused;
    }
    assert!(accepted > 100 && violations > 10, "{accepted} accepted, {violations} violations");
    let report = subject.store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    let before = [documents(&subject.store, "durable").await, documents(&subject.store, "derived").await];
    let image = subject.image();
    let store = try_open(image.path(), &clock()).await.unwrap();
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!([documents(&store, "durable").await, documents(&store, "derived").await], before);
}
