//! Numbers compared by value, exactly.

use std::cmp::Ordering;

use serde_json::{Number, Value};

#[cfg(test)]
mod tests;

/// Whole floats below this are exact as integers; above, only their size matters.
const WHOLE_MAX: f64 = 1e30;

/// A number: whole, or a float that is a fraction or huge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Exact {
    Whole(i128),
    Float(f64),
}

impl Exact {
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

    /// The largest whole number that is not above; `None` for a huge one.
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
    match Exact::Float(float).floor() {
        None if float > 0.0 => Ordering::Greater,
        None => Ordering::Less,
        // A float that is left as one and is not huge has a fraction: it is above its floor.
        Some(floor) if whole <= floor => Ordering::Greater,
        Some(_) => Ordering::Less,
    }
}

/// One end of a range. A low end of 3 that is exclusive begins above 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct End {
    pub(super) at: Exact,
    pub(super) exclusive: bool,
}

impl End {
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
pub(super) fn range_is_empty(low: End, high: End, integer: bool) -> bool {
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
pub(super) fn step_implies(step: Exact, divisor: Exact) -> bool {
    match (step, divisor) {
        (Exact::Whole(step), Exact::Whole(divisor)) => {
            step == divisor || (divisor > 0 && step > 0 && step <= DIVISOR_MAX && step % divisor == 0)
        }
        _ => step.compare(divisor) == Ordering::Equal,
    }
}

/// Whether two JSON values are equal, numbers by value.
pub(super) fn equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => Exact::of(one).compare(Exact::of(two)) == Ordering::Equal,
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
