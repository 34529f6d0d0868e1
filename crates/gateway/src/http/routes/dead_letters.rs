//! Dead letters: browsing, redriving, dropping.

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_delivery::Filter;
use promethean_model::{EventId, Offset};
use serde::{Deserialize, Deserializer, Serialize};
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
        summary: "Deliver dead letters again: to the group, with all its attempts, or as copies to the whole topic. With \
                  `payload`, one letter goes to the topic with that payload; this needs `publish:{topic}` too.",
        params: &[TOPIC, GROUP],
        body: Some(Body { media: Media::Json, schema: "Redrive" }),
        answer: Answer::json("LetterReport", "What became of them"),
        refusals: &[404, 409, 422, 507],
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
    to: Option<RedriveTarget>,
    /// The payload of the copy; `null` is one too.
    #[serde(default, deserialize_with = "given")]
    payload: Option<Box<RawValue>>,
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Read from a text, because serde would also read an object as a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum RedriveTarget {
    Group,
    Topic,
}

impl TryFrom<String> for RedriveTarget {
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
    let mut chosen: LetterSelection = call.json().await?;
    if let Some(payload) = chosen.payload.take() {
        return redrive_edited(call, chosen, &payload).await;
    }
    let to = match chosen.to {
        Some(RedriveTarget::Topic) => RedriveTo::Topic,
        Some(RedriveTarget::Group) | None => RedriveTo::Group,
    };
    reply::json(&call.app.bus.redrive(&topic, &group, chosen.choice()?, to).await?)
}

/// Publishes the event of one letter with another payload. That is a publish too, so it needs the right to.
async fn redrive_edited(call: &mut Call, chosen: LetterSelection, payload: &RawValue) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let is_one = chosen.ids.as_ref().is_some_and(|ids| ids.len() == 1)
        || chosen.offsets.as_ref().is_some_and(|offsets| offsets.len() == 1);
    if chosen.to != Some(RedriveTarget::Topic) || !is_one {
        let message = "`payload` goes with `\"to\": \"topic\"` and one letter, in `ids` or `offsets`";
        return Err(Refusal::bad_request(message));
    }
    call.allow(Need::Publish)?;
    call.pay_for(&topic, 1, payload.get().len())?;
    reply::json(&call.app.bus.redrive_edited(&topic, &group, chosen.choice()?, payload).await?)
}

async fn drop_letters(call: &mut Call) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let chosen: LetterSelection = call.json().await?;
    if chosen.to.is_some() || chosen.payload.is_some() {
        return Err(Refusal::bad_request("`to` and `payload` are for a redrive only; leave them out"));
    }
    reply::json(&call.app.bus.drop_letters(&topic, &group, chosen.choice()?).await?)
}
