use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake};

use promethean_model::EventId;
use tokio::time::advance;

use super::*;
use crate::member::MemberSetup;
use crate::member::MemberState;
use crate::member::table::LeaseRules;
use crate::outbox::{FrameToPublish, OutboxLimits};

/// Counts how often it is woken.
#[derive(Default)]
struct CountedWaker(AtomicUsize);

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn id(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

/// A core with an open connection and one accepted subscription.
struct Fixture {
    core: Core,
    member: u64,
}

impl Fixture {
    fn new(has_handler: bool) -> Self {
        let limits = OutboxLimits { outstanding_max: 10, queued_max: 10, bytes_max: 1 << 20 };
        let mut core = Core::new(Outbox::new(limits), Arc::new(|_| {}));
        core.phase = ConnectionState::Open;
        let member = core.add_member(Member::new(MemberSetup {
            topic: "t".into(),
            group: "g".into(),
            opts: "{}".to_owned(),
            has_handler,
            rules: LeaseRules { is_manual: true, is_extended: true },
            lease_max: Duration::from_secs(3_600),
            on_error: Arc::new(|_| {}),
            on_partitions: None,
        }));
        let mut fixture = Self { core, member: member.unwrap() };
        fixture.answer_last("OK", "");
        fixture
    }

    /// The frames that the client sends now.
    fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.core.next_frame(Instant::now())).map(|text| text.to_string()).collect()
    }

    /// Sends what waits, and answers the last frame.
    fn answer_last(&mut self, op: &str, more: &str) -> Vec<String> {
        let sent = self.sent();
        let frame: serde_json::Value = serde_json::from_str(sent.last().unwrap()).unwrap();
        self.receive(&format!(r#"{{"op":"{op}","corr":{}{more}}}"#, frame["corr"]));
        sent
    }

    fn receive(&mut self, text: &str) {
        let mut effects = LockEffects::default();
        self.core.receive(text.to_owned().into(), Instant::now(), &mut effects);
        effects.run();
    }

    fn deliver(&mut self, ns: std::ops::RangeInclusive<u8>) {
        for n in ns {
            let event = format!(r#"{{"id":"{}","ts":1,"topic":"t","offset":{n},"payload":{n}}}"#, id(n));
            let ctx = r#"{"attempt":1,"ack_deadline_ms":3000}"#;
            self.receive(&format!(r#"{{"op":"EVENT","topic":"t","group":"g","event":{event},"ctx":{ctx}}}"#));
        }
    }

    fn tick(&mut self) -> Vec<String> {
        self.core.tick(Instant::now(), &mut LockEffects::default());
        self.sent()
    }

    fn member(&mut self) -> &mut Member {
        self.core.members.get_mut(&self.member).unwrap()
    }

    fn take(&mut self) -> TakenLease {
        self.member().table.take().unwrap()
    }

    fn is_held(&mut self, row: RowId) -> bool {
        self.member().table.row(row).unwrap().is_held
    }

    /// Acks a lease, with a place for the answer.
    fn ack(&mut self, row: RowId) -> AnswerSlot {
        let (key, _) = self.core.release(self.member, row, &mut LockEffects::default()).unwrap();
        let slot = self.core.settled.open();
        self.member().acks.push(AckItem { key, slot: Some(slot) });
        self.core.plan_acks(self.member);
        slot
    }

    fn settled(&mut self, slot: AnswerSlot) -> Result<(), String> {
        match self.core.settled.poll(slot, std::task::Waker::noop()) {
            Poll::Ready(Some(answer)) => answer.map_err(|error| error.code().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn publish(&mut self) -> AnswerSlot {
        let frame = FrameToPublish {
            text: r#"{"op":"PUBLISH","topic":"t","payload":1"#.to_owned(),
            id: id(9),
            overdue_at: Instant::now() + Duration::from_secs(5),
        };
        self.core.outbox.push(frame).unwrap()
    }

    fn published(&mut self, slot: AnswerSlot) -> ClientError {
        match self.core.outbox.answers.poll(slot, std::task::Waker::noop()) {
            Poll::Ready(Some(answer)) => answer.unwrap_err(),
            Poll::Ready(None) | Poll::Pending => panic!("no answer"),
        }
    }

    fn lose_connection(&mut self) {
        let error = ClientError::new("disconnected", "cut");
        self.core.phase = ConnectionState::Connecting;
        self.core.down(&error, false, &mut LockEffects::default());
    }

    /// Opens the connection again; the server accepts the subscription.
    fn reconnect(&mut self) {
        assert!(self.core.up());
        self.answer_last("OK", "");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_with_a_stale_id_loses_that_lease_only() {
    let mut f = Fixture::new(false);
    f.deliver(1..=2);
    let (one, two) = (f.take(), f.take());
    advance(Duration::from_millis(1_100)).await;
    f.core.tick(Instant::now(), &mut LockEffects::default());
    let sent = f.answer_last("OK", &format!(r#","stale":true,"stale_ids":["{}"]"#, id(1)));
    assert!(sent[0].contains(r#""op":"MODACK""#), "{sent:?}");
    assert!(!f.is_held(one.row) && f.is_held(two.row));
    assert!(f.tick().is_empty(), "the other lease was extended");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_was_stale_for_an_unnamed_lease_is_tried_again() {
    let mut f = Fixture::new(false);
    f.deliver(1..=2);
    let (one, two) = (f.take(), f.take());
    advance(Duration::from_millis(1_100)).await;
    f.core.tick(Instant::now(), &mut LockEffects::default());
    f.answer_last("OK", r#","stale":true"#);
    assert!(f.is_held(one.row) && f.is_held(two.row));
    advance(Duration::from_millis(300)).await;
    assert!(f.tick()[0].contains("MODACK"), "neither is taken for extended");
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_not_repeated_before_its_answer() {
    let mut f = Fixture::new(false);
    f.deliver(1..=1);
    let lease = f.take();
    advance(Duration::from_millis(1_100)).await;
    assert_eq!(f.tick().len(), 1);
    advance(Duration::from_millis(300)).await;
    assert!(f.tick().is_empty());
    f.lose_connection();
    f.reconnect();
    f.deliver(1..=1);
    assert!(f.is_held(lease.row));
    advance(Duration::from_millis(1_100)).await;
    assert_eq!(f.tick().len(), 1, "an answer that was lost is not waited for");
}

#[tokio::test(start_paused = true)]
async fn acks_with_a_stale_id_fail_for_that_event_only() {
    let mut f = Fixture::new(false);
    f.deliver(1..=3);
    let slots: Vec<_> =
        (0..3).map(|_| f.take().row).collect::<Vec<_>>().into_iter().map(|r| f.ack(r)).collect();
    let sent = f.answer_last("OK", &format!(r#","stale":true,"stale_ids":["{}"]"#, id(2)));
    assert!(sent[0].contains(r#""op":"ACK""#) && sent[0].contains("ids"), "{sent:?}");
    assert_eq!(f.settled(slots[0]), Ok(()));
    assert_eq!(f.settled(slots[1]), Err("lease_lost".to_owned()));
    assert_eq!(f.settled(slots[2]), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_is_no_reason_to_look_at_the_time() {
    let mut f = Fixture::new(false);
    f.publish();
    f.answer_last("ERR", r#","code":"rate_limited","msg":"m","retry_after_ms":20"#);
    let now = Instant::now();
    assert_eq!(f.core.next_look(now), Some(now + Duration::from_millis(20)));
    advance(Duration::from_secs(1)).await;
    let now = Instant::now();
    assert!(f.core.next_look(now).unwrap() > now, "the socket may be full, so the frame may still wait");
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_the_task_that_looked_last() {
    let mut f = Fixture::new(false);
    let wakers = [Arc::new(CountedWaker::default()), Arc::new(CountedWaker::default())];
    for waker in [&wakers[0], &wakers[1], &wakers[1]] {
        f.member().wait_for_leases(&Arc::clone(waker).into());
    }
    f.member().wait_for_leases(&Arc::clone(&wakers[0]).into());
    f.deliver(1..=1);
    assert_eq!(wakers[0].0.load(Ordering::SeqCst), 1);
    assert!(f.member().consumers.is_empty(), "wakers of earlier polls are not collected");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_does_not_claim_that_nothing_happened() {
    let mut f = Fixture::new(false);
    let slot = f.publish();
    f.answer_last("ERR", r#","code":"forbidden","msg":"m""#);
    let error = f.published(slot);
    assert!(error.has_no_side_effects() && !error.details().contains_key("id"), "{error:?}");
    let slot = f.publish();
    f.sent();
    f.lose_connection();
    assert!(f.core.up());
    f.answer_last("ERR", r#","code":"forbidden","msg":"m""#);
    let error = f.published(slot);
    assert!(error.is("forbidden") && !error.has_no_side_effects(), "{error:?}");
    assert_eq!(error.details()["id"], id(9).to_string());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_have_had_effects_has_the_id() {
    for code in ["internal", "storage_failed"] {
        let mut f = Fixture::new(false);
        let slot = f.publish();
        f.answer_last("ERR", &format!(r#","code":"{code}","msg":"m""#));
        assert_eq!(f.published(slot).details()["id"], id(9).to_string());
    }
    let mut f = Fixture::new(false);
    let slot = f.publish();
    f.answer_last("ERR", r#","code":"unknown_outcome","msg":"m","retry_after_ms":60000"#);
    advance(Duration::from_secs(6)).await;
    f.tick();
    let error = f.published(slot);
    assert!(error.is("unknown_outcome") && !error.has_no_side_effects(), "{error:?}");
    assert_eq!(error.details()["id"], id(9).to_string());
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_subscribes_once() {
    let mut f = Fixture::new(false);
    f.lose_connection();
    assert!(f.core.up() && f.core.is_open());
    assert_eq!(f.sent().len(), 1);
}

const FENCED: &str = r#"{"op":"ERR","code":"member_fenced","msg":"m","topic":"t","group":"g"}"#;

#[tokio::test(start_paused = true)]
async fn a_subscribe_that_arrives_after_a_later_one_does_not_end_its_own_member() {
    let mut f = Fixture::new(false);
    f.lose_connection();
    assert!(f.core.up());
    assert_eq!(f.sent().len(), 1, "this frame arrives late");
    f.lose_connection();
    f.reconnect();
    f.deliver(1..=1);
    let row = f.take().row;
    f.receive(FENCED);
    assert!(!f.is_held(row));
    let sent = f.answer_last("OK", "");
    assert!(sent.len() == 1 && sent[0].contains(r#""op":"SUBSCRIBE""#), "{sent:?}");
    assert_eq!(f.member().state, MemberState::Active);
    f.receive(FENCED);
    assert_eq!(f.member().state, MemberState::Ended, "another member has the name");
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_name_is_taken_ends() {
    let mut f = Fixture::new(false);
    f.lose_connection();
    f.reconnect();
    f.receive(FENCED);
    assert_eq!(f.member().state, MemberState::Ended);
    let mut f = Fixture::new(false);
    f.lose_connection();
    assert!(f.core.up());
    f.lose_connection();
    f.reconnect();
    advance(Duration::from_secs(61)).await;
    f.receive(FENCED);
    assert_eq!(f.member().state, MemberState::Ended, "no connection of that time is left");
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_was_refused_is_given_again_without_the_handler() {
    let mut f = Fixture::new(true);
    f.deliver(1..=1);
    let row = f.take().row;
    f.ack(row);
    f.answer_last("ERR", r#","code":"busy","msg":"m""#);
    f.deliver(1..=1);
    assert!(f.member().table.queue.is_empty(), "its handler is done");
    assert!(f.sent()[0].contains(r#""op":"ACK""#));
}

#[tokio::test(start_paused = true)]
async fn finished_events_are_remembered_for_a_few_lease_times_of_the_next_connection() {
    let mut f = Fixture::new(true);
    f.deliver(1..=2);
    for _ in 0..2 {
        let row = f.take().row;
        f.ack(row);
    }
    f.sent();
    f.lose_connection();
    // The server is away for long.
    advance(Duration::from_secs(1_000)).await;
    f.reconnect();
    advance(Duration::from_secs(8)).await;
    f.deliver(1..=1);
    assert!(f.member().table.queue.is_empty());
    advance(Duration::from_secs(2)).await;
    f.deliver(2..=2);
    assert_eq!(f.member().table.queue.len(), 1, "a replay that a user asked for is not passed over");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_fetch_lets_the_next_one_start() {
    for answer in [r#"{"op":"OK","corr":"r2"}"#, r#"{"op":"ERR","code":"busy","msg":"m","corr":"r2"}"#] {
        let mut f = Fixture::new(false);
        let waker = Arc::new(CountedWaker::default());
        let (sender, _) = oneshot::channel();
        f.member().is_fetching = true;
        let text = f.member().frame(promethean_model::wire::Op::Fetch);
        f.core.request(text, FrameWaiter::Fetch { member: f.member, sender });
        f.core.watch_member(f.member, &Arc::clone(&waker).into());
        f.receive(answer);
        assert!(!f.member().is_fetching);
        assert_eq!(waker.0.load(Ordering::SeqCst), 1, "{answer}");
    }
    let mut f = Fixture::new(false);
    let waker = Arc::new(CountedWaker::default());
    let (sender, _) = oneshot::channel();
    let text = f.member().frame(promethean_model::wire::Op::Fetch);
    f.core.request(text, FrameWaiter::Fetch { member: f.member, sender });
    f.core.watch_member(f.member, &Arc::clone(&waker).into());
    f.receive(r#"{"op":"EVENTS","topic":"t","group":"g","events":[],"corr":"r2"}"#);
    assert_eq!(waker.0.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_lets_the_next_fetch_start() {
    let mut f = Fixture::new(false);
    let waker = Arc::new(CountedWaker::default());
    f.member().is_fetching = true;
    f.member().wait_for_leases(&Arc::clone(&waker).into());
    let mut effects = LockEffects::default();
    f.core.down(&ClientError::new("disconnected", "cut"), false, &mut effects);
    effects.run();
    assert!(!f.member().is_fetching);
    assert_eq!(waker.0.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_closes_is_not_subscribed_again() {
    let mut f = Fixture::new(true);
    f.member().state = MemberState::Closing;
    f.lose_connection();
    assert!(f.core.up());
    assert!(f.sent().is_empty());
}
