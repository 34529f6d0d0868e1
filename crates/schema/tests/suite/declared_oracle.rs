//! Whether an instance holds only declared properties, decided without the code under test: the schemas of one choice
//! through the unions must declare all that the instance holds.

use promethean_schema::validator::compile;
use serde_json::{Value, json};

pub(super) fn only_declared(root: &Value, instance: &Value) -> bool {
    // Which schemas of a condition apply depends on the instance; such schemas are tested with `Undeclared::Any` only.
    let text = root.to_string();
    !["\"if\"", "\"dependentSchemas\"", "\"dependencies\""].iter().any(|keyword| text.contains(keyword))
        && holds(root, &[root], instance, 12)
}

fn holds(root: &Value, nodes: &[&Value], value: &Value, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    ways(root, nodes.to_vec(), depth * 4).iter().any(|way| {
        way.iter().all(|node| accepts(root, node, value))
            && match value {
                Value::Object(object) => object.iter().all(|(name, value)| {
                    declares(way, name) && holds(root, &below(way, name), value, depth - 1)
                }),
                Value::Array(items) => items.iter().enumerate().all(|(index, item)| {
                    let nodes: Vec<&Value> =
                        way.iter().filter_map(|node| item_of(root, node, index)).collect();
                    holds(root, &nodes, item, depth - 1)
                }),
                _ => true,
            }
    })
}

/// Each choice through the unions, as the list of schemas that apply then.
fn ways<'a>(root: &'a Value, mut nodes: Vec<&'a Value>, depth: usize) -> Vec<Vec<&'a Value>> {
    let mut done: Vec<&Value> = Vec::new();
    while let Some(node) = nodes.pop() {
        if done.len() > depth {
            return Vec::new();
        }
        let target = node.get("$ref").and_then(Value::as_str).and_then(|at| root.pointer(&at[1..]));
        if seventh(root) && target.is_some() {
            nodes.extend(target);
            continue;
        }
        if done.iter().any(|other| std::ptr::eq(*other, node)) {
            continue;
        }
        nodes.extend(target);
        done.push(node);
        nodes.extend(node.get("allOf").and_then(Value::as_array).into_iter().flatten());
        let mut unions: Vec<Vec<Vec<&Value>>> = Vec::new();
        for keyword in ["anyOf", "oneOf"] {
            if let Some(members) = node.get(keyword).and_then(Value::as_array) {
                unions.push(members.iter().map(|member| vec![member]).collect());
            }
        }
        if !unions.is_empty() {
            let mut all = vec![Vec::new()];
            for union in unions {
                all = all
                    .iter()
                    .flat_map(|some: &Vec<&Value>| {
                        union.iter().map(|more| [some.clone(), more.clone()].concat())
                    })
                    .collect();
            }
            let rest = |choice: &Vec<&'a Value>| {
                let nodes = [nodes.clone(), choice.clone()].concat();
                let mut found = ways(root, nodes, depth.saturating_sub(done.len()));
                found.iter_mut().for_each(|way| way.extend(done.iter().copied()));
                found
            };
            return all.iter().flat_map(rest).take(200).collect();
        }
    }
    vec![done]
}

fn seventh(root: &Value) -> bool {
    root.get("$schema").is_some()
}

fn accepts(root: &Value, node: &Value, value: &Value) -> bool {
    let Some(map) = node.as_object() else { return node == &json!(true) };
    // References need the definitions of the document, and a reference to the root needs the whole root.
    if node.to_string().contains("\"#\"") {
        return !std::ptr::eq(node, root) || compile(root).unwrap().is_valid(value);
    }
    let mut alone = map.clone();
    alone.insert("$defs".into(), root["$defs"].clone());
    if let Some(draft) = root.get("$schema") {
        alone.insert("$schema".into(), draft.clone());
    }
    compile(&Value::Object(alone)).is_ok_and(|alone| alone.is_valid(value))
}

fn declares(way: &[&Value], name: &str) -> bool {
    let has = |node: &Value, keyword: &str| node.get(keyword).is_some_and(|map| map.get(name).is_some());
    let says = |node: &Value, keyword: &str| node.get(keyword).is_some_and(|said| said != &json!(false));
    let open = |node: &&Value| says(node, "additionalProperties") || (says(node, "unevaluatedProperties"));
    let lists =
        |node: &&Value| node.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if !way.iter().any(lists) || way.iter().any(open) {
        return true;
    }
    way.iter().any(|node| {
        has(node, "properties")
            || node
                .get("required")
                .and_then(Value::as_array)
                .is_some_and(|names| names.iter().any(|one| one == name))
            || matching(node, name).next().is_some()
    })
}

fn matching<'a>(node: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let name = json!(name);
    let map = node.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
    map.filter(move |(pattern, _)| {
        compile(&json!({ "pattern": pattern })).is_ok_and(|one| one.is_valid(&name))
    })
    .map(|(_, schema)| schema)
}

fn below<'a>(way: &[&'a Value], name: &str) -> Vec<&'a Value> {
    let mut nodes = Vec::new();
    for node in way {
        let own: Vec<&Value> = node
            .get("properties")
            .and_then(|map| map.get(name))
            .into_iter()
            .chain(matching(node, name))
            .collect();
        if own.is_empty() {
            nodes.extend(node.get("additionalProperties"));
        }
        nodes.extend(own);
    }
    nodes
}

fn item_of<'a>(root: &Value, node: &'a Value, index: usize) -> Option<&'a Value> {
    if seventh(root) {
        return match node.get("items") {
            Some(Value::Array(list)) => list.get(index).or(node.get("additionalItems")),
            other => other,
        };
    }
    node.get("prefixItems").and_then(|list| list.get(index)).or(node.get("items"))
}
