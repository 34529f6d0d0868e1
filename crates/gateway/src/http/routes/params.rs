//! Parameters that several operations share.

use promethean_bus::rows::StartPosition;
use promethean_model::Offset;

use crate::http::args::Args;
use crate::http::operation::Param;
use crate::http::param_type::ParamType;
use crate::refusal::Refusal;

/// Times and other numbers that every language reads exactly.
pub(in crate::http) const EXACT: ParamType = ParamType::Int(-(1 << 53) + 1, (1 << 53) - 1);
pub(super) const TOPIC: Param = Param::needed("topic", ParamType::Topic, "the topic");
pub(super) const GROUP: Param = Param::needed("group", ParamType::Group, "the group");
pub(super) const NORMALIZE: Param =
    Param::query("normalize", ParamType::Flag, "1: lift events of older schema versions to the latest");

const START_WORDS: &[&str] = &["earliest", "latest", "ts", "afterId", "offset"];

pub(super) const FROM: Param = Param::query(
    "from",
    ParamType::Word(START_WORDS),
    "where to begin; `ts`, `afterId` and `offset` need that parameter too",
);
pub(super) const TS: Param =
    Param::query("ts", EXACT, "begin with the first event of this time or later, epoch ms");
pub(super) const AFTER_ID: Param =
    Param::query("afterId", ParamType::Id, "begin after the event with this id");
pub(super) const OFFSET: Param = Param::query("offset", ParamType::Offset, "begin with this offset");

/// The start position that the parameters name. One of `ts`, `afterId` and `offset` alone implies `from`.
pub(super) fn start(args: &Args, absent: StartPosition) -> Result<StartPosition, Refusal> {
    let given: Vec<&str> =
        ["ts", "afterId", "offset"].into_iter().filter(|name| args.get(name).is_some()).collect();
    let from = args.get("from").or(given.first().copied());
    if let Some(other) = given.iter().find(|name| Some(**name) != from) {
        let message = format!("`{other}` goes with `from={other}` only; leave one of them out");
        return Err(Refusal::bad_request(message).with("parameter", *other));
    }
    Ok(match from {
        None => absent,
        Some("earliest") => StartPosition::Earliest,
        Some("latest") => StartPosition::Latest,
        Some("ts") => StartPosition::Ts(args.need("ts")?),
        Some("afterId") => StartPosition::AfterId(args.need("afterId")?),
        Some(_) => StartPosition::Offset(Offset(args.need("offset")?)),
    })
}
