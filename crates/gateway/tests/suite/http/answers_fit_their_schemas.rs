//! Answers fit the schemas in `/openapi.json`.

use serde_json::Value;

use crate::suite::world::World;

/// Checks a value against the few keywords that `/openapi.json` uses.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let form = &root["components"]["schemas"][name.rsplit('/').next().unwrap()];
        return check(root, form, value, at);
    }
    if let Some(kind) = schema["type"].as_str() {
        let right = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "boolean" => value.is_boolean(),
            _ => value.is_null(),
        };
        assert!(right, "{at}: {value} is no {kind}");
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{at}: no {name} in {value}");
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(form) => check(root, form, field, &format!("{at}.{name}")),
            None => assert_ne!(schema["additionalProperties"], false, "{at}: {name} is not described"),
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{at}[{index}]"));
    }
}

#[tokio::test]
async fn answers_have_the_form_that_is_described() {
    let world = World::new().await;
    let document = world.get("/openapi.json").await.json(200);
    world.publish("a?key=k&tags=t&sid=s&partition=1", "{}").await;
    let request = promethean_bus::subscription::Subscribe::new("a".parse().unwrap(), "g".parse().unwrap());
    let member = world.bus.subscribe(request).await.unwrap();
    for (verb, template, path, body) in [
        ("get", "/", "/", ""),
        ("get", "/health", "/health", ""),
        ("get", "/ready", "/ready", ""),
        ("get", "/ops", "/ops", ""),
        ("get", "/whoami", "/whoami", ""),
        ("post", "/tickets", "/tickets", "{\"path\":\"/stream/a?from=earliest\"}"),
        ("get", "/admin/connections", "/admin/connections", ""),
        ("get", "/admin/tokens", "/admin/tokens", ""),
        ("get", "/admin/config", "/admin/config", ""),
        ("get", "/groups", "/groups", ""),
        ("get", "/groups/{group}", "/groups/g?topic=a", ""),
        ("get", "/cursors", "/cursors?topic=a", ""),
        ("get", "/lag", "/lag?topic=a&group=g", ""),
        ("post", "/schemas/{topic}", "/schemas/a", "{\"properties\":{\"n\":{\"type\":\"number\"}}}"),
        ("post", "/schemas/{topic}/check", "/schemas/a/check", "{\"type\":\"string\"}"),
        ("post", "/schemas/{topic}/validate", "/schemas/a/validate", "{}"),
        ("post", "/schemas/{topic}/migrate", "/schemas/a/migrate", ""),
        ("get", "/schemas", "/schemas", ""),
        ("get", "/schemas/{topic}", "/schemas/a", ""),
        ("get", "/schemas/{topic}/{version}", "/schemas/a/latest", ""),
        ("get", "/topics", "/topics", ""),
        ("get", "/topics/{topic}", "/topics/a", ""),
        ("get", "/replay", "/replay?topic=a", ""),
        ("get", "/latest-by-key", "/latest-by-key?topic=a&key=k", ""),
        ("get", "/dlq", "/dlq?topic=a&group=g", ""),
        ("post", "/publish/{topic}", "/publish/a", "1"),
        ("post", "/publish/{topic}/batch", "/publish/a/batch", "{\"payload\":1}"),
        ("post", "/groups/{group}/seek", "/groups/g/seek?topic=a", "{\"to\":\"latest\"}"),
        ("post", "/dlq/drop", "/dlq/drop?topic=a&group=g", "{\"all\":true}"),
        ("put", "/topics/{topic}", "/topics/a", "{\"retention\":{\"age\":\"1d\"}}"),
    ] {
        let answer = world.send(&verb.to_uppercase(), path, body).await.json(200);
        let form =
            &document["paths"][template][verb]["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(form.is_object(), "{template}");
        check(&document, form, &answer, template);
    }
    member.unsubscribe();
    world.stop().await;
}
