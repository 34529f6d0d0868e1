//! Values as JSON text.

use std::fmt::Write;

use jaq_json::{Val, read};
use promethean_model::json::{JSON_DEPTH_MAX, minify};

use super::RunError;
use super::guard::VALUE_BYTES_MAX;

/// Bytes that are kept of an error's message.
const MESSAGE_BYTES_MAX: usize = 1024;
/// How deep a value may be nested that a program turns into text.
const DEPTH_MAX: usize = 1_000;

/// A value that is too large or nested too deep.
pub(super) struct TooLarge;

/// Reads JSON text.
pub(super) fn read(text: &str) -> Result<Val, RunError> {
    read::parse_single(text.as_bytes()).map_err(|error| RunError::NotJson { reason: error.to_string() })
}

/// Writes a value as JSON text, checked like a payload.
pub(super) fn write(value: &Val, bytes_max: usize) -> Result<String, RunError> {
    let mut left = VALUE_BYTES_MAX;
    add(value, JSON_DEPTH_MAX as usize + 1, &mut left).map_err(|TooLarge| RunError::Size)?;
    let mut out = Capped { text: String::new(), left: bytes_max };
    let too_many = |_| RunError::Outputs { what: "bytes", max: bytes_max };
    write!(out, "{value}").map_err(too_many)?;
    let text = out.text;
    let small = minify(&text).map_err(|error| RunError::NotJson { reason: error.to_string() })?;
    Ok(small.into_owned())
}

/// Refuses a value that is too large as text, without making the text.
pub(super) fn weigh(value: &Val) -> Result<(), TooLarge> {
    add(value, DEPTH_MAX, &mut { VALUE_BYTES_MAX })
}

fn add(value: &Val, depth: usize, left: &mut usize) -> Result<(), TooLarge> {
    let own = match value {
        Val::TStr(text) | Val::BStr(text) => text.len() + 2,
        _ => 4,
    };
    *left = left.checked_sub(own).ok_or(TooLarge)?;
    let depth = depth.checked_sub(1).ok_or(TooLarge)?;
    match value {
        Val::Arr(items) => items.iter().try_for_each(|item| add(item, depth, left)),
        Val::Obj(members) => members.iter().try_for_each(|(name, member)| {
            add(name, depth, left)?;
            add(member, depth, left)
        }),
        _ => Ok(()),
    }
}

/// The message of an error, cut to its bound.
pub(super) fn message(error: &impl std::fmt::Display) -> String {
    let mut out = Capped { text: String::new(), left: MESSAGE_BYTES_MAX };
    // The rest of a longer message is left out.
    let _ = write!(out, "{error}");
    // The message of `error("text")` is the text itself, not its JSON.
    serde_json::from_str::<String>(&out.text).unwrap_or(out.text)
}

struct Capped {
    text: String,
    left: usize,
}

impl Write for Capped {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let fits = more.len().min(self.left);
        let fits = (0..=fits).rev().find(|at| more.is_char_boundary(*at)).unwrap_or(0);
        self.text.push_str(more.get(..fits).unwrap_or_default());
        self.left -= fits;
        if fits == more.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}
