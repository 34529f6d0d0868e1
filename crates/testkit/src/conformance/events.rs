//! Appending: offsets, ids, expectations, stamps.

use std::sync::Arc;

use promethean_model::{Clock, MetaError, Offset};
use promethean_store::port::{
    AppendEvent, Appended, Batch, CommitError, EventRef, PageLimit, Placed, Receipt, Render, RenderedPage,
};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    offsets_are_gapless(make().await).await;
    pages_end_where_the_next_begins(make().await).await;
    a_rendered_page_is_the_same_page(make().await).await;
    an_unknown_topic_is_an_empty_one(make().await).await;
    bytes_pass_through(make().await).await;
    the_same_id_again_is_a_duplicate(make().await).await;
    an_id_with_other_content_refuses_the_whole_batch(make().await).await;
    a_batch_may_repeat_its_own_event(make().await).await;
    expected_offset(make().await).await;
    expected_key_offset(make().await).await;
    a_retry_is_a_duplicate_despite_its_expectations(make().await).await;
    stamps_never_go_back(make().await).await;
    events_that_stand_alone_are_refused_alone(make().await).await;
}

async fn offsets_are_gapless<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let mut expected = 0;
    for round in 0..5u64 {
        let mut batch = Batch::new();
        for n in 0..=round {
            batch = batch.event(event("a", format!("{round}-{n}"), format!("[{round},{n}]")));
            batch = batch.event(event("b", format!("{round}-{n}"), "1"));
        }
        let receipt = commit(&store, batch).await;
        let offsets: Vec<_> = receipt.events.iter().map(|placed| placed.offset.get()).collect();
        let wanted: Vec<_> = (expected..=expected + round).flat_map(|offset| [offset, offset]).collect();
        assert_eq!(offsets, wanted);
        expected += round + 1;
        // A refused batch takes no offset.
        let taken = event("a", format!("{round}-0"), "\"other\"");
        refused(&store, Batch::new().event(event("a", "never", "1")).event(taken)).await;
    }
    let offsets = |events: Vec<_>| -> Vec<u64> {
        events.iter().map(|event: &promethean_store::port::StoredEvent| event.offset.get()).collect()
    };
    assert_eq!(offsets(read_all(&store, "a").await), (0..expected).collect::<Vec<_>>());
    assert_eq!(offsets(read_from(&store, "b", 4).await), (4..expected).collect::<Vec<_>>());
    let Some(subject) = subject.reopen().await else { return };
    let store = subject.store();
    assert_eq!(offsets(read_all(&store, "a").await), (0..expected).collect::<Vec<_>>());
    assert_eq!(append(&store, event("a", "after", "1")).await.offset, Offset(expected));
}

async fn pages_end_where_the_next_begins<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    for n in 0..10 {
        append(&store, event("a", n.to_string(), format!("\"{}\"", "x".repeat(100)))).await;
    }
    let a = topic("a");
    let page = |from, events, bytes| store.read(&a, Offset(from), PageLimit { events, bytes });
    let first = page(0, 3, 1 << 20).await.unwrap();
    assert_eq!((first.events.len(), first.next, first.expired), (3, Offset(3), 0));
    let by_bytes = page(2, 100, 150).await.unwrap();
    assert!((1..=2).contains(&by_bytes.events.len()), "{}", by_bytes.events.len());
    let one_at_least = page(2, 100, 1).await.unwrap();
    assert_eq!((one_at_least.events.len(), one_at_least.next), (1, Offset(3)));
    let at_end = page(10, 100, 1 << 20).await.unwrap();
    assert_eq!((at_end.events.len(), at_end.next), (0, Offset(10)));
    let beyond = page(99, 100, 1 << 20).await.unwrap();
    assert_eq!((beyond.events.len(), beyond.next), (0, Offset(99)));
}

async fn a_rendered_page_is_the_same_page<S: StoreUnderTest>(subject: S) {
    fn render(out: &mut Vec<u8>, event: &EventRef<'_>) {
        out.extend_from_slice(format!("{event:?}\n").as_bytes());
    }
    let store = subject.store();
    for n in 0..40 {
        let made = keyed("a", n.to_string(), "k", format!("\"{}\"", "x".repeat(n * 20)));
        let meta = if n % 3 == 0 { vec![1, 2, 3] } else { Vec::new() };
        append(
            &store,
            if n % 2 == 0 { AppendEvent { meta, ..made } } else { event("a", n.to_string(), "1") },
        )
        .await;
    }
    let write: Arc<Render> = Arc::new(|out, event| {
        render(out, event);
        Ok(())
    });
    let a = topic("a");
    for (from, events, bytes) in
        [(0, 100, 1 << 20), (0, 7, 1 << 20), (3, 100, 900), (39, 5, 1), (40, 5, 5), (50, 5, 5)]
    {
        let limit = PageLimit { events, bytes };
        let page = store.read(&a, Offset(from), limit).await.unwrap();
        let mut wanted = b"before".to_vec();
        page.events.iter().for_each(|event| render(&mut wanted, &event.as_ref()));
        let rendered =
            store.read_rendered(&a, Offset(from), limit, b"before".to_vec(), Arc::clone(&write)).await;
        assert_eq!(rendered.unwrap(), RenderedPage { out: wanted, next: page.next, expired: page.expired });
    }
    let unreadable: Arc<Render> = Arc::new(|_, _| Err(MetaError::Truncated));
    let refused = store.read_rendered(&a, Offset(0), PageLimit::default(), Vec::new(), unreadable).await;
    assert_eq!(refused.unwrap_err().code(), "storage_failed");
    let none = store.read_rendered(&topic("none"), Offset(5), PageLimit::default(), Vec::new(), write).await;
    assert_eq!(none.unwrap(), RenderedPage { out: Vec::new(), next: Offset(5), expired: 0 });
}

async fn an_unknown_topic_is_an_empty_one<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let none = topic("none");
    assert_eq!(store.topic_info(&none).await.unwrap(), None);
    let page = store.read(&none, Offset(5), PageLimit::default()).await.unwrap();
    assert_eq!((page.events.len(), page.next, page.expired), (0, Offset(5), 0));
    assert_eq!(store.by_id(&none, id("x")).await.unwrap(), None);
    assert_eq!(store.latest_by_keys(&none, &["k".to_owned()]).await.unwrap(), [None]);
    let range = promethean_model::OffsetRange::new(Offset::ZERO, Offset::MAX);
    assert_eq!(store.key_history(&none, "k", range, 10).await.unwrap(), []);
    assert_eq!(store.offset_at(&none, 0).await.unwrap(), None);
    assert_eq!(store.durable_end(&none), Offset::ZERO);
    assert!(!store.has_topic(&none));
    assert_eq!(store.topics(None, 10).await.unwrap().topics, []);
    assert_eq!(commit(&store, Batch::new()).await.events, []);
}

async fn bytes_pass_through<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let odd = AppendEvent {
        ts: Some(-5),
        key: Some("schl\u{fc}ssel\u{0}\u{10ffff}".to_owned()),
        meta: (0..=255).collect(),
        payload: "{\"a\":1e400,\"a\":\"\u{7f}\"}".to_owned(),
        ..event("a", "odd", "")
    };
    let empty_key = AppendEvent { key: Some(String::new()), ..event("a", "empty", "null") };
    commit(&store, Batch::new().event(odd.clone()).event(empty_key)).await;
    let check = async |store: &std::sync::Arc<dyn promethean_store::port::Store>| {
        let events = read_all(store, "a").await;
        let stored = &events[0];
        assert_eq!((stored.id, stored.ts, stored.server_stamped), (id("odd"), -5, false));
        assert_eq!(stored.key(), odd.key.as_deref());
        assert_eq!((stored.meta(), stored.payload()), (odd.meta.as_slice(), odd.payload.as_bytes()));
        assert_eq!((events[1].key(), events[1].is_tombstone()), (Some(""), true));
        assert!(events[1].server_stamped);
    };
    check(&store).await;
    if let Some(subject) = subject.reopen().await {
        check(&subject.store()).await;
    }
}

async fn the_same_id_again_is_a_duplicate<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    append(&store, event("a", "before", "0")).await;
    let first = append(&store, keyed("a", "x", "k", "1")).await;
    assert!(!first.duplicate);
    subject.clock().advance(1000);
    let again = Placed { duplicate: true, ..first };
    // Only key and payload decide whether an event is a duplicate.
    let with_meta = AppendEvent { meta: b"m".to_vec(), ts: Some(7), ..keyed("a", "x", "k", "1") };
    assert_eq!(append(&store, with_meta).await, again);
    assert_eq!(payloads(&store, "a").await, ["0", "1"]);
    // An id names an event within its topic.
    assert!(!append(&store, keyed("b", "x", "k", "1")).await.duplicate);
    // A duplicate among new events.
    let mixed =
        Batch::new().event(event("a", "y", "2")).event(keyed("a", "x", "k", "1")).event(event("a", "z", "3"));
    let receipt = commit(&store, mixed).await;
    let offsets: Vec<_> =
        receipt.events.iter().map(|placed| (placed.offset.get(), placed.duplicate)).collect();
    assert_eq!(offsets, [(2, false), (1, true), (3, false)]);
    let Some(subject) = subject.reopen().await else { return };
    let store = subject.store();
    assert_eq!(append(&store, keyed("a", "x", "k", "1")).await, again);
    assert_eq!(payloads(&store, "a").await, ["0", "1", "2", "3"]);
}

async fn an_id_with_other_content_refuses_the_whole_batch<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    append(&store, keyed("a", "x", "k", "1")).await;
    let others = [keyed("a", "x", "k", "2"), keyed("a", "x", "j", "1"), event("a", "x", "1")];
    for other in others {
        let batch = Batch::new()
            .event(event("b", "new", "1"))
            .event(other)
            .event(event("a", "new", "1"))
            .with(row("r", "1"))
            .with(cursor_put("g", "b", 0, 0, 1));
        let error = refused(&store, batch).await;
        let expected = CommitError::IdConflict { topic: topic("a"), id: id("x"), offset: Offset(0) };
        assert_eq!(error, expected);
        assert_eq!(error.code(), "id_conflict");
        assert_eq!(payloads(&store, "a").await, ["1"]);
        assert_untouched(&store, &["b"]).await;
    }
}

async fn a_batch_may_repeat_its_own_event<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let twice =
        Batch::new().event(event("a", "x", "1")).event(event("a", "y", "2")).event(event("a", "x", "1"));
    let receipt = commit(&store, twice).await;
    let placed: Vec<_> =
        receipt.events.iter().map(|placed| (placed.offset.get(), placed.duplicate)).collect();
    assert_eq!(placed, [(0, false), (1, false), (0, true)]);
    assert_eq!(receipt.events[0].ts, receipt.events[2].ts);
    let contradiction = Batch::new().event(event("b", "x", "1")).event(event("b", "x", "2"));
    assert_eq!(refused(&store, contradiction).await.code(), "id_conflict");
    assert_eq!(payloads(&store, "a").await, ["1", "2"]);
    assert_untouched(&store, &["b"]).await;
}

async fn expected_offset<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let a = topic("a");
    let wrong = Batch::new().event(event("a", "0", "0")).expect_end(a.clone(), Offset(1));
    let error = refused(&store, wrong).await;
    assert_eq!(error, CommitError::Conflict { topic: a.clone(), expected: Offset(1), actual: Offset(0) });
    assert_eq!(error.code(), "conflict");
    assert_untouched(&store, &["a"]).await;
    commit(&store, Batch::new().event(event("a", "0", "0")).expect_end(a.clone(), Offset(0))).await;
    commit(&store, Batch::new().event(event("a", "1", "1")).expect_end(a.clone(), Offset(1))).await;
    // The expectation may be about a topic that the batch does not write.
    let elsewhere =
        Batch::new().event(event("b", "0", "0")).with(row("r", "1")).expect_end(a.clone(), Offset(1));
    assert_eq!(refused(&store, elsewhere).await.code(), "conflict");
    assert_untouched(&store, &["b"]).await;
    let state_only = Batch::new().with(row("r", "1")).expect_end(a, Offset(2));
    commit(&store, state_only).await;
    assert_eq!(rows(&store).await.len(), 1);
}

async fn expected_key_offset<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let a = topic("a");
    let put = |name: &str, expected: Option<u64>| {
        Batch::new().event(keyed("a", name, "k", "1")).expect_key(a.clone(), "k", expected.map(Offset))
    };
    let error = refused(&store, put("0", Some(0))).await;
    let expected = CommitError::KeyConflict { topic: a.clone(), expected: Some(Offset(0)), actual: None };
    assert_eq!((error.code(), &error), ("conflict", &expected));
    assert_untouched(&store, &["a"]).await;
    commit(&store, put("0", None)).await;
    append(&store, keyed("a", "other", "j", "1")).await;
    commit(&store, put("1", Some(0))).await;
    for wrong in [None, Some(0), Some(1), Some(3)] {
        let error = refused(&store, put("2", wrong)).await;
        let expected = wrong.map(Offset);
        assert_eq!(error, CommitError::KeyConflict { topic: a.clone(), expected, actual: Some(Offset(2)) });
    }
    let Some(subject) = subject.reopen().await else { return };
    commit(&subject.store(), put("2", Some(2))).await;
}

async fn a_retry_is_a_duplicate_despite_its_expectations<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let batch = || {
        Batch::new()
            .event(keyed("a", "x", "k", "1"))
            .event(event("a", "y", "2"))
            .expect_end(topic("a"), Offset(0))
            .expect_key(topic("a"), "k", None)
    };
    let first = commit(&store, batch()).await;
    let again = commit(&store, batch()).await;
    assert!(again.events.iter().all(|placed| placed.duplicate));
    let offsets = |receipt: &Receipt| -> Vec<_> {
        receipt.events.iter().map(|placed| (placed.offset, placed.ts)).collect()
    };
    assert_eq!(offsets(&first), offsets(&again));
    // A batch with a new event is not a retry.
    assert_eq!(refused(&store, batch().event(event("a", "z", "3"))).await.code(), "conflict");
    assert_eq!(payloads(&store, "a").await, ["1", "2"]);
}

async fn stamps_never_go_back<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let clock = subject.clock();
    let now = clock.wall_ms();
    let stamp = async |name: &str| append(&store, event("a", name, "1")).await.ts;
    assert_eq!(stamp("0").await, now);
    clock.advance_wall(-9_000);
    assert_eq!(stamp("1").await, now);
    // A given time is kept and does not change later stamps.
    let given = AppendEvent { ts: Some(now + 89_000), ..event("a", "2", "1") };
    assert_eq!(append(&store, given).await.ts, now + 89_000);
    assert_eq!(stamp("3").await, now);
    clock.set_wall(now + 1);
    assert_eq!(stamp("4").await, now + 1);
    assert_eq!(append(&store, event("b", "0", "1")).await.ts, now + 1);
    // A leap that is taken back leaves no trace.
    for leap in [3_600_000, 315_576_000_000, -3_600_000, -315_576_000_000] {
        clock.advance_wall(leap);
        assert_eq!(stamp(&format!("leap {leap}")).await, now + 1);
        clock.advance_wall(-leap);
        assert_eq!(stamp(&format!("back from {leap}")).await, now + 1);
    }
    clock.set_wall(500);
    let Some(subject) = subject.reopen().await else { return };
    assert_eq!(append(&subject.store(), event("a", "5", "1")).await.ts, now + 1);
}

async fn events_that_stand_alone_are_refused_alone<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    append(&store, event("a", "x", "0")).await;
    let events = vec![
        event("a", "1", "1"),
        event("a", "x", "\"other\""),
        event("new", "2", "1"),
        event("a", "1", "1"),
        AppendEvent { key: Some("k".repeat(70_000)), ..event("b", "4", "1") },
        event("a", "5", "1"),
        event("a", "x", "0"),
    ];
    let text = |result: Result<Appended, CommitError>| match result {
        Ok(Appended { placed, .. }) => {
            format!("{}{}", placed.offset, if placed.duplicate { "d" } else { "" })
        }
        Err(error) => error.code().to_owned(),
    };
    let outcomes: Vec<_> = store.append_each(events, None, None).await.into_iter().map(text).collect();
    assert_eq!(outcomes, ["1", "id_conflict", "0", "1d", "too_large", "2", "0d"]);
    assert_eq!(payloads(&store, "a").await.len(), 3);
    assert_eq!(store.append_each(Vec::new(), None, None).await, []);
    store.close().await;
    let closed = store.append_each(vec![event("a", "9", "1")], None, None).await;
    assert_eq!(closed.into_iter().map(text).collect::<Vec<_>>(), ["closed"]);
}
