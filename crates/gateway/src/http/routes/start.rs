//! Where to begin, as parameters say it.

use promethean_bus::rows::Start;
use promethean_model::Offset;

use super::EXACT;
use crate::http::args::Args;
use crate::http::operation::Param;
use crate::http::param_type::ParamType;
use crate::refusal::Refusal;

const WORDS: &[&str] = &["earliest", "latest", "ts", "afterId", "offset"];

pub(super) const FROM: Param = Param::query(
    "from",
    ParamType::Word(WORDS),
    "where to begin; `ts`, `afterId` and `offset` need that parameter too",
);
pub(super) const TS: Param =
    Param::query("ts", EXACT, "begin with the first event of this time or later, epoch ms");
pub(super) const AFTER_ID: Param =
    Param::query("afterId", ParamType::Id, "begin after the event with this id");
pub(super) const OFFSET: Param = Param::query("offset", ParamType::Offset, "begin with this offset");

/// Where to begin. One of `ts`, `afterId` and `offset` alone says what `from` would.
pub(super) fn start(args: &Args, absent: Start) -> Result<Start, Refusal> {
    let given: Vec<&str> =
        ["ts", "afterId", "offset"].into_iter().filter(|name| args.get(name).is_some()).collect();
    let from = args.get("from").or(given.first().copied());
    if let Some(other) = given.iter().find(|name| Some(**name) != from) {
        let message = format!("`{other}` goes with `from={other}` only; leave one of them out");
        return Err(Refusal::bad_request(message).with("parameter", *other));
    }
    Ok(match from {
        None => absent,
        Some("earliest") => Start::Earliest,
        Some("latest") => Start::Latest,
        Some("ts") => Start::Ts(args.need("ts")?),
        Some("afterId") => Start::AfterId(args.need("afterId")?),
        Some(_) => Start::Offset(Offset(args.need("offset")?)),
    })
}
