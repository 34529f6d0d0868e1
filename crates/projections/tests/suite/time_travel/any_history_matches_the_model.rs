//! Random histories, compared with the model.

use std::collections::HashMap;

use promethean_projections::ProjectionError;
use promethean_projections::time_travel::Reducer;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::suite::time_travel::model::{self, Published, reducers};
use crate::suite::time_travel::world::{TopicWorld, snapshots};

const TIMES: i64 = 12;
const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Op {
    Publish {
        key: usize,
        ts: i64,
        payload: Value,
    },
    /// A round of a compactor, from the committed cursor of its kind on.
    Round {
        reducer: usize,
        span: u64,
    },
    Keep(u64),
    Compact,
}

fn payload() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        1 => (0..9_i64).prop_map(|n| json!(n)),
        3 => (0..9_i64).prop_map(|n| json!({"a": n})),
        3 => (0..9_i64).prop_map(|n| json!({"b": {"c": n}})),
        1 => Just(json!({"a": null, "b": {"d": [1]}})),
    ]
}

fn published() -> impl Strategy<Value = Op> {
    (0..KEYS.len(), 0..TIMES, payload()).prop_map(|(key, ts, payload)| Op::Publish { key, ts, payload })
}

fn round() -> impl Strategy<Value = Op> {
    (0..3_usize, 1..8_u64).prop_map(|(reducer, span)| Op::Round { reducer, span })
}

fn histories(ops: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(prop_oneof![4 => published(), 1 => round()], 1..ops)
}

fn lossy_histories(ops: usize) -> impl Strategy<Value = Vec<Op>> {
    let keep = (1..12_u64).prop_map(Op::Keep);
    let op = prop_oneof![12 => published(), 4 => round(), 1 => keep, 1 => Just(Op::Compact)];
    prop::collection::vec(op, 1..ops)
}

async fn play(world: &mut TopicWorld, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Publish { key, ts, payload } => world.publish(KEYS[*key], *ts, payload.clone()).await,
            Op::Round { reducer, span } => {
                world.round(&reducers()[*reducer], *span).await;
            }
            Op::Keep(count) => world.keep(*count).await,
            Op::Compact => world.compact().await,
        }
    }
}

/// Every key at every time, by every reducer, with and without snapshots.
async fn check_all(world: &TopicWorld) {
    for reducer in reducers() {
        let from = snapshots(&reducer);
        for (key, at) in KEYS.iter().flat_map(|key| (-1..=TIMES).map(move |at| (key, at))) {
            let expected = model::state(&world.history, key, at, &reducer);
            for from in [None, Some(&from)] {
                let found = world.state_at(key, at, &reducer, from).await.unwrap();
                assert_eq!(found, expected, "{key} at {at} by {reducer:?} from {from:?}");
            }
        }
    }
}

/// Every answer is right or refused. Only the reducer `latest` may not know a key, if all events of the key expired.
async fn check_right_or_refused(world: &TopicWorld) {
    for reducer in reducers() {
        let from = snapshots(&reducer);
        for (key, at) in KEYS.iter().flat_map(|key| (-1..=TIMES).map(move |at| (key, at))) {
            let expected = model::state(&world.history, key, at, &reducer);
            for from in [None, Some(&from)] {
                match world.state_at(key, at, &reducer, from).await {
                    Ok(None) if reducer == Reducer::Latest => {}
                    Ok(found) => assert_eq!(found, expected, "{key} at {at} by {reducer:?} from {from:?}"),
                    Err(ProjectionError::HistoryGone { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// A consumer may start after any number of snapshots.
async fn check_warm_ups(world: &TopicWorld) {
    for reducer in reducers() {
        let all = world.all_snapshots(&snapshots(&reducer)).await;
        for seen in 0..=all.len() {
            let mut states: HashMap<&str, (Value, u64)> = HashMap::new();
            let mut from = 0;
            for snapshot in &all[..seen] {
                let state = serde_json::from_str(snapshot.state.get()).unwrap();
                states.insert(&snapshot.key, (state, snapshot.offset.get()));
                from = from.max(snapshot.resume_from().get());
            }
            for (offset, event) in world.history.iter().enumerate().skip(usize::try_from(from).unwrap()) {
                let (state, covered) = states.entry(&event.key).or_insert((Value::Null, 0));
                if offset as u64 >= *covered {
                    *state = model::step(state.take(), event, &reducer);
                }
            }
            for key in KEYS {
                let found = states.get(key).map(|(state, _)| state.clone()).filter(|state| !state.is_null());
                let expected = model::state(&world.history, key, i64::MAX, &reducer).map(|known| known.0);
                assert_eq!(found, expected, "{key} by {reducer:?} after {seen} of {} snapshots", all.len());
            }
        }
    }
}

/// The state of a snapshot is the fold of the events below its offset.
async fn check_snapshots(world: &TopicWorld) {
    for reducer in reducers() {
        for snapshot in world.all_snapshots(&snapshots(&reducer)).await {
            let covered = usize::try_from(snapshot.offset.get()).unwrap();
            let history: &[Published] = &world.history[..covered];
            let expected = model::state(history, &snapshot.key, i64::MAX, &reducer);
            let state: Value = serde_json::from_str(snapshot.state.get()).unwrap();
            assert_eq!(Some(state).filter(|state| !state.is_null()), expected.map(|known| known.0));
            assert_eq!(history[covered - 1].key, snapshot.key);
            assert_eq!(history[covered - 1].ts, snapshot.ts);
        }
    }
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn state_at_any_time_is_the_fold(ops in histories(40)) {
        run(async {
            let mut world = TopicWorld::in_memory().await;
            play(&mut world, &ops).await;
            check_all(&world).await;
            check_snapshots(&world).await;
            world.close().await;
        });
    }

    #[test]
    fn snapshots_and_what_follows_are_everything(ops in histories(40)) {
        run(async {
            let mut world = TopicWorld::in_memory().await;
            play(&mut world, &ops).await;
            check_warm_ups(&world).await;
            world.close().await;
        });
    }

    #[test]
    fn what_is_gone_makes_no_answer_wrong(ops in lossy_histories(50)) {
        run(async {
            let mut world = TopicWorld::in_memory().await;
            play(&mut world, &ops).await;
            check_right_or_refused(&world).await;
            world.close().await;
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4) })]

    #[test]
    fn the_same_on_disk(ops in histories(30)) {
        run(async {
            let mut world = TopicWorld::embedded().await;
            play(&mut world, &ops).await;
            check_all(&world).await;
            check_warm_ups(&world).await;
            world.close().await;
        });
    }
}
