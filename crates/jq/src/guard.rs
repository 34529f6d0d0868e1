//! What a run may use. Every step of a program asks for the table of its terms; that is where steps are counted.

use std::cell::Cell;
use std::panic::resume_unwind;

use jaq_core::data::{DataT, HasLut};
use jaq_core::{Error, Lut};
use jaq_json::{Num, Val};

use super::watch::JobWatch;

/// How deep the stack may become. A quarter of it, since dropping what was built takes some too.
pub(super) const DEPTH_BYTES_MAX: usize = super::pool::STACK_BYTES / 4;
/// The longest text, and the longest list times 16.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;
/// Bits of whole numbers that are multiplied.
const NUMBER_BITS_MAX: u64 = 1 << 16;
/// Steps between two looks at whether to stop.
const LOOK_EVERY: u64 = 256;

/// The types of our programs.
#[derive(Debug)]
pub(super) struct Kind;

impl DataT for Kind {
    type V<'a> = Val;
    type Data<'a> = Run<'a>;
}

/// A run.
#[derive(Clone)]
pub(super) struct Run<'a> {
    pub(super) lut: &'a Lut<Kind>,
    pub(super) budget: &'a Budget<'a>,
}

impl<'a> HasLut<'a, Kind> for Run<'a> {
    fn lut(&self) -> &'a Lut<Kind> {
        self.budget.step();
        self.lut
    }
}

/// What is left for a run.
pub(super) struct Budget<'a> {
    steps: Cell<u64>,
    /// An address on the stack where the run began.
    base: usize,
    watch: &'a JobWatch,
}

/// Why a run was ended. Thrown, since nothing of it can go on, and caught where the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Steps,
    Depth,
    Time,
}

impl<'a> Budget<'a> {
    pub(super) fn new(steps: u64, watch: &'a JobWatch) -> Self {
        Self { steps: Cell::new(steps), base: here(), watch }
    }

    /// Takes a step, unless there are none left.
    pub(super) fn step(&self) {
        let left = self.steps.get();
        if left == 0 {
            stop(Stop::Steps);
        }
        self.steps.set(left - 1);
        if self.base.abs_diff(here()) > DEPTH_BYTES_MAX {
            stop(Stop::Depth);
        }
        if left.is_multiple_of(LOOK_EVERY) && self.watch.must_end() {
            stop(Stop::Time);
        }
    }
}

/// Where the stack is now.
#[inline(always)]
fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&mark)).addr()
}

/// Without the panic hook: it is no bug, and nobody needs to read about it.
fn stop(why: Stop) -> ! {
    resume_unwind(Box::new(why))
}

/// Refuses text and lists that have become too large.
pub(super) fn sized(value: Val) -> Result<Val, Error<Val>> {
    let bytes = match &value {
        Val::TStr(text) | Val::BStr(text) => text.len(),
        Val::Arr(items) => items.len() * 16,
        Val::Obj(members) => members.len() * 16,
        _ => 0,
    };
    if bytes > VALUE_BYTES_MAX { Err(too_large()) } else { Ok(value) }
}

/// Multiplies what is not too large afterwards.
pub(super) fn multiplied(left: Val, right: Val) -> Result<Val, Error<Val>> {
    let fits = match (&left, &right) {
        (Val::TStr(text) | Val::BStr(text), Val::Num(times))
        | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) => repeats(text.len(), times),
        (Val::Num(a), Val::Num(b)) => bits(a) + bits(b) <= NUMBER_BITS_MAX,
        _ => true,
    };
    if fits { left * right } else { Err(too_large()) }
}

pub(super) fn too_large() -> Error<Val> {
    Error::new(Val::utf8_str(TOO_LARGE.as_bytes().to_vec()))
}

/// What a program reads if it catches the error.
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
