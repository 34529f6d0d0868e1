//! `/openapi.json`, made from the table of operations.

mod schemas;

use serde_json::{Map, Value, json};

use super::operation::{Media, Operation, Param, ParamPlace, Times, Verb};
use super::table;

/// The document, OpenAPI 3.1.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for operation in table::operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Value::Object(verbs) = path {
            verbs.insert(operation.verb.as_str().to_ascii_lowercase(), describe(operation));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Promethean",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A durable event bus. HEAD works wherever GET does.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "ticket": {"type": "apiKey", "in": "query", "name": "ticket",
                    "description": "A ticket of `POST /tickets`, for one GET"},
            },
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "description": format!("Access: {}", operation.need.scope()),
        "responses": answers(operation),
        "security": match (operation.is_open(), operation.verb) {
            (true, _) => json!([]),
            (false, Verb::Get) => json!([{}, {"token": []}, {"ticket": []}]),
            (false, _) => json!([{}, {"token": []}]),
        },
    });
    if let Value::Object(fields) = &mut described {
        if !operation.params.is_empty() {
            // Parameters whose names the client chooses cannot be described.
            let named = operation.params.iter().filter(|param| param.place != ParamPlace::Fields);
            fields.insert("parameters".into(), named.map(parameter).collect());
        }
        if let Some(body) = operation.body {
            let content = content(body.media, body.schema);
            fields.insert("requestBody".into(), json!({"required": true, "content": content}));
        }
    }
    described
}

fn parameter(param: &Param) -> Value {
    let place = match param.place {
        ParamPlace::Path => "path",
        ParamPlace::Query | ParamPlace::Fields => "query",
        ParamPlace::Header => "header",
    };
    let (required, schema) = match param.times {
        Times::Once => (true, param.kind.schema()),
        Times::AtMostOnce => (false, param.kind.schema()),
        Times::Many(least, most) => {
            let items = param.kind.schema();
            (least > 0, json!({"type": "array", "items": items, "minItems": least.max(1), "maxItems": most}))
        }
    };
    json!({"name": param.name, "in": place, "required": required, "description": param.about, "schema": schema})
}

/// The answer to success, and every possible refusal.
fn answers(operation: &Operation) -> Value {
    let good = operation.answer;
    let mut media = Map::new();
    for form in good.media {
        if let Value::Object(content) = content(*form, good.schema) {
            media.extend(content);
        }
    }
    let mut answers = Map::new();
    answers.insert("200".into(), json!({"description": good.about, "content": media}));
    let mut refusals = vec![400, 403, 414, 431, 500];
    if !operation.is_open() {
        refusals.extend([401, 429, 503]);
    }
    if operation.body.is_some() {
        refusals.extend([408, 413, 415]);
    }
    refusals.extend(operation.refusals);
    for status in refusals {
        let mut answer = json!({"description": reason(status)});
        // A refusal of the connection itself has no body, and neither has 304.
        if let (Value::Object(fields), true) = (&mut answer, ![304, 431].contains(&status)) {
            fields.insert("content".into(), content(Media::Json, "Refusal"));
        }
        answers.insert(status.to_string(), answer);
    }
    answers.into()
}

fn content(media: Media, schema: &str) -> Value {
    let schema = match media {
        Media::Json => json!({"$ref": format!("#/components/schemas/{schema}")}),
        // OpenAPI 3.1 cannot describe lines of JSON, so they are described as an array.
        Media::Ndjson => {
            let lines = "one JSON object on each line, not an array";
            let items = schema.strip_suffix('s').unwrap_or(schema);
            json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{items}")}, "minItems": 1,
                "description": lines})
        }
        Media::EventStream | Media::Text | Media::Html | Media::JavaScript | Media::Css | Media::Svg => {
            json!({"type": "string"})
        }
        // In OpenAPI 3.1 bytes have no schema.
        Media::Bytes => json!({}),
    };
    let name = media.as_str().split(';').next().unwrap_or_default();
    json!({name: {"schema": schema}})
}

fn reason(status: u16) -> &'static str {
    match status {
        304 => "It is as the client knows it",
        400 => "Something in the request is wrong; the message says what to change",
        401 => "A token is needed, or is not valid",
        403 => "The token may not, or the page's origin may not",
        404 => "Unknown topic, group, event, mark, document or backup",
        408 => "The body did not arrive in time",
        409 => "Conflicts with what is there",
        410 => "What is asked for is no longer kept",
        413 => "Too large",
        414 => "Path and query are too long",
        415 => "The body's type or encoding is not understood",
        429 => "Too fast; try again when `retry-after` says",
        431 => "The headers are too large",
        503 => "The server stops or cannot work now",
        507 => "The storage is full",
        _ => "The server failed; its log says why",
    }
}
