//! Groups: showing, seeking, pausing and deleting them.

use promethean_bus::groups::GroupInfo;
use promethean_bus::rows::StartPosition;
use promethean_delivery::Subject;
use promethean_model::{EventId, GroupName, Offset};
use serde::Deserialize;
use serde_json::json;

use super::params::TOPIC;
use super::views::GroupView;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

const GROUP: Param = Param::path("group", ParamType::Group, "the group");
const SUBJECT: Param =
    Param::needed("topic", ParamType::Subject, "the topic or pattern that the group is subscribed to");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/groups",
        id: "groups",
        summary: "All groups that the token may see, or those of one topic",
        params: &[Param::query("topic", ParamType::Topic, "only groups of this topic")],
        body: None,
        answer: Answer::json("Groups", "The groups"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(groups(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/groups/{group}",
        id: "group",
        summary: "One group",
        params: &[GROUP, SUBJECT],
        body: None,
        answer: Answer::json("Group", "The group, with its options and how far it is on each topic"),
        refusals: &[404],
        need: Need::SubscribeAs,
        handler: |call| Box::pin(group(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/groups/{group}/seek",
        id: "seekGroup",
        summary: "Move a group to another place of a topic. Everything below is finished, nothing above. `dryRun` only \
                  says what would be replayed and skipped.",
        params: &[GROUP, TOPIC],
        body: Some(Body { media: Media::Json, schema: "Seek" }),
        answer: Answer::json("SeekReport", "What was done, or would be"),
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(seek(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/groups/{group}/pause",
        id: "pauseGroup",
        summary: "Deliver nothing to a group until it is resumed, also over restarts",
        params: &[GROUP, SUBJECT],
        body: None,
        answer: Answer::json("Paused", "The group is paused"),
        refusals: &[404, 507],
        need: Need::Manage,
        handler: |call| Box::pin(pause(call, true)),
    },
    Operation {
        verb: Verb::Post,
        path: "/groups/{group}/resume",
        id: "resumeGroup",
        summary: "Deliver to a group again",
        params: &[GROUP, SUBJECT],
        body: None,
        answer: Answer::json("Paused", "The group is not paused"),
        refusals: &[404, 507],
        need: Need::Manage,
        handler: |call| Box::pin(pause(call, false)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/groups/{group}",
        id: "deleteGroup",
        summary: "Delete a group that nobody is a member of, with its cursors and open dead letters",
        params: &[GROUP, SUBJECT],
        body: None,
        answer: Answer::json("Deleted", "The group is gone"),
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(delete(call)),
    },
];

/// The body of a seek.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Seek {
    to: To,
    ts: Option<i64>,
    after_id: Option<EventId>,
    offset: Option<Offset>,
    #[serde(default)]
    dry_run: bool,
}

/// Read from a text, because serde would also read an object as a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum To {
    Earliest,
    Latest,
    Ts,
    AfterId,
    Offset,
}

impl TryFrom<String> for To {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        match word.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "ts" => Ok(Self::Ts),
            "afterId" => Ok(Self::AfterId),
            "offset" => Ok(Self::Offset),
            _ => Err("`to` is none of `earliest`, `latest`, `ts`, `afterId` and `offset`"),
        }
    }
}

impl Seek {
    fn start(&self) -> Result<StartPosition, Refusal> {
        let given = [
            ("ts", self.ts.is_some(), To::Ts),
            ("afterId", self.after_id.is_some(), To::AfterId),
            ("offset", self.offset.is_some(), To::Offset),
        ];
        for (name, given, to) in given {
            if given != (to == self.to) {
                let message =
                    format!("`{name}` goes with `\"to\": \"{name}\"` and only with it; send both or neither");
                return Err(Refusal::bad_request(message));
            }
        }
        Ok(match self.to {
            To::Earliest => StartPosition::Earliest,
            To::Latest => StartPosition::Latest,
            To::Ts => StartPosition::Ts(self.ts.unwrap_or_default()),
            To::AfterId => self.after_id.map_or(StartPosition::Latest, StartPosition::AfterId),
            To::Offset => StartPosition::Offset(self.offset.unwrap_or_default()),
        })
    }
}

/// The groups that the client may see, with their partitions.
pub(super) fn visible(call: &Call, infos: Vec<GroupInfo>) -> Vec<GroupView> {
    let coordinators = call.app.bus.coordinators();
    let seen = infos.into_iter().filter(|info| call.may_see_group(&info.subject, &info.group));
    seen.map(|info| {
        let of =
            |(group, subject, _): &&(GroupName, Subject, _)| *group == info.group && *subject == info.subject;
        let partitions = coordinators.iter().find(of).map(|(_, _, view)| view.clone());
        GroupView::new(info, partitions)
    })
    .collect()
}

async fn groups(call: &mut Call) -> Reply {
    let topic = call.args.parse("topic")?;
    let infos = call.app.bus.groups(topic.as_ref()).await?;
    reply::json(&json!({"groups": visible(call, infos)}))
}

async fn group(call: &mut Call) -> Reply {
    let (subject, group) = (call.subject()?, call.group()?);
    let mut infos = call.app.bus.groups(subject.topic()).await?;
    infos.retain(|info| info.group == group && info.subject.contains(&subject));
    // If several groups of this name cover the topic, the one that names it exactly.
    infos.sort_by_key(|info| info.subject != subject);
    infos.truncate(1);
    match visible(call, infos).pop() {
        Some(view) => reply::json(&view),
        None => Err(promethean_bus::BusError::UnknownGroup { group, subject: subject.to_string() }.into()),
    }
}

async fn seek(call: &mut Call) -> Reply {
    let (topic, group) = (call.topic()?, call.group()?);
    let seek: Seek = call.json().await?;
    let report = call.app.bus.seek(&topic, &group, seek.start()?, seek.dry_run).await?;
    reply::json(&report)
}

async fn pause(call: &mut Call, paused: bool) -> Reply {
    let (subject, group) = (call.subject()?, call.group()?);
    match paused {
        true => call.app.bus.pause_group(&subject, &group).await?,
        false => call.app.bus.resume_group(&subject, &group).await?,
    }
    reply::json(&json!({"group": group, "topic": subject, "paused": paused}))
}

async fn delete(call: &mut Call) -> Reply {
    let (subject, group) = (call.subject()?, call.group()?);
    call.app.bus.delete_group(&subject, &group).await?;
    reply::json(&json!({"group": group, "topic": subject, "deleted": true}))
}
