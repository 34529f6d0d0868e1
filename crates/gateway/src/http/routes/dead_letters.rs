//! Dead letters: browsing, redriving, dropping.

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_delivery::Filter;
use promethean_model::{EventId, Offset};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::params::{GROUP, TOPIC};
use super::views::LetterView;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: i64 = 1_000;
/// Dead letters that one request names, at most.
const NAMED_MAX: usize = 1_000;

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/dlq",
        id: "deadLetters",
        summary: "Open dead letters of a group on a topic, in offset order. While there is `next`, go on with `after=next`.",
        params: &[
            TOPIC,
            GROUP,
            Param::query("after", ParamType::Offset, "only letters after this offset"),
            Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many, 100 if left out"),
        ],
        body: None,
        answer: Answer::json("Letters", "The letters, each with its event"),
        refusals: &[404],
        need: Need::ReadLetters,
        handler: |call| Box::pin(list(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/dlq/redrive",
        id: "redrive",
        summary: "Deliver dead letters again: to the group, with all its attempts, or as copies to the whole topic",
        params: &[TOPIC, GROUP],
        body: Some(Body { media: Media::Json, schema: "Redrive" }),
        answer: Answer::json("LetterReport", "What became of them"),
        refusals: &[404, 409, 507],
        need: Need::ManageLetters,
        handler: |call| Box::pin(redrive(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/dlq/drop",
        id: "dropLetters",
        summary: "Close dead letters for good; the dead-letter topic keeps them as history",
        params: &[TOPIC, GROUP],
        body: Some(Body { media: Media::Json, schema: "LetterChoice" }),
        answer: Answer::json("LetterReport", "What became of them"),
        refusals: &[404, 409, 507],
        need: Need::ManageLetters,
        handler: |call| Box::pin(drop_letters(call)),
    },
];

/// The chosen dead letters and, for a redrive, its target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LetterSelection {
    all: Option<bool>,
    ids: Option<Vec<EventId>>,
    offsets: Option<Vec<Offset>>,
    filter: Option<Box<RawValue>>,
    to: Option<To>,
}

/// Read from a text, because serde would also read an object as a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum To {
    Group,
    Topic,
}

impl TryFrom<String> for To {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        match word.as_str() {
            "group" => Ok(Self::Group),
            "topic" => Ok(Self::Topic),
            _ => Err("`to` is neither `group` nor `topic`"),
        }
    }
}

impl LetterSelection {
    /// Exactly one way to choose must be given: an empty choice must not mean all.
    fn choice(self) -> Result<LetterChoice, Refusal> {
        let named = self.ids.as_ref().map_or(0, Vec::len).max(self.offsets.as_ref().map_or(0, Vec::len));
        if named > NAMED_MAX {
            return Err(Refusal::bad_request(format!(
                "{named} letters named; name at most {NAMED_MAX} at once"
            )));
        }
        match (self.all, self.ids, self.offsets, self.filter) {
            (Some(true), None, None, None) => Ok(LetterChoice::All),
            (None, Some(ids), None, None) if !ids.is_empty() => Ok(LetterChoice::Ids(ids)),
            (None, None, Some(offsets), None) if !offsets.is_empty() => Ok(LetterChoice::Offsets(offsets)),
            (None, None, None, Some(filter)) => Ok(LetterChoice::Filter(Filter::from_json(filter.get())?)),
            _ => {
                let message = "say which letters by one of `\"all\": true`, `ids`, `offsets` and `filter`";
                Err(Refusal::bad_request(message))
            }
        }
    }
}

async fn list(call: &mut Call) -> Reply {
    #[derive(Serialize)]
    struct Letters {
        letters: Vec<LetterView>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<Offset>,
    }
    let (topic, group) = (call.topic()?, call.group()?);
    let after = call.args.parse("after")?.map(Offset);
    let limit = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let page = call.app.bus.dead_letters(&topic, &group, after, limit).await?;
    let letters: Result<Vec<_>, _> = page.letters.iter().map(LetterView::new).collect();
    reply::json(&Letters { letters: letters?, next: page.next })
}

async fn redrive(call: &mut Call) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let chosen: LetterSelection = call.json().await?;
    let to = match chosen.to {
        Some(To::Topic) => RedriveTo::Topic,
        Some(To::Group) | None => RedriveTo::Group,
    };
    reply::json(&call.app.bus.redrive(&topic, &group, chosen.choice()?, to).await?)
}

async fn drop_letters(call: &mut Call) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let chosen: LetterSelection = call.json().await?;
    if chosen.to.is_some() {
        return Err(Refusal::bad_request("`to` is for a redrive only; leave it out"));
    }
    reply::json(&call.app.bus.drop_letters(&topic, &group, chosen.choice()?).await?)
}
