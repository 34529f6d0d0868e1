//! Collections and documents.

use std::sync::Arc;

use promethean_store::port::{
    Batch, Collection, CollectionOp, CommitError, Direction, Doc, DocOp, DocPut, DocQuery, Expect, Field,
    Index, Keeping, ReadError, Replaces, Store,
};
use promethean_store::value::FieldType;

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    documents_are_written_whole(make().await).await;
    a_document_that_is_known_is_replaced_without_looking(make().await).await;
    expectations(make().await).await;
    unique_indexes(make().await).await;
    declarations(make().await).await;
    a_dropped_collection_is_gone_at_once(make().await).await;
    a_renamed_collection_takes_the_others_place(make().await).await;
    classes_do_not_mix(make().await).await;
    bad_documents(make().await).await;
}

pub(super) fn people(keeping: Keeping) -> Collection {
    let field = |name: &str, kind| Field { name: name.to_owned(), kind };
    Collection {
        name: collection("people"),
        keeping,
        fields: vec![
            field("name", FieldType::Text),
            field("age", FieldType::Number),
            field("up", FieldType::Bool),
            field("mail", FieldType::Text),
        ],
        indexes: vec![
            Index {
                fields: vec![
                    ("name".to_owned(), Direction::Ascending),
                    ("age".to_owned(), Direction::Descending),
                ],
                unique: false,
            },
            Index { fields: vec![("up".to_owned(), Direction::Descending)], unique: false },
            Index { fields: vec![("mail".to_owned(), Direction::Ascending)], unique: true },
        ],
    }
}

pub(super) fn put(key: &str, ts: i64, body: &str) -> DocPut {
    DocPut {
        collection: collection("people"),
        key: key.to_owned(),
        ts,
        version: None,
        body: body.to_owned(),
        expect: Expect::Any,
        replaces: Replaces::Unknown,
    }
}

pub(super) fn delete(key: &str) -> DocOp {
    DocOp::Delete { collection: collection("people"), key: key.to_owned(), expect: Expect::Any }
}

pub(super) async fn declare(store: &Arc<dyn Store>, keeping: Keeping) {
    commit(store, batch(keeping).with(CollectionOp::Declare(people(keeping)))).await;
}

pub(super) fn batch(keeping: Keeping) -> Batch {
    match keeping {
        Keeping::Durable => Batch::new(),
        Keeping::Derived => Batch::derived(),
    }
}

async fn doc(store: &Arc<dyn Store>, key: &str) -> Option<Doc> {
    store.doc(&collection("people"), key).await.unwrap()
}

async fn docs(store: &Arc<dyn Store>) -> u64 {
    store.collection(&collection("people")).await.unwrap().unwrap().docs
}

async fn documents_are_written_whole<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    assert_eq!(doc(&store, "a").await, None);
    commit(&store, Batch::new().with(DocPut { version: Some(-4), ..put("a", 7, "{\"name\": \"x\" }") }))
        .await;
    let expected = Doc {
        key: "a".to_owned(),
        ts: 7,
        version: Some(-4),
        revision: 1,
        body: "{\"name\": \"x\" }".to_owned(),
    };
    assert_eq!(doc(&store, "a").await, Some(expected));
    commit(
        &store,
        Batch::new().with(put("a", 6, "{}")).with(put("b", 1, "{}")).with(put("a", 5, "{\"age\":1}")),
    )
    .await;
    let after = doc(&store, "a").await.unwrap();
    assert_eq!((after.ts, after.version, after.revision, after.body.as_str()), (5, None, 3, "{\"age\":1}"));
    assert_eq!(docs(&store).await, 2);
    commit(&store, Batch::new().with(delete("b")).with(delete("none"))).await;
    assert_eq!((doc(&store, "b").await, docs(&store).await), (None, 1));
    let Some(subject) = subject.reopen().await else { return };
    let store = subject.store();
    assert_eq!((doc(&store, "a").await, doc(&store, "b").await, docs(&store).await), (Some(after), None, 1));
    commit(&store, Batch::new().with(put("b", 1, "{}"))).await;
    assert_eq!(doc(&store, "b").await.unwrap().revision, 1);
}

async fn expectations<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    let expecting = |expect| DocPut { expect, ..put("a", 1, "{}") };
    let check = async |expect, actual: u64| {
        let error = refused(&store, Batch::new().with(row("r", "1")).with(expecting(expect))).await;
        let key = "a".to_owned();
        assert_eq!(error, CommitError::DocConflict { collection: collection("people"), key, actual });
        assert_eq!(error.code(), "conflict");
        assert_eq!(rows(&store).await, []);
    };
    check(Expect::Present, 0).await;
    check(Expect::Revision(1), 0).await;
    commit(&store, Batch::new().with(expecting(Expect::Absent)).with(expecting(Expect::Revision(1)))).await;
    check(Expect::Absent, 2).await;
    check(Expect::Revision(1), 2).await;
    commit(&store, Batch::new().with(expecting(Expect::Present))).await;
    let drop_at = |revision| DocOp::Delete {
        collection: collection("people"),
        key: "a".to_owned(),
        expect: Expect::Revision(revision),
    };
    assert_eq!(refused(&store, Batch::new().with(drop_at(2))).await.code(), "conflict");
    commit(&store, Batch::new().with(drop_at(3))).await;
    assert_eq!(doc(&store, "a").await, None);
}

async fn unique_indexes<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    let mail = |key: &str, mail: &str| put(key, 1, &format!("{{\"mail\":{mail}}}"));
    commit(&store, Batch::new().with(mail("a", "\"x\"")).with(mail("b", "\"y\""))).await;
    let violation = |key: &str, existing: &str| CommitError::UniqueViolation {
        collection: collection("people"),
        index: "mail".to_owned(),
        key: key.to_owned(),
        existing: existing.to_owned(),
    };
    // Nothing of the batch is written, also if both documents are new.
    let clash = Batch::new().event(event("t", "x", "1")).with(row("r", "1")).with(mail("c", "\"x\""));
    let error = refused(&store, clash).await;
    assert_eq!((error.code(), error), ("unique_violation", violation("c", "a")));
    let both_new = Batch::new().with(mail("c", "\"z\"")).with(mail("d", "\"z\""));
    assert_eq!(refused(&store, both_new).await, violation("d", "c"));
    assert_untouched(&store, &["t"]).await;
    assert_eq!((doc(&store, "c").await, docs(&store).await), (None, 2));
    // A document keeps its own value, gives it up, and passes it on.
    commit(&store, Batch::new().with(mail("a", "\"x\""))).await;
    commit(&store, Batch::new().with(mail("a", "\"w\"")).with(mail("c", "\"x\""))).await;
    commit(&store, Batch::new().with(delete("b")).with(mail("d", "\"y\""))).await;
    // Types differ, so values do; null and missing are exempt.
    commit(&store, Batch::new().with(mail("e", "1")).with(mail("f", "true")).with(mail("g", "\"1\""))).await;
    assert_eq!(refused(&store, Batch::new().with(mail("h", "1.0"))).await, violation("h", "e"));
    for key in ["i", "j"] {
        commit(&store, Batch::new().with(mail(key, "null"))).await;
        commit(&store, Batch::new().with(put(&format!("{key}{key}"), 1, "{}"))).await;
    }
    // The index cuts a long text; a query still compares the whole text.
    let long = |last: char| format!("\"{}{last}\"", "m".repeat(5000));
    commit(&store, Batch::new().with(mail("k", &long('1'))).with(mail("l", &long('2')))).await;
    assert_eq!(refused(&store, Batch::new().with(mail("m", &long('1')))).await, violation("m", "k"));
    let Some(subject) = subject.reopen().await else { return };
    assert_eq!(refused(&subject.store(), Batch::new().with(mail("z", "\"w\""))).await, violation("z", "a"));
}

async fn declarations<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    assert_eq!(store.collection(&collection("people")).await.unwrap(), None);
    assert_eq!(refused(&store, Batch::new().with(put("a", 1, "{}"))).await.code(), "unknown_collection");
    let original = people(Keeping::Durable);
    declare(&store, Keeping::Durable).await;
    declare(&store, Keeping::Durable).await;
    let declare_as = |change: &dyn Fn(&mut Collection)| {
        let mut changed = original.clone();
        change(&mut changed);
        Batch::new().with(CollectionOp::Declare(changed))
    };
    let bad: [&dyn Fn(&mut Collection); 6] = [
        &|c| c.indexes[0].fields[0].0 = "undeclared".to_owned(),
        &|c| c.indexes[0].fields[1].0 = "name".to_owned(),
        &|c| c.indexes[1].fields.clear(),
        &|c| c.fields.push(Field { name: "name".to_owned(), kind: FieldType::Bool }),
        &|c| c.fields.push(Field { name: String::new(), kind: FieldType::Bool }),
        &|c| c.indexes = vec![c.indexes[1].clone(); 33],
    ];
    for change in bad {
        assert_eq!(refused(&store, declare_as(change)).await.code(), "bad_index");
    }
    // Indexes change while it is empty, fields at any time.
    commit(&store, declare_as(&|c| c.indexes.clear())).await;
    commit(&store, Batch::new().with(put("a", 1, "{\"mail\":\"x\"}"))).await;
    assert_eq!(refused(&store, declare_as(&|_| ())).await.code(), "bad_index");
    let grown = |c: &mut Collection| {
        c.indexes.clear();
        c.fields.push(Field { name: "more".to_owned(), kind: FieldType::Bool });
    };
    commit(&store, declare_as(&grown)).await;
    commit(&store, Batch::new().with(delete("a"))).await;
    commit(&store, declare_as(&|_| ())).await;
    for n in 0..5 {
        commit(&store, declare_as(&|c| c.name = collection(&format!("C{n}")))).await;
    }
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    let info = store.collection(&collection("people")).await.unwrap().unwrap();
    assert_eq!((info.collection, info.docs), (original.clone(), 0));
    let page = store.collections(Some(&collection("C1")), 3).await.unwrap();
    let names: Vec<_> = page.iter().map(|info| info.collection.name.as_str()).collect();
    assert_eq!(names, ["C2", "C3", "C4"]);
    assert_eq!(store.collections(None, 100).await.unwrap().len(), 6);
}

async fn a_dropped_collection_is_gone_at_once<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    for chunk in 0..15 {
        let mut batch = Batch::new();
        for n in 0..100 {
            batch = batch.with(put(&format!("{chunk}-{n}"), n, &format!("{{\"mail\":\"{chunk}-{n}\"}}")));
        }
        commit(&store, batch).await;
    }
    let drop = CollectionOp::Drop(collection("people"));
    let original = CollectionOp::Declare(people(Keeping::Durable));
    // Dropped and declared again in one batch, with a document whose unique value is taken in the old one.
    let renewed = put("new", 1, "{\"mail\":\"3-3\"}");
    commit(&store, Batch::new().with(drop.clone()).with(original).with(renewed)).await;
    let check = async |store: &Arc<dyn Store>| {
        assert_eq!((doc(store, "3-3").await, docs(store).await), (None, 1));
        let all = store.docs_by_key(&collection("people"), None, 10).await.unwrap();
        assert_eq!(all.iter().map(|doc| doc.key.as_str()).collect::<Vec<_>>(), ["new"]);
    };
    check(&store).await;
    let mut pieces = 0;
    while store.sweep(0).await.unwrap() {
        pieces += 1;
        assert!(pieces < 100, "sweeping never ends");
    }
    assert!(pieces > 1, "sweeping is done in bounded pieces");
    check(&store).await;
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    check(&store).await;
    commit(&store, Batch::new().with(drop.clone()).with(drop)).await;
    assert_eq!((doc(&store, "new").await, store.collections(None, 9).await.unwrap()), (None, vec![]));
    let error = store.docs_by_key(&collection("people"), None, 10).await.unwrap_err();
    assert_eq!(error, ReadError::UnknownCollection { collection: collection("people") });
}

async fn a_renamed_collection_takes_the_others_place<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Derived).await;
    let shadow = Collection { name: collection("people:next"), ..people(Keeping::Derived) };
    let put_next = |key: &str, body: &str| DocPut { collection: shadow.name.clone(), ..put(key, 1, body) };
    commit(&store, Batch::derived().with(put("a", 1, "{\"mail\":\"old\"}")).with(put("b", 1, "{}"))).await;
    commit(&store, Batch::derived().with(CollectionOp::Declare(shadow.clone()))).await;
    commit(&store, Batch::derived().with(put_next("a", "{\"mail\":\"new\"}"))).await;
    let rename = CollectionOp::Rename { from: shadow.name.clone(), to: collection("people") };
    assert_eq!(refused(&store, Batch::new().with(rename.clone())).await.code(), "wrong_keeping");
    commit(&store, Batch::derived().with(rename.clone())).await;
    let check = async |store: &Arc<dyn Store>| {
        assert_eq!(doc(store, "a").await.unwrap().body, "{\"mail\":\"new\"}");
        assert_eq!((doc(store, "b").await, docs(store).await), (None, 1));
        assert_eq!(store.collection(&shadow.name).await.unwrap(), None);
        let info = store.collection(&collection("people")).await.unwrap().unwrap();
        assert_eq!(info.collection, people(Keeping::Derived));
    };
    check(&store).await;
    // The replaced collection is gone, with its unique values.
    commit(&store, Batch::derived().with(put("c", 1, "{\"mail\":\"old\"}")).with(delete("c"))).await;
    assert_eq!(
        refused(&store, Batch::derived().with(put("d", 1, "{\"mail\":\"new\"}"))).await.code(),
        "unique_violation"
    );
    assert_eq!(refused(&store, Batch::derived().with(rename)).await.code(), "unknown_collection");
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    check(&store).await;
}

async fn classes_do_not_mix<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let declare_in = |batch: Batch, keeping| batch.with(CollectionOp::Declare(people(keeping)));
    assert_eq!(refused(&store, declare_in(Batch::new(), Keeping::Derived)).await.code(), "wrong_keeping");
    assert_eq!(refused(&store, declare_in(Batch::derived(), Keeping::Durable)).await.code(), "wrong_keeping");
    declare(&store, Keeping::Derived).await;
    commit(&store, Batch::derived().with(put("a", 1, "{}"))).await;
    assert_eq!(refused(&store, Batch::new().with(put("b", 1, "{}"))).await.code(), "wrong_keeping");
    assert_eq!(refused(&store, Batch::new().with(delete("a"))).await.code(), "wrong_keeping");
    let drop = CollectionOp::Drop(collection("people"));
    assert_eq!(refused(&store, Batch::new().with(drop.clone())).await.code(), "wrong_keeping");
    assert_eq!(refused(&store, declare_in(Batch::new(), Keeping::Durable)).await.code(), "bad_index");
    assert!(doc(&store, "a").await.is_some());
    commit(&store, Batch::derived().with(drop)).await;
    declare(&store, Keeping::Durable).await;
    commit(&store, Batch::new().with(put("a", 1, "{}"))).await;
}

async fn bad_documents<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    for body in ["", "1", "[]", "null", "{", "{\"a\":}"] {
        assert_eq!(
            refused(&store, Batch::new().with(put("a", 1, body))).await.code(),
            "bad_document",
            "{body:?}"
        );
    }
    assert_eq!(refused(&store, Batch::new().with(put("", 1, "{}"))).await.code(), "bad_document");
    let long = "k".repeat(10_000);
    assert_eq!(refused(&store, Batch::new().with(put(&long, 1, "{}"))).await.code(), "too_large");
    assert_eq!((doc(&store, &long).await, docs(&store).await), (None, 0));
}

async fn a_document_that_is_known_is_replaced_without_looking<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    declare(&store, Keeping::Derived).await;
    let write = async |put: DocPut| commit(&store, Batch::derived().with(put)).await;
    let (x, y) = (r#"{"name":"x"}"#, r#"{"name":"y"}"#);
    write(DocPut { replaces: Replaces::Nothing, ..put("a", 1, x) }).await;
    let first = Replaces::Doc { ts: 1, revision: 1, body: x.to_owned() };
    write(DocPut { replaces: first, ..put("a", 9, y) }).await;
    let after = doc(&store, "a").await.unwrap();
    assert_eq!((after.ts, after.revision, after.body.as_str(), docs(&store).await), (9, 2, y, 1));
    for (name, found) in [("x", 0), ("y", 1)] {
        let equals = vec![("name".to_owned(), name.into())];
        let query = DocQuery { collection: collection("people"), equals, offset: 0, limit: 10 };
        assert_eq!(store.query(&query).await.unwrap().docs.len(), found, "no entry is left behind: {name}");
    }
}
