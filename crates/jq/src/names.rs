//! The functions that a program may call: the functions of jq that see nothing but their input.

use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{Cv, Error, Exn, Native, ValXs};
use jaq_json::Val;
use promethean_model::json::minify;

use super::guard::{Budget, JqTypes, matchable, too_large};
use super::text::{read, weigh};

/// Our function that multiplies within bounds.
pub(super) const MUL: &str = "!mul";
/// Our function that refuses a value which is too large.
pub(super) const SIZED: &str = "!sized";
/// Our function that refuses a list of new items which is too large.
pub(super) const FILLED: &str = "!filled";
/// Our function that refuses a value whose text would be too large.
pub(super) const SMALL: &str = "!small";

/// Our function that refuses a text which is too long for a pattern with these flags.
pub(super) const MATCHABLE: &str = "!matchable";

/// The functions in Rust that look for the matches of a pattern, and the names that we give them. All other
/// functions with patterns call one of them. They make all matches before they give the first, so each is called
/// through a definition of ours that looks at the length of the text first.
const MATCHING: [(&str, &str); 3] =
    [("matches", "!matches"), ("split_matches", "!split_matches"), ("split_", "!split_")];

/// The functions in Rust whose result is as large as their input or larger.
pub(super) const COPYING: &[&str] = &[
    "implode",
    "ascii_downcase",
    "ascii_upcase",
    "reverse",
    "sort",
    "escape_sh",
    "escape_html",
    "unescape_html",
    "encode_uri",
    "decode_uri",
    "encode_base64",
    "decode_base64",
    "tojson",
];

/// The functions in Rust that make each item of the list that they return.
pub(super) const FILLING: &[&str] = &["explode", "indices", "keys_unsorted", "key_values"];

/// Bytes that the value of a JSON text takes for each byte of the text, at most: `[[],[]]` takes that much.
const READ_FACTOR: usize = 16;

/// Functions of jq that are left out: they see or touch something else than their input, cannot be bounded by
/// the interpreter (`range` and `fromjson`, which are replaced by ours), or give values that are no JSON
/// (`tobytes`).
const LEFT_OUT: &[&str] = &[
    "env",
    "now",
    "halt",
    "halt_error",
    "debug",
    "debug_empty",
    "stderr",
    "stderr_empty",
    "input",
    "inputs",
    "localtime",
    "strflocaltime",
    "tobytes",
    "range",
    "fromjson",
];

/// The functions written in jq.
pub(super) fn definitions() -> Vec<Def<&'static str>> {
    let all = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    // `range` with one or two arguments is written in jq and calls our `range` with three.
    let all = all.filter(|def| def.name == "range" || !LEFT_OUT.contains(&def.name));
    MATCHING.into_iter().map(|(name, native)| matching(name, native)).chain(all).collect()
}

/// The definition `NAME(re; flags): flags as $f | !matchable($f) | NATIVE(re; $f) | !filled`.
fn matching(name: &'static str, native: &'static str) -> Def<&'static str> {
    let argument = |name| Term::Call(name, Vec::new());
    let flags = || Term::Var("$!f");
    let guard = Term::Call(MATCHABLE, vec![flags()]);
    let found = Term::Call(native, vec![argument("re"), flags()]);
    let pipe = |left, bound, right| Term::BinOp(Box::new(left), BinaryOp::Pipe(bound), Box::new(right));
    let body = pipe(
        argument("flags"),
        Some(Pattern::Var("$!f")),
        pipe(guard, None, pipe(found, None, Term::Call(FILLED, Vec::new()))),
    );
    Def { name, args: vec!["re", "flags"], body }
}

/// The functions written in Rust.
pub(super) fn functions() -> impl Iterator<Item = Fun<JqTypes>> {
    let all = jaq_core::funs::<JqTypes>().chain(jaq_std::funs()).chain(jaq_json::funs());
    let ours: [(&'static str, usize, jaq_core::RunPtr<JqTypes>); 6] = [
        (MUL, 2, |(mut context, _)| {
            let right = context.pop_var();
            let left = context.pop_var();
            bome(context.data().budget.multiplied(left, right))
        }),
        (FILLED, 0, |(context, value)| bome(context.data().budget.filled(value))),
        (MATCHABLE, 1, |(mut context, value)| bome(matchable(value, &context.pop_var()))),
        (SMALL, 0, |(_, value)| bome(weigh(&value).map(|()| value).map_err(|_| too_large()))),
        ("range", 3, range),
        ("fromjson", 0, |(context, value)| bome(from_json(context.data().budget, &value))),
    ];
    let ours =
        ours.into_iter().map(|(name, arguments, pointer)| run::<JqTypes>((name, v(arguments), pointer)));
    let renamed = |name| MATCHING.iter().find(|(old, _)| *old == name).map_or(name, |(_, ours)| *ours);
    let all = all.map(move |(name, arguments, function)| (renamed(name), arguments, function));
    all.filter(|(name, ..)| !LEFT_OUT.contains(name)).chain(ours).chain([sized()])
}

/// Our function [`SIZED`]. It is also a path, since a slice is one.
fn sized() -> Fun<JqTypes> {
    let native = Native::new(|(context, value): Cv<'_, JqTypes>| bome(context.data().budget.sized(value)));
    let native = native.with_paths(|(context, (value, path))| {
        let sized = context.data().budget.sized(value);
        Box::new(std::iter::once(sized.map(|value| (value, path)).map_err(Exn::from)))
    });
    (SIZED, v(0), native.with_update(|(_, value), update| update(value)))
}

/// Our `fromjson`. The interpreter's own recurses as deep as the text is nested, and a payload can hold any
/// text.
fn from_json(budget: &Budget<'_>, value: &Val) -> Result<Val, Error<Val>> {
    let text = match value {
        Val::TStr(text) | Val::BStr(text) => str::from_utf8(text).ok(),
        _ => None,
    };
    let refuse = |reason: &str| Error::new(Val::utf8_str(format!("fromjson: {reason}").into_bytes()));
    let text = text.ok_or_else(|| refuse("the input is no text"))?;
    if !budget.count(text.len().saturating_mul(READ_FACTOR)) {
        return Err(too_large());
    }
    let text = minify(text).map_err(|error| refuse(&error.to_string()))?;
    read(&text).map_err(|error| refuse(&error.to_string()))
}

/// Our `range`. Unlike the interpreter's own, each number counts as a step: filling a list from it takes no
/// other step.
fn range(cv: Cv<'_, JqTypes>) -> ValXs<'_, Val> {
    let (mut context, _) = cv;
    let by = context.pop_var();
    let to = context.pop_var();
    let mut next: Result<Val, Error<Val>> = Ok(context.pop_var());
    let budget = context.data().budget;
    let zero = Val::from(0_isize);
    let mut failed = false;
    Box::new(std::iter::from_fn(move || {
        budget.step();
        if failed {
            return None;
        }
        let now = match std::mem::replace(&mut next, Ok(Val::Null)) {
            Ok(now) => now,
            Err(error) => {
                failed = true;
                return Some(Err(Exn::from(error)));
            }
        };
        let more = match by.partial_cmp(&zero) {
            Some(std::cmp::Ordering::Greater) => now < to,
            Some(std::cmp::Ordering::Less) => now > to,
            _ => now != to,
        };
        if !more {
            failed = true;
            return None;
        }
        next = now.clone() + by.clone();
        Some(Ok(now))
    }))
}
