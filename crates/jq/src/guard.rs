//! The bounds of a run: steps, stack and sizes. The interpreter asks for the table of terms at every step;
//! steps are counted there.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::rc::Rc;

use jaq_core::data::{DataT, HasLut};
use jaq_core::{Error, Lut};
use jaq_json::{Num, Val};

use super::watch::JobWatch;

/// Bytes of the stack that a run may use. A quarter of the stack, since dropping nested values uses it too.
pub(super) const DEPTH_BYTES_MAX: usize = super::pool::STACK_BYTES / 4;
/// The most bytes of a text, list or object.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;
/// The most bits of two whole numbers that are multiplied, together.
const NUMBER_BITS_MAX: u64 = 1 << 16;
/// Bytes of all texts, lists and objects that one call makes, at most.
const MADE_BYTES_MAX: usize = 256 << 20;
/// Bytes of an item of a list or object: the value itself, without what it points to.
const ITEM_BYTES: usize = 16;
/// Bytes of a text in a new list beside its characters.
const TEXT_BYTES: usize = 48;
/// Bytes of a list or object in a new list, such as a match of a pattern.
const NESTED_BYTES: usize = 512;
/// Values whose place in memory a run remembers.
const PLACES: usize = 16;
/// Bytes of a value from which on its place is remembered. Smaller ones would only take the places of larger ones.
const PLACED_BYTES_MIN: usize = 1 << 10;
/// Bytes of a text in which all matches of a pattern are looked for. Each match takes up to 1 KiB.
const MATCHED_BYTES_MAX: usize = 64 << 10;
/// Steps between two checks of whether the watchdog has ended the call.
const LOOK_EVERY: u64 = 256;

/// The types that the interpreter runs our programs with.
#[derive(Debug)]
pub(super) struct JqTypes;

impl DataT for JqTypes {
    type V<'a> = Val;
    type Data<'a> = RunData<'a>;
}

/// The data of a run that the interpreter passes along.
#[derive(Clone)]
pub(super) struct RunData<'a> {
    pub(super) lut: &'a Lut<JqTypes>,
    pub(super) budget: &'a Budget<'a>,
}

impl<'a> HasLut<'a, JqTypes> for RunData<'a> {
    fn lut(&self) -> &'a Lut<JqTypes> {
        self.budget.step();
        self.lut
    }
}

/// The steps, stack and time that are left for a run.
pub(super) struct Budget<'a> {
    steps: Cell<u64>,
    /// Bytes of the values that were made.
    made: Cell<usize>,
    /// Address and bytes of values that were made lately. A value that grows in its place, as in most reductions, counts
    /// with what it has grown by; so does a value in the place of one that was freed.
    places: [Cell<(usize, usize)>; PLACES],
    /// An address on the stack where the run began.
    base: usize,
    watch: &'a JobWatch,
}

/// Why a run was ended. It is thrown as a panic, because the interpreter has no other way to stop, and caught
/// where the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    Steps,
    Depth,
    Time,
}

impl<'a> Budget<'a> {
    pub(super) fn new(steps: u64, watch: &'a JobWatch) -> Self {
        let places = [const { Cell::new((0, 0)) }; PLACES];
        Self { steps: Cell::new(steps), made: Cell::new(0), places, base: here(), watch }
    }

    /// Counts a step, and ends the run if it may not go on.
    pub(super) fn step(&self) {
        let left = self.steps.get();
        if left == 0 {
            stop(StopReason::Steps);
        }
        self.steps.set(left - 1);
        if self.base.abs_diff(here()) > DEPTH_BYTES_MAX {
            stop(StopReason::Depth);
        }
        if left.is_multiple_of(LOOK_EVERY) && self.watch.must_end() {
            stop(StopReason::Time);
        }
    }
}

/// An address near the top of the stack.
#[inline(always)]
fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&mark)).addr()
}

/// Throws without the panic hook, which would log it: ending a run is no bug.
fn stop(why: StopReason) -> ! {
    resume_unwind(Box::new(why))
}

impl Budget<'_> {
    /// Refuses text, lists and objects that have become too large, by themselves or together with those before.
    pub(super) fn sized(&self, value: Val) -> Result<Val, Error<Val>> {
        let (place, bytes) = match &value {
            Val::TStr(text) | Val::BStr(text) => (text.as_ptr().addr(), text.len()),
            Val::Arr(items) => (Rc::as_ptr(items).addr(), items.len() * ITEM_BYTES),
            Val::Obj(members) => (Rc::as_ptr(members).addr(), members.len() * 2 * ITEM_BYTES),
            _ => return Ok(value),
        };
        if self.fits(place, bytes) { Ok(value) } else { Err(too_large()) }
    }

    /// Like [`Budget::sized`], for the list of a function in Rust that makes each of its items.
    pub(super) fn filled(&self, value: Val) -> Result<Val, Error<Val>> {
        let Val::Arr(items) = &value else { return self.sized(value) };
        let item_bytes = match items.first() {
            Some(Val::TStr(_) | Val::BStr(_)) => ITEM_BYTES + TEXT_BYTES,
            Some(Val::Arr(_) | Val::Obj(_)) => ITEM_BYTES + NESTED_BYTES,
            _ => ITEM_BYTES,
        };
        let fits = self.fits(Rc::as_ptr(items).addr(), items.len() * item_bytes);
        if fits { Ok(value) } else { Err(too_large()) }
    }

    /// Counts bytes that are no value yet, or that a value points to.
    pub(super) fn count(&self, bytes: usize) -> bool {
        let made = self.made.get().saturating_add(bytes);
        let fits = made <= MADE_BYTES_MAX;
        if fits {
            self.made.set(made);
        }
        fits
    }

    fn fits(&self, place: usize, bytes: usize) -> bool {
        if bytes < PLACED_BYTES_MIN {
            return self.count(bytes);
        }
        // Allocations are aligned, so the lowest bits say little.
        let Some(slot) = self.places.get((place >> 4 ^ place >> 12) % PLACES) else { return false };
        let (before, counted) = slot.get();
        let grown = if before == place { bytes.saturating_sub(counted) } else { bytes };
        let fits = bytes <= VALUE_BYTES_MAX && self.count(grown);
        if fits {
            slot.set((place, bytes));
        }
        fits
    }

    /// Multiplies, unless the product would be too large.
    pub(super) fn multiplied(&self, left: Val, right: Val) -> Result<Val, Error<Val>> {
        let fits = match (&left, &right) {
            (Val::TStr(text) | Val::BStr(text), Val::Num(times))
            | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) => repeats(text.len(), times),
            (Val::Num(a), Val::Num(b)) => bits(a) + bits(b) <= NUMBER_BITS_MAX,
            _ => true,
        };
        if fits { (left * right).and_then(|product| self.sized(product)) } else { Err(too_large()) }
    }
}

/// Refuses a text that is too long to look for all matches of a pattern in it. Only the flag `g` looks for all.
pub(super) fn matchable(value: Val, flags: &Val) -> Result<Val, Error<Val>> {
    let length = |value: &Val| match value {
        Val::TStr(text) | Val::BStr(text) => text.len(),
        _ => 0,
    };
    let all = matches!(flags, Val::TStr(flags) | Val::BStr(flags) if flags.contains(&b'g'));
    if all && length(&value) > MATCHED_BYTES_MAX { Err(too_large()) } else { Ok(value) }
}

/// The error of a value that is too large.
pub(super) fn too_large() -> Error<Val> {
    Error::new(Val::utf8_str(TOO_LARGE.as_bytes().to_vec()))
}

/// The text of that error, as a program reads it if it catches it.
pub(super) const TOO_LARGE: &str = "!too large";

fn repeats(bytes: usize, times: &Num) -> bool {
    let times = times.as_isize().unwrap_or(if is_whole(times) { isize::MAX } else { 0 });
    usize::try_from(times).is_ok_and(|times| bytes.saturating_mul(times) <= VALUE_BYTES_MAX) || times <= 0
}

const fn is_whole(number: &Num) -> bool {
    matches!(number, Num::Int(_) | Num::BigInt(_))
}

fn bits(number: &Num) -> u64 {
    match number {
        Num::BigInt(number) => number.bits(),
        _ => 64,
    }
}
