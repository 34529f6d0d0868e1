//! No instance refutes a verdict of compatible, for random schemas and instances.

use std::cell::RefCell;
use std::collections::BTreeMap;

use promethean_schema::compat::{CompatDirection, Undeclared, Verdict, check};
use promethean_schema::validator::compile;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};

use super::declared_oracle::only_declared;
use super::random_schemas::{instance, mutated, near, schema};

/// Pairs that CI tries; `PROPTEST_CASES` asks for more.
const CASES: u32 = 1_500;
/// Instances that each pair is tried with.
const INSTANCES: usize = 24;

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

#[test]
fn what_is_called_compatible_is_never_refuted() {
    let config = ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() };
    let seen: RefCell<BTreeMap<(bool, &str), u32>> = RefCell::default();
    let pair =
        (schema(), schema(), any::<u64>(), any::<bool>(), prop::collection::vec(instance(), INSTANCES));
    let outcome = TestRunner::new(config).run(&pair, |(base, other, seed, related, instances)| {
        let (old, new) = if related { (base.clone(), mutated(&base, seed)) } else { (base, other) };
        if compile(&old).is_err() || compile(&new).is_err() {
            return Ok(());
        }
        for undeclared in [Undeclared::Any, Undeclared::Absent] {
            for direction in [CompatDirection::Backward, CompatDirection::Forward] {
                let verdict = look(&old, &new, direction, undeclared, &instances, seed)?;
                *seen.borrow_mut().entry((related, verdict)).or_default() += 1;
            }
        }
        Ok(())
    });
    let seen = seen.into_inner();
    println!("(mutated, verdict): {seen:?}");
    outcome.unwrap();
    let count = |verdict| seen.get(&(true, verdict)).copied().unwrap_or(0);
    let (decided, open) = (count("compatible") + count("incompatible"), count("undecidable"));
    let share = f64::from(decided) / f64::from(decided + open);
    println!("decided {:.1} % of the mutated pairs", share * 100.0);
    assert!(share > 0.9, "{share}");
    assert!(count("compatible") > count("undecidable"), "{seen:?}");
}

fn look(
    old: &Value,
    new: &Value,
    direction: CompatDirection,
    undeclared: Undeclared,
    instances: &[Value],
    seed: u64,
) -> Result<&'static str, TestCaseError> {
    let report = check(old, new, direction, undeclared);
    let (writes, reads) = if direction == CompatDirection::Backward { (old, new) } else { (new, old) };
    let (accepts, refuses) = (compile(writes).unwrap(), compile(reads).unwrap());
    for finding in &report.findings {
        if let Some(example) = &finding.example {
            prop_assert!(accepts.is_valid(example) && !refuses.is_valid(example), "{example}\n{old}\n{new}");
        }
        prop_assert_eq!(finding.example.is_some(), finding.verdict == Verdict::Incompatible);
        prop_assert!(!finding.fix.is_empty());
    }
    if report.verdict == Verdict::Compatible {
        let directed = near(writes, seed).into_iter().chain(near(reads, seed));
        for instance in instances.iter().cloned().chain(directed) {
            if accepts.is_valid(&instance) && !refuses.is_valid(&instance) {
                let counts = undeclared == Undeclared::Any || only_declared(writes, &instance);
                prop_assert!(!counts, "{direction}, {undeclared:?}: {instance}\nold {old}\nnew {new}");
            }
        }
    }
    Ok(match report.verdict {
        Verdict::Compatible => "compatible",
        Verdict::Incompatible => "incompatible",
        Verdict::Undecidable => "undecidable",
    })
}

#[test]
fn a_schema_fits_itself() {
    let config =
        ProptestConfig { cases: cases() / 5, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&schema(), |schema| {
            if compile(&schema).is_ok() {
                let report = check(&schema, &schema, CompatDirection::Backward, Undeclared::Any);
                prop_assert_eq!(report.verdict, Verdict::Compatible);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(
        check(&json!({}), &json!(true), CompatDirection::Forward, Undeclared::Any).verdict,
        Verdict::Compatible
    );
}
