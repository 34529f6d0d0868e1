//! The handlers, by what they are about; each file begins with its part of the table.

pub(super) mod batch;
pub(super) mod collections;
pub(super) mod dead_letters;
pub(super) mod dedupe;
pub(super) mod export;
pub(super) mod groups;
pub(super) mod lookup;
pub(super) mod projectors;
pub(super) mod publish;
mod reader;
pub(super) mod replay;
pub(super) mod schemas;
pub(super) mod server;
mod start;
pub(super) mod state;
pub(super) mod stream;
pub(super) mod topics;
mod views;

use super::operation::Param;
use super::param_type::ParamType;

/// Times and other numbers that every language reads exactly.
pub(super) const EXACT: ParamType = ParamType::Int(-(1 << 53) + 1, (1 << 53) - 1);
const TOPIC: Param = Param::needed("topic", ParamType::Topic, "the topic");
const NORMALIZE: Param =
    Param::query("normalize", ParamType::Flag, "1: lift events of older schema versions to the latest");
const GROUP: Param = Param::needed("group", ParamType::Group, "the group");
