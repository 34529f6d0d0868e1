//! Short forms of batches, events and checks that many cases use.

use std::sync::Arc;

use promethean_model::{EventId, Offset};
use promethean_store::port::{
    AppendEvent, Batch, CommitError, Cursor, CursorOp, EventIdSource, PageLimit, Placed, Receipt, Row, RowOp,
    Store, StoredEvent, Table,
};

pub(super) use crate::names::{collection, group, topic};

/// The id of this name; equal names have equal ids.
pub(super) fn id(name: impl AsRef<str>) -> EventId {
    EventId::derive(b"conformance", name.as_ref().as_bytes())
}

/// An event whose id comes from its name.
pub(super) fn event(to: &str, name: impl AsRef<str>, payload: impl Into<String>) -> AppendEvent {
    AppendEvent {
        topic: topic(to),
        id: EventIdSource::Given(id(name)),
        ts: None,
        key: None,
        meta: Vec::new(),
        payload: payload.into(),
    }
}

pub(super) fn keyed(to: &str, name: impl AsRef<str>, key: &str, payload: impl Into<String>) -> AppendEvent {
    AppendEvent { key: Some(key.to_owned()), ..event(to, name, payload) }
}

pub(super) fn row(key: &str, value: &str) -> RowOp {
    RowOp::Put {
        table: Table::Attempts,
        key: key.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        must_be_new: false,
    }
}

pub(super) fn cursor_put(of: &str, on: &str, floor: u64, expected_epoch: u64, epoch: u64) -> CursorOp {
    CursorOp::Put {
        group: group(of),
        topic: topic(on),
        cursor: Cursor { floor: Offset(floor), epoch, data: floor.to_string().into_bytes() },
        expected_epoch,
    }
}

pub(super) async fn append(store: &Arc<dyn Store>, event: AppendEvent) -> Placed {
    let receipt = store.commit(Batch::new().event(event)).await.unwrap();
    receipt.events[0]
}

pub(super) async fn commit(store: &Arc<dyn Store>, batch: Batch) -> Receipt {
    store.commit(batch).await.unwrap()
}

/// Appends events whose content does not matter.
pub(super) async fn fill(store: &Arc<dyn Store>, name: &str, count: u64) {
    let events = (0..count).map(|n| event(name, format!("fill-{n}"), n.to_string()));
    commit(store, events.fold(Batch::new(), Batch::event)).await;
}

pub(super) async fn refused(store: &Arc<dyn Store>, batch: Batch) -> CommitError {
    let error = store.commit(batch).await.expect_err("the batch must be refused");
    assert!(error.has_no_side_effects());
    assert!(!error.to_string().is_empty() && !error.code().is_empty());
    error
}

/// Every event from an offset on, read in small pages.
pub(super) async fn read_from(store: &Arc<dyn Store>, name: &str, from: u64) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    let mut from = Offset(from);
    loop {
        let page = store.read(&topic(name), from, PageLimit { events: 7, bytes: 1 << 20 }).await.unwrap();
        assert!(page.events.len() <= 7);
        assert!(page.events.iter().all(|event| event.offset < page.next && event.offset >= from));
        if page.next == from {
            assert!(page.events.is_empty());
            return events;
        }
        from = page.next;
        events.extend(page.events);
    }
}

pub(super) async fn read_all(store: &Arc<dyn Store>, name: &str) -> Vec<StoredEvent> {
    read_from(store, name, 0).await
}

pub(super) async fn payloads(store: &Arc<dyn Store>, name: &str) -> Vec<String> {
    let text = |event: &StoredEvent| String::from_utf8(event.payload().to_vec()).unwrap();
    read_all(store, name).await.iter().map(text).collect()
}

pub(super) async fn rows(store: &Arc<dyn Store>) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let rows = store.rows(Table::Attempts, b"", None, 1000).await.unwrap();
    rows.into_iter().map(|Row { key, value }| (text(key), text(value))).collect()
}

/// Checks that nothing was written: no topic, no row, no cursor.
pub(super) async fn assert_untouched(store: &Arc<dyn Store>, names: &[&str]) {
    for name in names {
        assert_eq!(payloads(store, name).await, Vec::<String>::new(), "events in `{name}`");
        assert_eq!(store.durable_end(&topic(name)), Offset::ZERO);
        assert_eq!(store.cursors_of_topic(&topic(name)).await.unwrap(), [], "cursors on `{name}`");
    }
    assert_eq!(rows(store).await, []);
}
