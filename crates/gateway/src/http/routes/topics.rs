//! Topics and their settings.

use promethean_bus::BusError;
use promethean_delivery::Subject;
use promethean_model::plain::json_reason;
use promethean_model::{TopicName, TopicSettings};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::params::page_of;
use super::views::TopicView;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};

const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: i64 = 10_000;
const TOPIC: Param = Param::path("topic", ParamType::Topic, "the topic");

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/topics",
        id: "topics",
        summary: "Topics that the token may see, by name. While there is `next`, go on with `after=next`.",
        params: &[
            Param::query("after", ParamType::Topic, "only topics after this name"),
            Param::query("limit", ParamType::Int(1, LIMIT_MAX), "how many at most, 1000 if left out"),
        ],
        body: None,
        answer: Answer::json("Topics", "The topics"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(list(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/topics/{topic}",
        id: "topic",
        summary: "One topic and its settings",
        params: &[TOPIC],
        body: None,
        answer: Answer::json("Topic", "The topic"),
        refusals: &[404],
        need: Need::Any,
        handler: |call| Box::pin(show(call)),
    },
    Operation {
        verb: Verb::Put,
        path: "/topics/{topic}",
        id: "setTopic",
        summary: "Create a topic, or replace all settings of one; what is left out has its default",
        params: &[Param::path("topic", ParamType::UserTopic, "the topic")],
        body: Some(Body { media: Media::Json, schema: "TopicSettings" }),
        answer: Answer::json("Topic", "The topic as it is now"),
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(set(call)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/topics/{topic}",
        id: "deleteTopic",
        summary: "Delete a topic with its events, settings, and groups",
        params: &[TOPIC],
        body: None,
        answer: Answer::json("DeletedTopic", "The topic is gone"),
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(delete(call)),
    },
];

/// The settings of a topic. Their parts are checked to be objects and words, because serde would also read a
/// list as an object and an object as a word.
struct SettingsBody(TopicSettings);

impl<'de> Deserialize<'de> for SettingsBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct SettingsParts {
            #[serde(default)]
            retention: Map<String, Value>,
            schema: Option<String>,
            compat: Option<String>,
            durability: Option<String>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        // The whole settings first: that refuses a name that comes twice.
        let bad = |error: serde_json::Error| de::Error::custom(json_reason(&error));
        let settings = serde_json::from_str(text.get()).map_err(bad)?;
        serde_json::from_str::<SettingsParts>(text.get())
            .map_err(bad)
            .map(|parts| drop((parts.retention, parts.schema, parts.compat, parts.durability)))?;
        Ok(Self(settings))
    }
}

async fn list(call: &mut Call) -> Reply {
    let after: Option<TopicName> = call.args.parse("after")?;
    let limit = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let viewer = call.viewer();
    let wanted = |name: &TopicName| viewer.may_see(&Subject::Topic(name.clone()));
    let page = viewer.app.bus.topics_page(after.as_ref(), limit, wanted).await?;
    let view = |info: promethean_bus::TopicInfo| {
        let settings = call.app.bus.topic_settings(&info.name);
        TopicView::new(info, settings)
    };
    let topics: Vec<TopicView> = page.topics.into_iter().map(view).collect();
    reply::json(&page_of("topics", topics, page.next))
}

async fn show(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let info = call.app.bus.topic(&topic).await?;
    reply::json(&TopicView::new(info, call.app.bus.topic_settings(&topic)))
}

async fn set(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let SettingsBody(settings) = call.json().await?;
    let bus = &call.app.bus;
    settings.validate().map_err(BusError::from)?;
    let exists = match bus.topic(&topic).await {
        Err(BusError::UnknownTopic { .. }) => false,
        known => known.map(|_| true)?,
    };
    // Users cannot create a topic of the system, but they can set one that exists.
    if topic.is_system() && exists {
        bus.set_topic(&topic, settings).await?;
        return show(call).await;
    }
    TopicName::parse_user(topic.as_str()).map_err(BusError::from)?;
    if !exists {
        call.pay_for_new(&topic)?;
    }
    bus.create_topic_with(&topic, settings).await?;
    show(call).await
}

async fn delete(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    call.app.bus.delete_topic(&topic).await?;
    reply::json(&json!({"topic": topic, "deleted": true}))
}
