//! Documents, their tags, and who may read them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use promethean_gateway::auth::{AuthError, Authenticator, Grants, Identity, Open};
use promethean_jq::{Caps, Pool, Program, RunError};
use promethean_projections::{
    Activity, CollectionDeclared, Declared, Field, FieldType, Logic, OnFailure, Projector,
};
use serde_json::{Value, json};

use crate::suite::world::{World, soon};

/// Keeps the payloads of `in` by their key in `docs`, the default collection, and counts in `stats`.
fn declared() -> Declared {
    let program = r#"
        {upsert: {collection: "docs", key: .key, set: .payload}},
        {upsert: {collection: "stats", key: "all", inc: {seen: 1}}}
    "#;
    let logic = Logic::Jq(Program::compile(program).unwrap());
    let (docs, stats) = ("docs".parse().unwrap(), "stats".parse().unwrap());
    let field = |name: &str, kind| Field { name: name.to_owned(), kind };
    let mut collection = CollectionDeclared::new("docs".parse().unwrap());
    collection.fields =
        vec![field("n", FieldType::Number), field("up", FieldType::Bool), field("a", FieldType::Text)];
    Declared {
        collections: vec![collection, CollectionDeclared::new("stats".parse().unwrap())],
        projectors: vec![
            Projector::new("p".parse().unwrap(), "in".parse().unwrap(), logic).writes([docs, stats]),
        ],
        default_collection: Some("docs".parse().unwrap()),
        ..Declared::default()
    }
}

async fn world() -> World {
    World::with_state(Arc::new(Open), declared()).await
}

impl World {
    /// Publishes an event and waits until it is projected.
    async fn project(&self, key: &str, payload: &str) {
        let published = self.send("POST", &format!("/publish/in?key={key}"), payload).await.json(200);
        let offset = published["offset"].as_u64().unwrap();
        while self.projections.projectors()[0].position <= offset {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_document_has_a_tag_of_its_bytes() {
    let world = world().await;
    world.project("a%2Fb", r#"{"n":1}"#).await;
    let mut client = world.http().await;
    let got = client.send("GET", "/snap/a%2Fb", &[], "").await;
    let doc = got.json(200);
    assert_eq!((doc["_key"].clone(), doc["n"].clone()), (json!("a/b"), json!(1)));
    let tag = got.header("etag").unwrap().to_owned();
    assert_eq!(got.header("cache-control"), Some("public, max-age=5"));
    assert_eq!(got.header("vary"), None);
    let same = client.send("GET", "/collections/docs/snap/a%2Fb", &[], "").await;
    assert_eq!(same.header("etag"), Some(tag.as_str()));
    let head = client.send("HEAD", "/snap/a%2Fb", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len(), head.header("etag")), (200, 0, Some(tag.as_str())));
    assert_eq!(head.header("content-length"), got.header("content-length"));
    let weak = format!("\"x\", W/{tag}");
    for (given, status) in
        [(tag.as_str(), 304), (weak.as_str(), 304), ("*", 304), ("\"x\"", 200), ("x", 200), ("", 200)]
    {
        for method in ["GET", "HEAD"] {
            let answer = client.send(method, "/snap/a%2Fb", &[("if-none-match", given)], "").await;
            assert_eq!(answer.status, status, "{method} {given}");
            assert_eq!(answer.header("etag"), Some(tag.as_str()));
            assert_eq!(answer.header("cache-control"), Some("public, max-age=5"));
            assert_eq!(answer.body.is_empty(), status == 304 || method == "HEAD");
        }
    }
    world.project("a%2Fb", r#"{"n":2}"#).await;
    let changed = client.send("GET", "/snap/a%2Fb", &[("if-none-match", &tag)], "").await;
    assert_eq!(changed.json(200)["n"], 2);
    assert_ne!(changed.header("etag"), Some(tag.as_str()));
    for path in ["/snap/none", "/collections/docs/snap/none"] {
        assert_eq!(world.get(path).await.json(404)["error"], "not_found");
        let star = client.send("GET", path, &[("if-none-match", "*")], "").await;
        assert_eq!(star.status, 404, "nothing is not the same as nothing");
    }
    assert_eq!(world.get("/collections/none/snap/a").await.json(404)["error"], "unknown_collection");
    world.stop().await;
}

/// A body always fits its tag, and 304 is answered only if nothing changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_fit_while_documents_change() {
    let world = Arc::new(world().await);
    world.project("k", r#"{"n":0}"#).await;
    let mut writer = tokio::task::JoinSet::new();
    let written = Arc::clone(&world);
    writer.spawn(async move {
        for n in 1..200 {
            written.project("k", &json!({"n": n}).to_string()).await;
        }
    });
    let mut client = world.http().await;
    let mut known: std::collections::HashMap<String, Vec<u8>> = std::collections::HashMap::new();
    let (mut tag, mut n) = (String::new(), 0);
    loop {
        if let Some(written) = writer.try_join_next() {
            written.unwrap();
            break;
        }
        let answer = client.send("GET", "/snap/k", &[("if-none-match", &tag)], "").await;
        let given = answer.header("etag").unwrap().to_owned();
        if answer.status == 304 {
            assert_eq!(given, tag);
            continue;
        }
        let seen = answer.json(200)["n"].as_u64().unwrap();
        assert!(seen >= n, "time goes on");
        n = seen;
        let first = known.entry(given.clone()).or_insert_with(|| answer.body.to_vec());
        assert_eq!(*first, answer.body, "one tag, one body");
        tag = given;
    }
    assert!(known.len() > 1);
    let Ok(world) = Arc::try_unwrap(world) else { panic!("nobody else has it") };
    world.stop().await;
}

#[tokio::test]
async fn lists_ask_for_declared_fields() {
    let world = world().await;
    for n in 0..5 {
        world
            .project(&format!("k{n}"), &json!({"n": n, "up": n % 2 == 0, "a": "x y", "other": 1}).to_string())
            .await;
    }
    let keys = |answer: &Value| -> Vec<String> {
        answer["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|doc| doc["_key"].as_str().unwrap().to_owned())
            .collect()
    };
    let got = world.get("/list?up=true&limit=2").await;
    assert_eq!(got.header("cache-control"), Some("no-store"));
    let page = got.json(200);
    assert_eq!(
        (page["offset"].clone(), page["limit"].clone(), page["count"].clone()),
        (json!(0), json!(2), json!(2))
    );
    assert_eq!(keys(&page).len(), 2);
    let rest = world.get("/collections/docs/list?up=true&limit=2&offset=2").await.json(200);
    assert_eq!((rest["count"].clone(), keys(&rest).len()), (json!(1), 1));
    assert_eq!(keys(&world.get("/list?a=x+y&n=3").await.json(200)), ["k3"]);
    assert_eq!(world.get("/list?n=77").await.json(200)["items"], json!([]));
    for (query, error) in [
        ("other=1", "unknown_field"),
        ("_key=k1", "unknown_field"),
        ("n=x", "wrong_type"),
        ("up=1", "wrong_type"),
        ("limit=0", "bad_request"),
        ("limit=1001", "bad_request"),
        ("offset=-1", "bad_request"),
        ("n=1&n=2", "bad_request"),
    ] {
        assert_eq!(world.get(&format!("/list?{query}")).await.json(400)["error"], error, "{query}");
    }
    let shown = world.get("/collections").await.json(200);
    assert_eq!(shown["collections"][0]["fields"], json!({"a": "string", "n": "number", "up": "bool"}));
    assert_eq!(shown["collections"][0]["projector"], "p");
    assert_eq!(world.send("DELETE", "/collections/docs", "").await.json(409)["error"], "collection_in_use");
    world.stop().await;
}

#[tokio::test]
async fn projectors_are_seen_and_told() {
    let world = world().await;
    world.project("k", r#"{"n":1}"#).await;
    // Not an object, so it cannot be set.
    world.send("POST", "/publish/in?key=k", "[]").await.json(200);
    let status = loop {
        let status = world.get("/projectors").await.json(200)["projectors"][0].clone();
        if status["dead_letters"] == 1 {
            break status;
        }
        tokio::task::yield_now().await;
    };
    assert!(status["last_error"].as_str().unwrap().contains("offset 1"), "{status}");
    let ops = world.get("/ops").await.json(200);
    assert_eq!(ops["projectors"][0]["name"], "p");
    assert_eq!(ops["groups"][0]["group"], "p");
    let cursors = world.get("/cursors?topic=in").await.json(200);
    assert_eq!(
        (cursors["cursors"][0]["group"].clone(), cursors["cursors"][0]["lag"].clone()),
        (json!("p"), json!(0))
    );
    assert_eq!(world.get("/lag?topic=in&group=p").await.json(200)["lag"], 0);
    assert_eq!(world.get("/dlq?topic=in&group=p").await.json(200)["letters"].as_array().unwrap().len(), 1);
    assert_eq!(world.send("DELETE", "/groups/p?topic=in", "").await.json(409)["error"], "projector_group");
    world.send("POST", "/projectors/p/rebuild", "").await.json(200);
    loop {
        let status = world.get("/projectors").await.json(200)["projectors"][0].clone();
        if status["rebuild"]["running"] == false {
            assert_eq!(
                (status["rebuild"]["equal"].clone(), status["rebuild"]["skipped"].clone()),
                (json!(true), json!(0))
            );
            break;
        }
        tokio::task::yield_now().await;
    }
    world.send("POST", "/projectors/p/resume", "").await.json(200);
    for verb in ["rebuild", "resume"] {
        let path = format!("/projectors/none/{verb}");
        assert_eq!(world.send("POST", &path, "").await.json(404)["error"], "unknown_projector");
    }
    let metrics = world.get("/metrics").await;
    let page = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(page.contains(r#"events_delivered_total{topic="in",group="p"}"#), "{page}");
    world.stop().await;
}

/// Accepts every token; the token is the list of its scopes.
#[derive(Debug)]
struct Scopes;

#[async_trait]
impl Authenticator for Scopes {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        let scopes = token.ok_or(AuthError::Missing)?.split(',');
        let grants = Grants::parse(scopes).map_err(|_| AuthError::BadToken("no scopes"))?;
        Ok(Identity::new("someone", grants))
    }
}

#[tokio::test]
async fn shared_caches_may_not_keep_what_needs_a_token() {
    let world = World::with_state(Arc::new(Scopes), declared()).await;
    let mut client = world.http().await;
    let publish = [("authorization", "Bearer publish:in")];
    client.send("POST", "/publish/in?key=k", &publish, "{}").await.json(200);
    while world.projections.projectors()[0].position == 0 {
        tokio::task::yield_now().await;
    }
    let mut get = async |path: &str, scopes: &str| {
        let token = format!("Bearer {scopes}");
        client.send("GET", path, &[("authorization", &token)], "").await
    };
    let snap = get("/snap/k", "read:docs").await;
    assert_eq!(snap.status, 200);
    assert_eq!(snap.header("cache-control"), Some("private, max-age=5"));
    assert_eq!(snap.header("vary"), Some("Authorization"));
    for (path, scopes, status) in [
        ("/list", "read:docs", 200),
        ("/collections/stats/snap/all", "read:docs", 403),
        ("/collections/stats/snap/all", "read:*", 200),
        ("/snap/k", "read:stats", 403),
        ("/snap/none", "read:stats", 403),
        ("/list", "subscribe:**", 403),
        ("/snap/k", "admin,!read:docs", 403),
    ] {
        assert_eq!(get(path, scopes).await.status, status, "{path} {scopes}");
    }
    let seen = get("/collections", "read:stats").await.json(200);
    assert_eq!(seen["collections"].as_array().unwrap().len(), 1);
    assert_eq!(get("/projectors", "read:docs").await.json(200)["projectors"], json!([]));
    assert_eq!(get("/projectors", "subscribe:in").await.json(200)["projectors"].as_array().unwrap().len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn without_state_there_is_nothing_to_read() {
    let world = World::new().await;
    assert_eq!(world.get("/snap/k").await.json(404)["error"], "no_default_collection");
    assert_eq!(world.get("/collections").await.json(200), json!({"collections": []}));
    assert_eq!(world.get("/collections/x/list").await.json(404)["error"], "unknown_collection");
    assert_eq!(world.get("/projectors").await.json(200), json!({"projectors": [], "compactors": []}));
    world.stop().await;
}

#[tokio::test]
async fn a_projector_that_holds_retention_up_is_an_alarm() {
    let mut all = declared();
    all.projectors[0].on_failure = OnFailure::Halt;
    all.projectors[0].retries = 0;
    all.projectors[0].logic = Logic::Jq(Program::compile(r#"error("bad")"#).unwrap());
    let world = World::with_state(Arc::new(Open), all).await;
    world.send("PUT", "/topics/in", r#"{"retention":{"count":2}}"#).await.json(200);
    for _ in 0..10 {
        world.publish("in", "{}").await;
    }
    while world.projections.held().is_empty() {
        world.store.sweep(0).await.unwrap();
        tokio::task::yield_now().await;
    }
    let health = world.get("/health").await.json(200);
    assert_eq!(
        (&health["status"], &health["projectors_halted"], &health["retention_waits"]),
        (&json!("degraded"), &json!(1), &json!(1))
    );
    let topic = world.get("/topics/in").await.json(200);
    assert_eq!((&topic["earliest"], &topic["held"]), (&json!(0), &json!(8)));
    let page = world.get("/metrics").await.text();
    assert!(
        page.contains("\nretention_held_events 8\n") && page.contains("\nprojectors_halted 1\n"),
        "{page}"
    );
    world.stop().await;
}

/// The interpreter cannot end a search for a match, so the calls keep their threads until they return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_projector_is_an_alarm_until_its_calls_return() {
    let program = r#"if type == "string" then test("(a?){400}b") else empty end"#;
    let program = Program::compile(program).unwrap();
    let (pool, caps) = (Pool::new(), Caps { time: Duration::from_millis(20), ..Caps::default() });
    let slow = format!("\"{}\"", "a".repeat(1 << 18));
    let calls = std::array::from_fn::<_, 4, _>(|_| program.run(&pool, &slow, caps));
    for ended in futures_util::future::join_all(calls).await {
        assert_eq!(ended, Err(RunError::Time));
    }
    assert!(program.is_stuck());
    let mut all = declared();
    all.projectors[0].logic = Logic::Jq(program);
    let world = World::with_state(Arc::new(Open), all).await;
    world.publish("in", "1").await;
    let projector = || world.projections.projectors()[0].clone();
    soon("the projector is stuck", async {
        while projector().activity != Activity::Stuck {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let health = world.get("/health").await.json(200);
    assert_eq!((&health["status"], &health["projectors_halted"]), (&json!("degraded"), &json!(1)));
    assert!(world.get("/metrics").await.text().contains("\nprojectors_halted 1\n"));
    let status = world.get("/projectors").await.json(200)["projectors"][0].clone();
    assert_eq!((&status["activity"], &status["position"]), (&json!("stuck"), &json!(0)));
    assert!(status["last_error"].as_str().unwrap().contains("the program is stuck"), "{status}");
    let cursors = world.get("/cursors?topic=in").await.json(200);
    assert_eq!(cursors["cursors"][0]["reason"], "stuck");
    soon("the calls return", async {
        while projector().position == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let health = world.get("/health").await.json(200);
    assert_eq!((&health["status"], &health["projectors_halted"]), (&json!("ok"), &json!(0)));
    assert!(world.get("/metrics").await.text().contains("\nprojectors_halted 0\n"));
    world.stop().await;
}

#[tokio::test]
async fn a_rebuild_that_left_events_out_is_an_alarm() {
    let broken = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&broken);
    let mut all = declared();
    all.projectors[0].retries = 0;
    all.projectors[0].logic =
        Logic::rust(
            move |_: &promethean_model::Event| {
                if fails.load(Ordering::Relaxed) { Err("broken".to_owned()) } else { Ok(Vec::new()) }
            },
        );
    let world = World::with_state(Arc::new(Open), all).await;
    world.project("k", "{}").await;
    broken.store(true, Ordering::Relaxed);
    world.send("POST", "/projectors/p/rebuild", "").await.json(200);
    let rebuild = loop {
        let status = world.get("/projectors").await.json(200)["projectors"][0].clone();
        if status["rebuild"]["running"] == false {
            break status["rebuild"].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&rebuild["skipped"], &rebuild["first_skipped"]), (&json!(1), &json!("at offset 0: broken")));
    let health = world.get("/health").await.json(200);
    assert_eq!((&health["status"], &health["rebuilds_incomplete"]), (&json!("degraded"), &json!(1)));
    world.send("POST", "/dlq/drop?topic=in&group=p", r#"{"all":true}"#).await.json(200);
    let health = world.get("/health").await.json(200);
    assert_eq!((&health["status"], &health["rebuilds_incomplete"]), (&json!("ok"), &json!(0)));
    world.stop().await;
}
