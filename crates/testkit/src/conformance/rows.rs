//! Rows of small tables.

use promethean_store::port::{Batch, CommitError, RowOp, Table};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    rows_are_ordered_bytes(make().await).await;
    only_the_first_may_put(make().await).await;
}

fn put(table: Table, key: &[u8], value: &[u8]) -> RowOp {
    RowOp::Put { table, key: key.to_vec(), value: value.to_vec(), must_be_new: false }
}

async fn rows_are_ordered_bytes<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0b", b"ab", b"\xff\xff"];
    for (n, key) in keys.iter().rev().enumerate() {
        let batch = if n % 2 == 0 { Batch::new() } else { Batch::derived() };
        commit(&store, batch.with(put(Table::Schemas, key, &[n as u8]))).await;
        commit(&store, Batch::new().with(put(Table::Groups, key, b"other"))).await;
    }
    commit(&store, Batch::new().with(RowOp::Delete { table: Table::Groups, key: b"a".to_vec() })).await;
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    let found = async |prefix: &[u8], after: Option<&[u8]>, limit| -> Vec<Vec<u8>> {
        let rows = store.rows(Table::Schemas, prefix, after, limit).await.unwrap();
        rows.into_iter().map(|row| row.key).collect()
    };
    assert_eq!(found(b"", None, 100).await, keys);
    assert_eq!(found(b"a", None, 100).await, [&b"a"[..], b"a\0b", b"ab"]);
    assert_eq!(found(b"a", Some(b"a"), 1).await, [b"a\0b"]);
    assert_eq!(found(b"\xff", None, 100).await, [b"\xff\xff"]);
    assert_eq!(found(b"b", None, 100).await, Vec::<Vec<u8>>::new());
    assert_eq!(store.row(Table::Schemas, b"ab").await.unwrap(), Some(vec![1]));
    assert_eq!(store.row(Table::Groups, b"a").await.unwrap(), None);
    assert_eq!(store.rows(Table::Groups, b"", None, 100).await.unwrap().len(), 5);
    assert_eq!(store.rows(Table::Feeds, b"", None, 100).await.unwrap(), []);
    let long = put(Table::Schemas, &[1; 5000], b"");
    assert_eq!(refused(&store, Batch::new().with(long)).await.code(), "too_large");
}

async fn only_the_first_may_put<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let new = |value: &[u8]| RowOp::Put {
        table: Table::Schemas,
        key: b"k".to_vec(),
        value: value.to_vec(),
        must_be_new: true,
    };
    commit(&store, Batch::new().with(new(b"1"))).await;
    let second = Batch::new().event(event("a", "x", "1")).with(new(b"2"));
    let error = refused(&store, second).await;
    assert_eq!((error.code(), error), ("conflict", CommitError::RowExists));
    assert_untouched(&store, &["a"]).await;
    assert_eq!(store.row(Table::Schemas, b"k").await.unwrap(), Some(b"1".to_vec()));
    let delete = RowOp::Delete { table: Table::Schemas, key: b"k".to_vec() };
    commit(&store, Batch::new().with(delete).with(new(b"3"))).await;
    assert_eq!(store.row(Table::Schemas, b"k").await.unwrap(), Some(b"3".to_vec()));
}
