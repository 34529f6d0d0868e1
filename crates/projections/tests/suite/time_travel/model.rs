//! The model: states folded from all events ever published, in the simplest way.

use promethean_jq::Program;
use promethean_projections::time_travel::Reducer;
use serde_json::{Map, Value, json};

/// Counts events, and keeps the last payload and all times.
pub(crate) const PROGRAM: &str =
    "{n: ((.state.n // 0) + 1), last: .event.payload, times: ((.state.times // []) + [.event.ts])}";

#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) key: String,
    pub(crate) ts: i64,
    pub(crate) payload: Value,
}

/// State, ts and offset.
pub(crate) type Known = (Value, i64, u64);

pub(crate) fn reducers() -> [Reducer; 3] {
    [Reducer::Latest, Reducer::Merge, Reducer::Jq(Program::compile(PROGRAM).unwrap())]
}

pub(crate) fn state(history: &[Published], key: &str, at: i64, reducer: &Reducer) -> Option<Known> {
    let mut state = Value::Null;
    let mut last = None;
    for (offset, event) in history.iter().enumerate().filter(|(_, event)| event.key == key && event.ts <= at)
    {
        state = step(state, event, reducer);
        last = Some((event.ts, offset as u64));
    }
    last.filter(|_| !state.is_null()).map(|(ts, offset)| (state, ts, offset))
}

pub(crate) fn step(state: Value, event: &Published, reducer: &Reducer) -> Value {
    match reducer {
        _ if event.payload.is_null() => Value::Null,
        Reducer::Latest => event.payload.clone(),
        Reducer::Merge => merge(state, &event.payload),
        Reducer::Jq(_) => {
            let mut times = state["times"].as_array().cloned().unwrap_or_default();
            times.push(json!(event.ts));
            json!({"n": state["n"].as_u64().unwrap_or(0) + 1, "last": event.payload, "times": times})
        }
    }
}

fn merge(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = if let Value::Object(target) = target { target } else { Map::new() };
    for (name, value) in patch {
        let before = target.remove(name).unwrap_or(Value::Null);
        if !value.is_null() {
            target.insert(name.clone(), merge(before, value));
        }
    }
    Value::Object(target)
}
