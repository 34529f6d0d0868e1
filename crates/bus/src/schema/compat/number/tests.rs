use serde_json::json;

use super::*;

fn exact(value: Value) -> Exact {
    Exact::of_value(&value).unwrap()
}

#[test]
fn numbers_compare_by_value() {
    let ordered = [
        json!(-1e300),
        json!(-3),
        json!(-2.5),
        json!(0),
        json!(0.5),
        json!(1.0),
        json!(1.5),
        json!(2),
        json!(9_007_199_254_740_993_u64),
        json!(u64::MAX),
        json!(1e20),
        json!(1e300),
    ];
    for (one, first) in ordered.iter().enumerate() {
        for (two, second) in ordered.iter().enumerate() {
            let order = exact(first.clone()).compare(exact(second.clone()));
            assert_eq!(order, one.cmp(&two), "{first} and {second}");
        }
    }
    assert!(equal(&json!([1, { "a": 2.0 }]), &json!([1.0, { "a": 2 }])));
    assert!(!equal(&json!(1), &json!("1")));
}

#[test]
fn ends_of_whole_numbers_are_rounded() {
    let end = |at: Value, exclusive| End { at: exact(at), exclusive };
    assert!(end(json!(0.5), false).low_implies(end(json!(1), false), true));
    assert!(!end(json!(0.5), false).low_implies(end(json!(1), false), false));
    assert!(end(json!(0), true).low_implies(end(json!(1), false), true));
    assert!(!end(json!(0), false).low_implies(end(json!(0), true), true));
    assert!(end(json!(3.5), true).high_implies(end(json!(3), false), true));
    assert!(range_is_empty(end(json!(0), true), end(json!(1), true), true));
    assert!(!range_is_empty(end(json!(0), true), end(json!(1), true), false));
}

#[test]
fn steps_divide() {
    assert!(step_implies(exact(json!(6)), exact(json!(3))));
    assert!(step_implies(exact(json!(6.0)), exact(json!(2))));
    assert!(!step_implies(exact(json!(3)), exact(json!(6))));
    assert!(step_implies(exact(json!(0.1)), exact(json!(0.1))));
    assert!(!step_implies(exact(json!(0.2)), exact(json!(0.1))));
}
