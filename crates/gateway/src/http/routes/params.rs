//! Parameters that several operations share.

use promethean_bus::rows::{GroupKey, StartPosition};
use promethean_model::Offset;
use serde::Serialize;
use serde_json::{Map, Value, json};

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

/// Groups of one page, if the client does not say how many.
const GROUPS_DEFAULT: usize = 100;
const GROUPS_MAX: i64 = 1_000;

pub(super) const GROUPS_AFTER: Param =
    Param::query("after", ParamType::Text, "only groups after this one: `next` of the page before");
pub(super) const GROUPS_LIMIT: Param =
    Param::query("limit", ParamType::Int(1, GROUPS_MAX), "how many groups at most, 100 if left out");

/// The group to go on after, and how many groups to list. No groups come after a text that is no `GROUP/TOPIC`.
pub(super) fn groups_page(args: &Args) -> Result<(Option<GroupKey>, usize), Refusal> {
    let limit = args.parse("limit")?.unwrap_or(GROUPS_DEFAULT);
    let Some(text) = args.get("after") else { return Ok((None, limit)) };
    let after = text.split_once('/').and_then(|(group, subject)| {
        Some(GroupKey { group: group.parse().ok()?, subject: subject.parse().ok()? })
    });
    let limit = if after.is_some() { limit } else { 0 };
    Ok((after, limit))
}

/// How `next` names the last group of a page.
pub(super) fn group_text(key: &GroupKey) -> String {
    format!("{}/{}", key.group, key.subject)
}

/// A page of a list: its items, and where to go on if there may be more.
pub(super) fn page_of(name: &str, items: impl Serialize, next: Option<impl Serialize>) -> Map<String, Value> {
    let mut page = Map::new();
    page.insert(name.to_owned(), json!(items));
    if let Some(next) = next {
        page.insert("next".to_owned(), json!(next));
    }
    page
}

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
        let message = format!("`{other}` is only for `from={other}`; leave one of them out");
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
