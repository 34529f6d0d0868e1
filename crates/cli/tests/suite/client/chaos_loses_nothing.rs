//! A server that is killed, a network that fails, a server that refuses: nothing acknowledged is lost, and nothing
//! is handled twice where that is promised.
//!
//! `CLIENT_CHAOS_SEED=n` repeats a run, `CLIENT_CHAOS_SEEDS` and `CLIENT_CHAOS_FRESH` ask for more of them, and
//! `CLIENT_CHAOS_ROUNDS` for longer ones.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use promethean_client::{
    Client, ClientBuilder, ConsumerHandle, DedupeStore, EventId, EventToPublish, HandlerError, MarkName,
    MemoryDedupe, ServerDedupe, StartFrom, TokenSource,
};
use promethean_testkit::ledger::{
    Invocation, Ledger, ObservedEvent, ObservedTopic, ObservedTopics, payload_hash,
};
use promethean_testkit::{SeededRng, seeds, until};
use ring::digest;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::killed_server_loses_nothing::server::KillableServer;
use super::super::running_server::RunningServer;
use super::proxy::{BadNetwork, Weather};
use super::{eventually, quick, real_time, until_lag};

/// The blows. A run begins with each of them once, in an order of its own.
const BLOWS: [&str; 7] = ["kill -9", "cut", "black hole", "half closed", "overtaken", "slow", "new token"];
const ROUNDS: u64 = BLOWS.len() as u64;
/// Publishes of one publisher that may be unanswered.
const OUTSTANDING: usize = 64;
const PUBLISHERS: usize = 3;
/// Events of a round for the group of two clients.
const FEW: u64 = 40;
const SHARED_CONCURRENCY: usize = 2;

/// What all tasks of a run share.
#[derive(Default)]
struct ChaosRun {
    ledger: Ledger,
    stop: AtomicBool,
    acknowledged: AtomicU64,
    /// How often each event was handled, by id.
    handled: Mutex<HashMap<String, u32>>,
    /// The same for the group of two clients.
    shared: Mutex<HashMap<String, u32>>,
    /// The same for the group whose members share a store.
    stored: Mutex<HashMap<String, u32>>,
    store: SharedStore,
}

/// The token that the server accepts, which changes.
struct RotatingToken {
    file: PathBuf,
    now: Arc<Mutex<String>>,
    count: AtomicU64,
    _dir: tempfile::TempDir,
}

impl RotatingToken {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens.toml");
        let token = Self { file, now: Arc::default(), count: AtomicU64::new(0), _dir: dir };
        token.rotate();
        token
    }

    /// The configuration of a server that accepts the token.
    fn config(&self) -> String {
        format!("[auth]\ncheck_every = \"50ms\"\ntokens_file = {:?}\n", self.file)
    }

    /// Makes a new token; the server accepts no other.
    fn rotate(&self) {
        let token = format!("token {}", self.count.fetch_add(1, Ordering::SeqCst));
        let hash = HEXLOWER.encode(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        let scopes = r#"["admin", "publish:**", "subscribe:**"]"#;
        // The server must not read a half of it.
        let draft = self.file.with_extension("draft");
        let entry = format!("[[tokens]]\nname = \"chaos\"\nscopes = {scopes}\nsha256 = \"{hash}\"\n");
        std::fs::write(&draft, entry).unwrap();
        *self.now.lock().unwrap() = token;
        std::fs::rename(draft, &self.file).unwrap();
    }

    fn client(&self, url: &str) -> ClientBuilder {
        let now = Arc::clone(&self.now);
        let source = TokenSource::provider(move || {
            let token = now.lock().unwrap().clone();
            async move { Ok::<_, std::io::Error>(token) }
        });
        quick(url).token(source).publish_timeout(Duration::from_secs(120))
    }
}

/// A store that all members share, which does the work and the mark together.
#[derive(Clone, Default)]
struct SharedStore(Arc<tokio::sync::Mutex<BTreeSet<EventId>>>);

#[async_trait]
impl DedupeStore for SharedStore {
    async fn seen(&self, _: &MarkName) -> Result<bool, HandlerError> {
        panic!("`once` takes the place of `seen`")
    }

    async fn mark(&self, _: &MarkName, _: Duration) -> Result<(), HandlerError> {
        panic!("`once` takes the place of `mark`")
    }

    async fn once(
        &self,
        name: &MarkName,
        _: Duration,
        work: BoxFuture<'static, Result<(), HandlerError>>,
    ) -> Result<(), HandlerError> {
        let mut marks = self.0.lock().await;
        if !marks.contains(&name.id) {
            work.await?;
            marks.insert(name.id);
        }
        Ok(())
    }
}

/// Publishes without waiting for answers, until it is told to stop; every publish must be confirmed.
async fn publish(run: &ChaosRun, client: &Client, name: usize) {
    let mut answers = FuturesUnordered::new();
    let producer = format!("p{name}");
    let mut n = 0_u64;
    loop {
        let is_stopping = run.stop.load(Ordering::SeqCst);
        while !is_stopping && answers.len() < OUTSTANDING {
            let key = format!("k{}", n % 7);
            let payload = format!(r#"{{"publisher":{name},"n":{n}}}"#);
            let id = event_id(name, n);
            let event = Invocation {
                producer: producer.clone(),
                topic: "chaos".to_owned(),
                id: id.to_string(),
                key: Some(key.clone()),
                payload: payload_hash(payload.as_bytes()),
                batch: None,
            };
            let raw: Box<RawValue> = RawValue::from_string(payload).unwrap();
            let op = run.ledger.record_invoked(event);
            let pending = client.publish("chaos", &raw).id(id).key(key).send().unwrap();
            answers.push(async move { (op, pending.await) });
            n += 1;
        }
        match answers.next().await {
            Some((op, Ok(receipt))) => {
                run.ledger.record_ok(op, receipt.offset);
                run.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Some((_, Err(error))) => panic!("a publish failed: {error:?}"),
            None => return,
        }
    }
}

/// The id of the `n`th event of a publisher.
fn event_id(publisher: usize, n: u64) -> EventId {
    EventId::from_bytes(((publisher as u128 + 1) << 64 | u128::from(n)).to_be_bytes())
}

/// Makes a client a member of a group of two, which handle events once by the marks of the server.
async fn share(run: &Arc<ChaosRun>, client: &Client, name: &str) -> ConsumerHandle {
    let noted = Arc::clone(run);
    let subscription = client.subscribe::<Value>("few", "shared").from(StartFrom::Earliest).member_id(name);
    let subscription = subscription.concurrency(SHARED_CONCURRENCY).max_attempts(1_000).on_error(|_| {});
    let handling = subscription.handle_once(ServerDedupe::new(client), move |lease| {
        *noted.shared.lock().unwrap().entry(lease.id.to_string()).or_default() += 1;
        async { Ok(()) }
    });
    handling.await.unwrap()
}

/// Makes a client a member of a group whose members share a store.
async fn share_store(run: &Arc<ChaosRun>, client: &Client) -> ConsumerHandle {
    let noted = Arc::clone(run);
    let subscription = client.subscribe::<Value>("few", "stored").from(StartFrom::Earliest);
    let subscription = subscription.concurrency(SHARED_CONCURRENCY).max_attempts(1_000).on_error(|_| {});
    let handling = subscription.handle_once(run.store.clone(), move |lease| {
        *noted.stored.lock().unwrap().entry(lease.id.to_string()).or_default() += 1;
        async { Ok(()) }
    });
    handling.await.unwrap()
}

/// Every event of the group whose members share a store was handled once.
fn check_stored(run: &ChaosRun, seed: u64, rounds: u64) {
    let stored = run.stored.lock().unwrap();
    assert_eq!(stored.len() as u64, rounds * FEW, "CLIENT_CHAOS_SEED={seed}");
    let doubled: Vec<_> = stored.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "CLIENT_CHAOS_SEED={seed}: {doubled:?}");
}

/// Every event of the group of two was handled. A handler that lost its lease may have run beside another, so each blow
/// may have doubled what was being handled, and no more.
fn check_shared(run: &ChaosRun, seed: u64, rounds: u64) {
    let shared = run.shared.lock().unwrap();
    assert_eq!(shared.len() as u64, rounds * FEW, "CLIENT_CHAOS_SEED={seed}");
    let doubled: u64 = shared.values().map(|count| u64::from(count - 1)).sum();
    let most = rounds * 2 * SHARED_CONCURRENCY as u64;
    assert!(doubled <= most, "CLIENT_CHAOS_SEED={seed}: {doubled} were handled again, {most} at most");
}

/// The blows of a run, in order: each of them comes before any comes again.
fn draw_blows(rng: &mut SeededRng, rounds: u64) -> Vec<&'static str> {
    let mut blows = Vec::new();
    while (blows.len() as u64) < rounds {
        let mut each = BLOWS;
        rng.shuffle(&mut each);
        blows.extend(each);
    }
    blows.truncate(rounds as usize);
    blows
}

/// One blow against the server, the network or the token, and its end.
async fn strike(
    blow: &str,
    rng: &mut SeededRng,
    server: &mut KillableServer,
    network: &BadNetwork,
    token: &RotatingToken,
) {
    let long = Duration::from_millis(rng.range(50..900));
    let last = async |weather: Weather| {
        network.set(weather);
        real_time(long).await;
        network.set(Weather::Cut);
    };
    match blow {
        "kill -9" => {
            server.kill();
            server.restart().await;
        }
        "cut" => last(Weather::Cut).await,
        "black hole" => last(Weather::BlackHole).await,
        "half closed" => last(Weather::HalfClosed).await,
        "overtaken" => {
            network.set(Weather::Overtaken);
            real_time(long).await;
            network.set(Weather::Fair);
            // What was overtaken arrives now.
            real_time(Duration::from_millis(50)).await;
        }
        "slow" => last(Weather::Slow(Duration::from_millis(rng.range(1..60)))).await,
        "new token" => {
            token.rotate();
            let asking = token.client(&format!("ws://{}", server.address)).build().unwrap();
            // The server closes the connections of the old token by itself.
            until("the server knows the new token", async || asking.connect().await.is_ok()).await;
            return asking.close().await.unwrap();
        }
        _ => panic!("no blow is called {blow}"),
    }
    network.cut_once().await;
}

async fn check_seed(seed: u64, rounds: u64) {
    let mut rng = SeededRng::new(seed);
    let blows = draw_blows(&mut rng, rounds);
    let token = RotatingToken::new();
    let mut server = KillableServer::with_config(&token.config()).await;
    let network = BadNetwork::before(server.address).await;
    let run = Arc::new(ChaosRun::default());
    let client = || token.client(&network.url()).build().unwrap();
    let (publishing, consuming, second) = (client(), client(), client());
    let _shared = [share(&run, &consuming, "one").await, share(&run, &second, "two").await];
    let _stored = share_store(&run, &consuming).await;
    // This member dies in each round.
    let mut mortal = client();
    let mut stored = share_store(&run, &mortal).await;
    let noted = Arc::clone(&run);
    let subscription = consuming.subscribe::<Value>("chaos", "once").from(StartFrom::Earliest);
    let once =
        subscription.concurrency(4).max_attempts(1_000).handle_once(MemoryDedupe::default(), move |lease| {
            *noted.handled.lock().unwrap().entry(lease.id.to_string()).or_default() += 1;
            async { Ok(()) }
        });
    let _once = once.await.unwrap();
    let subscription = consuming.subscribe::<Value>("chaos", "copy").from(StartFrom::Earliest);
    let copy = subscription.concurrency(8).max_attempts(1_000).transform(|lease| {
        let copy = EventToPublish::new("copied", &lease.payload);
        async { Ok(vec![copy]) }
    });
    let _copy = copy.await.unwrap();
    let publishers = (0..PUBLISHERS).map(|name| publish(&run, &publishing, name));
    let strikes = async {
        for (round, blow) in (0..).zip(&blows) {
            let before = run.acknowledged.load(Ordering::SeqCst);
            let id = |n: u64| event_id(PUBLISHERS, round * FEW + n);
            let few = (0..FEW).map(|n| publishing.publish("few", &n).id(id(n)).send().unwrap());
            let few = futures_util::future::try_join_all(few.collect::<Vec<_>>());
            strike(blow, &mut rng, &mut server, &network, &token).await;
            drop((stored, mortal));
            mortal = client();
            stored = share_store(&run, &mortal).await;
            few.await.unwrap();
            eventually(&format!("seed {seed}: publishes go on after round {round} of {blows:?}"), || {
                run.acknowledged.load(Ordering::SeqCst) > before + 100
            })
            .await;
        }
        run.stop.store(true, Ordering::SeqCst);
        (stored, mortal)
    };
    let (_, (_stored_too, mortal)) = tokio::join!(futures_util::future::join_all(publishers), strikes);
    let direct = token.client(&format!("http://{}", server.address)).build().unwrap();
    for (topic, group) in [("chaos", "once"), ("chaos", "copy"), ("few", "shared"), ("few", "stored")] {
        until_lag(&direct, topic, group, 0).await;
    }
    check_shared(&run, seed, rounds);
    check_stored(&run, seed, rounds);
    for client in [mortal, second, consuming, publishing] {
        client.close().await.unwrap();
    }
    let observed = observe(&direct, "chaos").await;
    run.ledger.check(&observed).unwrap_or_else(|told| panic!("CLIENT_CHAOS_SEED={seed} {blows:?}: {told:?}"));
    let handled = run.handled.lock().unwrap().clone();
    let events = &observed["chaos"].events;
    for event in events {
        assert_eq!(handled.get(&event.id), Some(&1), "CLIENT_CHAOS_SEED={seed} {blows:?}: {event:?}");
    }
    assert_eq!(handled.len(), events.len(), "CLIENT_CHAOS_SEED={seed}");
    let copied = observe(&direct, "copied").await;
    assert_eq!(copied["copied"].events.len(), events.len(), "CLIENT_CHAOS_SEED={seed} {blows:?}: copies");
    direct.close().await.unwrap();
}

/// What a reader sees of a topic.
async fn observe(client: &Client, topic: &str) -> ObservedTopics {
    let mut events = client.reader().replay::<Box<RawValue>>(topic, StartFrom::Earliest, 1_000);
    let mut seen = ObservedTopic::default();
    while let Some(event) = events.try_next().await.unwrap() {
        let (id, payload) = (event.id.to_string(), event.payload.get().as_bytes());
        seen.events.push(ObservedEvent::new(event.offset, &id, event.key.as_deref(), payload));
    }
    ObservedTopics::from([(topic.to_owned(), seen)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_is_handled_twice() {
    let rounds = std::env::var("CLIENT_CHAOS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    for seed in seeds("CLIENT_CHAOS", 2, &[], 1) {
        let rounds = rounds.unwrap_or(ROUNDS);
        let blows = draw_blows(&mut SeededRng::new(seed), rounds);
        assert!(rounds < ROUNDS || BLOWS.iter().all(|blow| blows.contains(blow)), "{blows:?}");
        let limit = Duration::from_secs(60 + 10 * rounds);
        tokio::time::timeout(limit, check_seed(seed, rounds))
            .await
            .unwrap_or_else(|_| panic!("CLIENT_CHAOS_SEED={seed} hangs"));
    }
}

#[tokio::test]
async fn a_server_that_limits_the_rate_gets_everything_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let limits = "[limits]\npublish_rate = { per_second = 400, burst = 50 }\n";
    std::fs::write(dir.path().join("c.toml"), limits).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = Client::new(&server.url()).unwrap();
    let sent: Vec<_> = (0..400_u64).map(|n| client.publish("t", &n).send().unwrap()).collect();
    let mut offsets = Vec::new();
    for pending in sent {
        offsets.push(pending.await.unwrap().offset);
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..400).collect::<Vec<_>>());
    let too_many = (0..60).map(|n| EventToPublish::new("t", &n));
    let error = client.publish_many(too_many).await.unwrap_err();
    assert_eq!(error.code(), "rate_limited", "more than the limit ever allows");
    client.close().await.unwrap();
}
