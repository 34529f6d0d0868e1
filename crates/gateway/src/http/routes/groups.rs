//! Groups: showing, seeking, pausing and deleting them.

use promethean_bus::groups::{GroupInfo, GroupQuery};
use promethean_bus::rows::{GroupKey, StartPosition};
use promethean_model::{EventId, Offset, TopicName};
use serde::Deserialize;
use serde_json::json;

use super::params::{GROUPS_AFTER, GROUPS_LIMIT, TOPIC, group_text, groups_page, page_of};
use super::views::{BlockerReads, GroupView};
use crate::http::args::Args;
use crate::http::call::{Call, Viewer};
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
        summary: "Groups that the token may see, or those of one topic. While there is `next`, go on with `after=next`; a \
                  page may have fewer groups than `limit`. Of a group of a pattern, the first 100 topics are shown.",
        params: &[
            Param::query("topic", ParamType::Topic, "only groups of this topic"),
            GROUPS_AFTER,
            GROUPS_LIMIT,
        ],
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
        summary: "One group. Of a group of a pattern, 100 topics are shown; while there is `next_topic`, go on with \
                  `after=next_topic`.",
        params: &[GROUP, SUBJECT, Param::query("after", ParamType::Topic, "only topics after this name")],
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
        refusals: &[404, 409, 507],
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
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(pause(call, false)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/groups/{group}",
        id: "deleteGroup",
        summary: "Delete a group without members, with its cursors and open dead letters",
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
    to: SeekTo,
    ts: Option<i64>,
    after_id: Option<EventId>,
    offset: Option<Offset>,
    #[serde(default)]
    dry_run: bool,
}

/// Read from a text, because serde would also read an object as a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum SeekTo {
    Earliest,
    Latest,
    Ts,
    AfterId,
    Offset,
}

impl TryFrom<String> for SeekTo {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        match word.as_str() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "ts" => Ok(Self::Ts),
            "afterId" => Ok(Self::AfterId),
            "offset" => Ok(Self::Offset),
            _ => Err("`to` is not one of `earliest`, `latest`, `ts`, `afterId` and `offset`"),
        }
    }
}

impl Seek {
    fn start(&self) -> Result<StartPosition, Refusal> {
        let given = [
            ("ts", self.ts.is_some(), SeekTo::Ts),
            ("afterId", self.after_id.is_some(), SeekTo::AfterId),
            ("offset", self.offset.is_some(), SeekTo::Offset),
        ];
        for (name, given, to) in given {
            if given != (to == self.to) {
                let message =
                    format!("`{name}` and `\"to\": \"{name}\"` belong together; send both or neither");
                return Err(Refusal::bad_request(message));
            }
        }
        Ok(match self.to {
            SeekTo::Earliest => StartPosition::Earliest,
            SeekTo::Latest => StartPosition::Latest,
            SeekTo::Ts => StartPosition::Ts(self.ts.unwrap_or_default()),
            SeekTo::AfterId => self.after_id.map_or(StartPosition::Latest, StartPosition::AfterId),
            SeekTo::Offset => StartPosition::Offset(self.offset.unwrap_or_default()),
        })
    }
}

/// A page of the groups that the client may see, and where to go on.
pub(super) async fn visible(
    viewer: Viewer<'_>,
    args: &Args,
    topic: Option<&TopicName>,
) -> Result<(Vec<GroupView>, Option<String>), Refusal> {
    let (after, limit) = groups_page(args)?;
    let query = GroupQuery { topic, after: after.as_ref() };
    let wanted = |key: &GroupKey| viewer.may_see_group(&key.subject, &key.group);
    let page = viewer.app.bus.groups_page(query, limit, wanted).await?;
    let (mut groups, mut reads) = (Vec::new(), BlockerReads::new(&viewer.app.bus));
    for info in page.groups {
        groups.push(view(viewer, &mut reads, info).await);
    }
    Ok((groups, page.next.as_ref().map(group_text)))
}

/// A group with its partitions.
async fn view(viewer: Viewer<'_>, reads: &mut BlockerReads<'_>, info: GroupInfo) -> GroupView {
    let partitions = viewer.app.bus.coordinator(&info.group, &info.subject);
    GroupView::read(reads, info, partitions).await
}

async fn groups(call: &mut Call) -> Reply {
    let topic = call.args.parse("topic")?;
    let (groups, next) = visible(call.viewer(), &call.args, topic.as_ref()).await?;
    reply::json(&page_of("groups", groups, next))
}

async fn group(call: &mut Call) -> Reply {
    let (subject, group) = (call.subject()?, call.group()?);
    let after = call.args.parse("after")?;
    let info = call.app.bus.find_group(&group, &subject, after.as_ref()).await?;
    let seen = info.filter(|info| call.viewer().may_see_group(&info.subject, &info.group));
    match seen {
        Some(info) => {
            let mut reads = BlockerReads::new(&call.app.bus);
            reply::json(&view(call.viewer(), &mut reads, info).await)
        }
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
