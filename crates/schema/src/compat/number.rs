//! Numbers compared by value, exactly.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Whole floats below this are exact as integers; above, only their size matters.
const WHOLE_MAX: f64 = 1e30;

/// A number: whole, or a float that is a fraction or huge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ExactNumber {
    Whole(i128),
    Float(f64),
}

impl ExactNumber {
    pub(super) fn of(number: &Number) -> Self {
        if let Some(whole) = number.as_i64() {
            return Self::Whole(whole.into());
        }
        if let Some(whole) = number.as_u64() {
            return Self::Whole(whole.into());
        }
        let float = number.as_f64().unwrap_or(f64::MAX);
        if float.fract() == 0.0 && float.abs() < WHOLE_MAX {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 1e30")]
            return Self::Whole(float as i128);
        }
        Self::Float(float)
    }

    pub(super) fn of_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::of(number)),
            _ => None,
        }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(two)) => one.cmp(&two),
            (Self::Float(one), Self::Float(two)) => one.total_cmp(&two),
            (Self::Float(one), Self::Whole(two)) => compare_mixed(one, two),
            (Self::Whole(one), Self::Float(two)) => compare_mixed(two, one).reverse(),
        }
    }

    /// The largest whole number that is not above it; `None` for a huge number.
    pub(super) fn floor(self) -> Option<i128> {
        match self {
            Self::Whole(whole) => Some(whole),
            #[expect(clippy::cast_possible_truncation, reason = "below 1e30")]
            Self::Float(float) if float.abs() < WHOLE_MAX => Some(float.floor() as i128),
            Self::Float(_) => None,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

fn compare_mixed(float: f64, whole: i128) -> Ordering {
    match ExactNumber::Float(float).floor() {
        None if float > 0.0 => Ordering::Greater,
        None => Ordering::Less,
        // A number that is kept as a float and is not huge has a fraction, so it is above its floor.
        Some(floor) if whole <= floor => Ordering::Greater,
        Some(_) => Ordering::Less,
    }
}

/// One end of a range. A low end of 3 that is exclusive begins above 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RangeEnd {
    pub(super) at: ExactNumber,
    pub(super) exclusive: bool,
}

impl RangeEnd {
    /// Whether being above this low end means being above the other.
    pub(super) fn low_implies(self, other: Self, integer: bool) -> bool {
        if integer && let (Some(own), Some(others)) = (self.first_whole(), other.first_whole()) {
            return own >= others;
        }
        match self.at.compare(other.at) {
            Ordering::Greater => true,
            Ordering::Equal => self.exclusive || !other.exclusive,
            Ordering::Less => false,
        }
    }

    /// Whether being below this high end means being below the other.
    pub(super) fn high_implies(self, other: Self, integer: bool) -> bool {
        if integer && let (Some(own), Some(others)) = (self.last_whole(), other.last_whole()) {
            return own <= others;
        }
        match self.at.compare(other.at) {
            Ordering::Less => true,
            Ordering::Equal => self.exclusive || !other.exclusive,
            Ordering::Greater => false,
        }
    }

    /// The first whole number at or above this low end.
    pub(super) fn first_whole(self) -> Option<i128> {
        let floor = self.at.floor()?;
        Some(if self.at.is_whole() && !self.exclusive { floor } else { floor + 1 })
    }

    /// The last whole number at or below this high end.
    pub(super) fn last_whole(self) -> Option<i128> {
        let floor = self.at.floor()?;
        Some(if self.at.is_whole() && self.exclusive { floor - 1 } else { floor })
    }
}

/// Whether nothing lies between a low end and a high end.
pub(super) fn range_is_empty(low: RangeEnd, high: RangeEnd, integer: bool) -> bool {
    if integer && let (Some(first), Some(last)) = (low.first_whole(), high.last_whole()) {
        return first > last;
    }
    match low.at.compare(high.at) {
        Ordering::Greater => true,
        Ordering::Equal => low.exclusive || high.exclusive,
        Ordering::Less => false,
    }
}

/// Divisors above this are not exact in the validator.
const DIVISOR_MAX: i128 = 1 << 53;

/// Whether every multiple of `step` is one of `divisor`.
pub(super) fn step_implies(step: ExactNumber, divisor: ExactNumber) -> bool {
    match (step, divisor) {
        (ExactNumber::Whole(step), ExactNumber::Whole(divisor)) => {
            step == divisor || (divisor > 0 && step > 0 && step <= DIVISOR_MAX && step % divisor == 0)
        }
        _ => {
            let equal = step.compare(divisor) == Ordering::Equal;
            equal || scaled(step).zip(scaled(divisor)).is_some_and(|(step, divisor)| step % divisor == 0)
        }
    }
}

/// Steps are scaled by this power of two.
const SCALE: f64 = 1_048_576.0;

/// A step times two to the power of 20, if that is a whole number. Such a step is exact as a float and as a
/// decimal, so the validator divides by it exactly.
fn scaled(step: ExactNumber) -> Option<i128> {
    let float = match step {
        #[expect(clippy::cast_precision_loss, reason = "numbers above 2^30 are refused below")]
        ExactNumber::Whole(whole) => whole as f64,
        ExactNumber::Float(float) => float,
    };
    let scaled = float * SCALE;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^50")]
    (scaled.fract() == 0.0 && scaled > 0.0 && float < f64::from(1 << 30)).then_some(scaled as i128)
}

/// Whether two JSON values are equal, numbers by value.
pub(super) fn equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => {
            ExactNumber::of(one).compare(ExactNumber::of(two)) == Ordering::Equal
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().all(|(name, one)| two.get(name).is_some_and(|two| equal(one, two)))
        }
        _ => one == two,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exact(value: Value) -> ExactNumber {
        ExactNumber::of_value(&value).unwrap()
    }

    #[test]
    fn numbers_compare_by_value() {
        let ordered = [
            json!(-1e300),
            json!(-3),
            json!(-2.5),
            json!(0),
            json!(0.5),
            json!(1.0),
            json!(1.5),
            json!(2),
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX),
            json!(1e20),
            json!(1e300),
        ];
        for (one, first) in ordered.iter().enumerate() {
            for (two, second) in ordered.iter().enumerate() {
                let order = exact(first.clone()).compare(exact(second.clone()));
                assert_eq!(order, one.cmp(&two), "{first} and {second}");
            }
        }
        assert!(equal(&json!([1, { "a": 2.0 }]), &json!([1.0, { "a": 2 }])));
        assert!(!equal(&json!(1), &json!("1")));
    }

    #[test]
    fn ends_of_whole_numbers_are_rounded() {
        let end = |at: Value, exclusive| RangeEnd { at: exact(at), exclusive };
        assert!(end(json!(0.5), false).low_implies(end(json!(1), false), true));
        assert!(!end(json!(0.5), false).low_implies(end(json!(1), false), false));
        assert!(end(json!(0), true).low_implies(end(json!(1), false), true));
        assert!(!end(json!(0), false).low_implies(end(json!(0), true), true));
        assert!(end(json!(3.5), true).high_implies(end(json!(3), false), true));
        assert!(range_is_empty(end(json!(0), true), end(json!(1), true), true));
        assert!(!range_is_empty(end(json!(0), true), end(json!(1), true), false));
    }

    #[test]
    fn steps_divide() {
        assert!(step_implies(exact(json!(6)), exact(json!(3))));
        assert!(step_implies(exact(json!(6.0)), exact(json!(2))));
        assert!(!step_implies(exact(json!(3)), exact(json!(6))));
        assert!(step_implies(exact(json!(0.1)), exact(json!(0.1))));
        assert!(!step_implies(exact(json!(0.2)), exact(json!(0.1))));
    }
}
