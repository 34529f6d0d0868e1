//! JSON values whose reading is counted, so that checking a payload ends after a bounded number of steps.
//!
//! The validator has no bound of its own. It reads a payload through these types, and each reading takes steps
//! from a budget of the thread. Once the budget is used up, every value looks like `null` and every list
//! ends, so the validator returns soon; its answer is then thrown away.

use std::borrow::Cow;
use std::cell::Cell;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, unique};
use serde_json::{Map, Value};

/// Bytes of a text that a pattern or a comparison reads for one step.
const TEXT_BYTES_PER_STEP: usize = 32;

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// A check that needed more steps than it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSteps;

/// Runs a check with a budget of steps. Returns its answer, unless the budget was used up.
pub(super) fn within<T>(steps: u64, check: impl FnOnce() -> T) -> Result<T, OutOfSteps> {
    /// Gives the thread its former budget back, also after a panic.
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            STEPS_LEFT.set(self.0);
        }
    }
    let _restore = Restore(STEPS_LEFT.replace(steps));
    let answer = check();
    if STEPS_LEFT.get() == 0 { Err(OutOfSteps) } else { Ok(answer) }
}

/// Takes steps from the budget. Returns whether it still has some.
fn take(steps: usize) -> bool {
    let left = STEPS_LEFT.get().saturating_sub(steps as u64);
    STEPS_LEFT.set(left);
    left > 0
}

/// Takes the steps of looking at every value below a list, as comparing its members does.
fn take_all(items: &[Value]) -> bool {
    let mut open: Vec<&Value> = items.iter().collect();
    while let Some(value) = open.pop() {
        let enough = match value {
            Value::String(text) => take(1 + text.len() / TEXT_BYTES_PER_STEP),
            _ => take(1),
        };
        if !enough {
            return false;
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    true
}

/// The representation of JSON that the validator reads.
pub(crate) struct Metered;

/// A value whose reading is counted.
#[derive(Clone, Copy)]
pub(crate) struct MeteredValue<'a>(pub(super) &'a Value);

/// An object whose reading is counted.
pub(crate) struct MeteredObject<'a>(&'a Map<String, Value>);

/// A list whose reading is counted.
pub(crate) struct MeteredArray<'a>(&'a [Value]);

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Self::Node<'_>) -> T) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(MeteredValue(value)))
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a serde_json::Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        self.0.as_object().filter(|_| take(1)).map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        self.0.as_array().filter(|_| take(1)).map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str().filter(|text| take(1 + text.len() / TEXT_BYTES_PER_STEP))?;
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a serde_json::Number> {
        self.0.as_number().filter(|_| take(1))
    }

    fn as_boolean(&self) -> Option<bool> {
        self.0.as_bool().filter(|_| take(1))
    }

    fn is_null(&self) -> bool {
        !take(1) || self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        if take(1) { self.0.json_type() } else { JsonType::Null }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str().filter(|text| take(1 + text.len() / TEXT_BYTES_PER_STEP));
        text.and_then(|_| self.0.string_length())
    }

    fn equals_value(&self, expected: &Value) -> bool {
        take(1) && self.0.equals_value(expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        self.0.identity()
    }
}

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        // A key that is missing takes a step too.
        if take(1) { self.0.get(key).map(MeteredValue) } else { None }
    }

    fn members(&self) -> MeteredMembers<'a> {
        MeteredMembers(self.0.iter())
    }
}

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = MeteredElements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredElements<'a> {
        MeteredElements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        take_all(self.0) && unique::is_unique(self.0)
    }
}

/// The members of an object, in order.
pub(crate) struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        // The validator matches the name against its patterns, so a long name costs more.
        let (name, value) = self.0.next()?;
        take(1 + name.len() / TEXT_BYTES_PER_STEP).then_some((name.as_str(), MeteredValue(value)))
    }
}

/// The elements of a list, in order.
pub(crate) struct MeteredElements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredElements<'a> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = self.0.next()?;
        take(1).then_some(MeteredValue(value))
    }
}
