//! Schemas of topics.

use promethean_bus::read::LiftFailure;
use promethean_bus::schemas::{RegisterOptions, SchemaInfo, WhichSchema};
use promethean_bus::{Bus, BusError};
use promethean_delivery::Subject;
use promethean_model::TopicName;
use promethean_schema::SchemaText;
use promethean_schema::compat::Verdict;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::auth::Access;
use crate::http::call::Call;
use crate::http::operation::{Answer, Body, Media, Need, Operation, Param, Verb};
use crate::http::param_type::ParamType;
use crate::http::reply::{self, Reply};
use crate::refusal::Refusal;

const LIMIT_DEFAULT: usize = 1_000;
const TOPIC: Param = Param::path("topic", ParamType::Topic, "the topic");
const VERSION: Param = Param::path("version", ParamType::Version, "the version, or `latest`");
const SCHEMA: Option<Body> = Some(Body { media: Media::Json, schema: "JsonSchema" });

pub(in crate::http) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/schemas",
        id: "schemas",
        summary: "Topics with schemas that the token may see, by name. While there is `next`, go on with `after=next`.",
        params: &[
            Param::query("after", ParamType::Topic, "only topics after this name"),
            Param::query("limit", ParamType::Int(1, 1_000), "how many, 1000 if left out"),
        ],
        body: None,
        answer: Answer::json("SchemaTopics", "The topics"),
        refusals: &[],
        need: Need::Known,
        handler: |call| Box::pin(topics(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/schemas/{topic}",
        id: "schemaVersions",
        summary: "The versions of a topic's schema, without their texts",
        params: &[TOPIC],
        body: None,
        answer: Answer::json("SchemaVersions", "The versions, ascending; none if the topic has no schema"),
        refusals: &[404],
        need: Need::Any,
        handler: |call| Box::pin(versions(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/schemas/{topic}",
        id: "registerSchema",
        summary: "Register a schema as the topic's next version, if it fits those before by the topic's `compat`. The one \
                  that the latest version has already is not registered again.",
        params: &[
            Param::path("topic", ParamType::UserTopic, "the topic"),
            Param::query(
                "version",
                ParamType::Int(1, u32::MAX as i64),
                "its number, above that of the latest",
            ),
            Param::query("force", ParamType::Flag, "1: also if the comparison cannot decide"),
            Param::query("dry_run", ParamType::Flag, "1: only say what would happen"),
        ],
        body: SCHEMA,
        answer: Answer::json("RegisteredSchema", "The version, and how it compares with those before"),
        refusals: &[409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(register(call)),
    },
    Operation {
        verb: Verb::Get,
        path: "/schemas/{topic}/{version}",
        id: "schema",
        summary: "One version with its text",
        params: &[TOPIC, VERSION],
        body: None,
        answer: Answer::json("Schema", "The version"),
        refusals: &[404],
        need: Need::Any,
        handler: |call| Box::pin(show(call)),
    },
    Operation {
        verb: Verb::Delete,
        path: "/schemas/{topic}/{version}",
        id: "deleteSchema",
        summary: "Delete a version that no event was published with",
        params: &[TOPIC, VERSION],
        body: None,
        answer: Answer::json("DeletedSchema", "The version is gone"),
        refusals: &[404, 409, 507],
        need: Need::Manage,
        handler: |call| Box::pin(delete(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/schemas/{topic}/check",
        id: "checkSchema",
        summary: "How a schema compares with the topic's versions by the topic's `compat`; nothing is written",
        params: &[Param::path("topic", ParamType::UserTopic, "the topic")],
        body: SCHEMA,
        answer: Answer::json("SchemaCheck", "What was found, also if it does not fit"),
        refusals: &[],
        need: Need::Manage,
        handler: |call| Box::pin(check(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/schemas/{topic}/validate",
        id: "validate",
        summary: "Hold a payload against the topic's schema; nothing is published",
        params: &[
            TOPIC,
            Param::query(
                "version",
                ParamType::Int(1, u32::MAX as i64),
                "the version, the latest if left out",
            ),
        ],
        body: Some(Body { media: Media::Json, schema: "Payload" }),
        answer: Answer::json("Validated", "The payload fits"),
        refusals: &[404, 422],
        need: Need::Any,
        handler: |call| Box::pin(validate(call)),
    },
    Operation {
        verb: Verb::Post,
        path: "/schemas/{topic}/migrate",
        id: "tryUpcasters",
        summary: "Lift every stored event of a topic to the latest version and say what fails; nothing is written",
        params: &[TOPIC],
        body: None,
        answer: Answer::json("Migration", "What lifting gives"),
        refusals: &[404],
        need: Need::Manage,
        handler: |call| Box::pin(migrate(call)),
    },
];

/// A schema version with its text as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    topic: &'a TopicName,
    #[serde(flatten)]
    info: &'a SchemaInfo,
    schema: &'a RawValue,
}

async fn topics(call: &mut Call) -> Reply {
    let mut after: Option<TopicName> = call.args.parse("after")?;
    let limit: usize = call.args.parse("limit")?.unwrap_or(LIMIT_DEFAULT);
    let mut seen = Vec::new();
    // Topics that the client may not see do not count for its page.
    let next = loop {
        let page = call.app.bus.all_schemas(after.as_ref(), LIMIT_DEFAULT);
        let may = |topic: &TopicName| call.may_see(&Subject::Topic(topic.clone()));
        seen.extend(page.topics.into_iter().filter(|entry| may(&entry.topic)));
        if seen.len() > limit {
            seen.truncate(limit);
            break seen.last().map(|entry| entry.topic.clone());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break None,
        }
    };
    match next {
        Some(next) => reply::json(&json!({"topics": seen, "next": next})),
        None => reply::json(&json!({"topics": seen})),
    }
}

async fn versions(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let versions = known_versions(&call.app.bus, &topic).await?;
    reply::json(&json!({"topic": topic, "versions": versions}))
}

/// The versions of a topic; refuses a topic that has none and does not exist.
async fn known_versions(bus: &Bus, topic: &TopicName) -> Result<Vec<SchemaInfo>, Refusal> {
    let versions = bus.schemas(topic);
    if versions.is_empty() {
        bus.topic(topic).await?;
    }
    Ok(versions)
}

async fn register(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let options = RegisterOptions {
        version: call.args.parse("version")?,
        force: call.args.flag("force", false),
        dry_run: call.args.flag("dry_run", false),
    };
    let text = schema(call).await?;
    reply::json(&call.app.bus.register_schema(&topic, text, options).await?)
}

async fn check(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let text = schema(call).await?;
    let compared = call.app.bus.check_schema(&topic, text).await?;
    let verdict = Verdict::worst(compared.iter().map(|compared| compared.report.verdict));
    reply::json(&json!({"topic": topic, "verdict": verdict, "compared": compared}))
}

async fn show(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let which = match call.args.get("version") {
        Some("latest") | None => WhichSchema::Latest,
        Some(_) => WhichSchema::Version(call.args.need("version")?),
    };
    let stored = call.app.bus.schema(&topic, which).await?;
    let schema = RawValue::from_string(stored.schema).map_err(|_| Refusal::internal())?;
    reply::json(&Shown { topic: &topic, info: &stored.info, schema: &schema })
}

async fn delete(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    let version = match call.args.get("version") {
        Some("latest") => call.app.bus.schema(&topic, WhichSchema::Latest).await?.info.version,
        _ => call.args.need("version")?,
    };
    call.app.bus.delete_schema(&topic, version).await?;
    reply::json(&json!({"topic": topic, "version": version, "deleted": true}))
}

async fn validate(call: &mut Call) -> Reply {
    let (topic, version) = (call.topic()?, call.args.parse("version")?);
    let body = call.body().await?;
    let payload =
        str::from_utf8(&body).map_err(|_| Refusal::bad_request("the body is not UTF-8; send JSON"))?;
    let version = call.app.bus.validate(&topic, payload, version).await?;
    reply::json(&json!({"topic": topic, "version": version, "valid": true}))
}

async fn migrate(call: &mut Call) -> Reply {
    let topic = call.topic()?;
    known_versions(&call.app.bus, &topic).await?;
    let mut migration = call.app.bus.migrate_dry_run(&topic).await?;
    // Reasons quote payloads, and a client that may manage the topic may not be allowed to read it.
    if !call.may(&Access::Subscribe(&Subject::Topic(topic.clone()), None)) {
        let hide = |failure: &mut LiftFailure| {
            "the token lacks `subscribe`, so it is not told".clone_into(&mut failure.reason)
        };
        migration.failures.iter_mut().for_each(hide);
    }
    reply::json(&migration)
}

async fn schema(call: &mut Call) -> Result<SchemaText, Refusal> {
    let body = call.body().await?;
    let text = str::from_utf8(&body)
        .map_err(|_| Refusal::bad_request("the body is not UTF-8; send a JSON Schema"))?;
    Ok(SchemaText::parse(text).map_err(BusError::from)?)
}
