//! `promethean export` and `promethean import`: topics as files of JSON lines.

mod export;
mod import;
mod position;

pub(crate) use self::export::{ExportArgs, run as export};
pub(crate) use self::import::{ImportArgs, run as import};
