//! Queries against a plain list, under random changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_store::port::{Doc, DocQuery, Keeping, Store};
use promethean_store::value::Value;

use super::StoreUnderTest;
use super::docs::{batch, declare, delete, put};
use super::support::*;
use crate::SeededRng;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    for seed in 0..4 {
        let keeping = if seed % 2 == 0 { Keeping::Durable } else { Keeping::Derived };
        queries_agree_with_a_list(make().await, seed, keeping).await;
    }
    questions_that_cannot_be_asked(make().await).await;
}

#[derive(Clone)]
struct Person {
    ts: i64,
    fields: Vec<(&'static str, Value)>,
}

impl Person {
    fn random(rng: &mut SeededRng) -> Self {
        let ts = rng.range(0..20) as i64 - 5;
        let mut fields = Vec::new();
        if rng.chance(85) {
            fields.push(("name", Value::from(["x", "y", "xy", ""][rng.range(0..4) as usize])));
        }
        if rng.chance(85) {
            let age =
                if rng.chance(10) { Value::from("old") } else { Value::from(rng.range(0..4) as f64 - 1.5) };
            fields.push(("age", age));
        }
        if rng.chance(85) {
            fields.push(("up", Value::from(rng.chance(50))));
        }
        Self { ts, fields }
    }

    fn body(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    fn has(&self, wanted: &(String, Value)) -> bool {
        self.fields.iter().any(|(name, value)| *name == wanted.0 && *value == wanted.1)
    }
}

async fn queries_agree_with_a_list<S: StoreUnderTest>(subject: S, seed: u64, keeping: Keeping) {
    let mut rng = SeededRng::new(seed);
    let store = subject.store();
    declare(&store, keeping).await;
    let mut people: BTreeMap<String, Person> = BTreeMap::new();
    for _ in 0..30 {
        let mut changes = batch(keeping);
        for _ in 0..rng.range(1..8) {
            let key = format!("k{}", rng.range(0..25));
            if rng.chance(20) {
                changes = changes.with(delete(&key));
                people.remove(&key);
            } else {
                let person = Person::random(&mut rng);
                changes = changes.with(put(&key, person.ts, &person.body()));
                people.insert(key, person);
            }
        }
        commit(&store, changes).await;
        check(&store, &people, &mut rng).await;
    }
    let Some(subject) = subject.reopen().await else { return };
    for _ in 0..10 {
        check(&subject.store(), &people, &mut rng).await;
    }
}

async fn check(store: &Arc<dyn Store>, people: &BTreeMap<String, Person>, rng: &mut SeededRng) {
    let conditions: [(&str, Value); 3] = [
        ("name", Value::from(["x", "y", "xy", ""][rng.range(0..4) as usize])),
        ("age", Value::from(rng.range(0..4) as f64 - 1.5)),
        ("up", Value::from(rng.chance(50))),
    ];
    for chosen in 0..8u32 {
        let chosen = conditions.iter().enumerate().filter(|(n, _)| chosen >> n & 1 == 1);
        let mut equals: Vec<_> =
            chosen.map(|(_, (name, value))| ((*name).to_owned(), value.clone())).collect();
        rng.shuffle(&mut equals);
        let (offset, limit) = (rng.range(0..6) as usize, rng.range(1..9) as usize);
        let mut matches: Vec<_> =
            people.iter().filter(|(_, person)| equals.iter().all(|wanted| person.has(wanted))).collect();
        matches.sort_by_key(|(key, person)| (Reverse(person.ts), (*key).clone()));
        let expected: Vec<&str> =
            matches.iter().skip(offset).take(limit).map(|(key, _)| key.as_str()).collect();
        let query = DocQuery { collection: collection("people"), equals, offset, limit };
        let page = store.query(&query).await.unwrap();
        let got: Vec<&str> = page.docs.iter().map(|doc| doc.key.as_str()).collect();
        assert_eq!(got, expected, "{query:?}");
        assert_eq!(page.more, matches.len() > offset + limit, "{query:?}");
    }
    let mut by_key: Vec<Doc> = Vec::new();
    loop {
        let after = by_key.last().map(|doc| doc.key.clone());
        let page = store.docs_by_key(&collection("people"), after.as_deref(), 6).await.unwrap();
        if page.is_empty() {
            break;
        }
        by_key.extend(page);
    }
    let expected: Vec<_> = people.iter().map(|(key, person)| (key.clone(), person.body())).collect();
    assert_eq!(by_key.into_iter().map(|doc| (doc.key, doc.body)).collect::<Vec<_>>(), expected);
    let info = store.collection(&collection("people")).await.unwrap().unwrap();
    assert_eq!(info.docs, people.len() as u64);
}

async fn questions_that_cannot_be_asked<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let ask = async |name: &str, equals: Vec<(&str, Value)>| {
        let equals = equals.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let query = DocQuery { collection: collection(name), equals, offset: 0, limit: 10 };
        store.query(&query).await.map(|page| page.docs.len()).map_err(|error| error.code())
    };
    assert_eq!(ask("people", vec![]).await, Err("unknown_collection"));
    declare(&store, Keeping::Durable).await;
    assert_eq!(ask("people", vec![]).await, Ok(0));
    assert_eq!(ask("people", vec![("nothing", Value::from("x"))]).await, Err("unknown_field"));
    assert_eq!(ask("people", vec![("age", Value::from("1"))]).await, Err("wrong_type"));
    assert_eq!(ask("people", vec![("up", Value::Null)]).await, Err("wrong_type"));
    assert_eq!(ask("people", vec![("name", Value::from("x")), ("age", Value::from(1.0))]).await, Ok(0));
}
