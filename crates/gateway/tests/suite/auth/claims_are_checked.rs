//! The claims of signed tokens.

use std::sync::Arc;

use promethean_gateway::auth::jwt::{JwtError, KeySource};
use promethean_gateway::auth::{Access, AuthError, Jwt, JwtOptions};
use serde_json::{Value, json};

use super::signed_tokens_are_verified::{by_secret, options, refused, signed};
use super::*;

#[test]
fn times_are_kept_exactly() {
    let jwt = by_secret();
    let check = |changes: Value| ask(&jwt, &signed(&claims_with(&changes)));
    assert_eq!(check(json!({"exp": NOW})).unwrap_err(), AuthError::BadToken("expired"));
    assert_eq!(check(json!({"exp": 0})).unwrap_err(), AuthError::BadToken("expired"));
    assert_eq!(check(json!({"exp": -1})).unwrap_err(), AuthError::BadToken("expired"));
    assert_eq!(check(json!({"exp": NOW + 1})).unwrap().expires_ms, Some(NOW_MS + 1000));
    assert_eq!(check(json!({"exp": NOW as f64 + 0.5})).unwrap().expires_ms, Some(NOW_MS + 500));
    assert_eq!(check(json!({"exp": 1e300})).unwrap().expires_ms, Some(i64::MAX));
    assert_eq!(check(json!({"nbf": NOW + 11})).unwrap_err(), AuthError::BadToken("not valid yet"));
    for nbf in [NOW + 10, NOW, 0] {
        assert!(check(json!({ "nbf": nbf })).is_ok(), "{nbf}");
    }
    assert!(check(json!({"nbf": 1e300})).is_err());
    let options = JwtOptions { leeway_ms: 30_001, ..options(KeySource::Secret(SECRET.into())) };
    assert_eq!(Jwt::new(options, clock()).unwrap_err(), JwtError::Leeway { given_ms: 30_001 });
}

#[test]
fn an_identity_ends_with_its_token() {
    let clock = clock();
    let jwt = Jwt::new(options(KeySource::Secret(SECRET.into())), Arc::clone(&clock) as _).unwrap();
    let token = signed(&claims());
    clock.advance(3_599_999);
    assert!(ask(&jwt, &token).is_ok());
    clock.advance(1);
    assert_eq!(refused(&jwt, &token), AuthError::BadToken("expired"));
}

#[test]
fn claims_of_a_wrong_type_and_a_missing_end_are_refused() {
    let jwt = by_secret();
    let wrong = AuthError::BadToken("claims missing or of a wrong type");
    assert_eq!(refused(&jwt, &signed(&claims_with(&json!({"exp": null})))), wrong, "`exp` is missing");
    for (name, values) in [
        ("exp", vec![json!("1900000000"), json!(true), json!([1]), json!({}), json!(null)]),
        ("nbf", vec![json!("0"), json!(false), json!(null)]),
        ("sub", vec![json!(1), json!(null), json!(["a"])]),
        ("aud", vec![json!(1), json!([1]), json!({}), json!(null)]),
        ("iss", vec![json!(1), json!(["a"]), json!(null)]),
        ("scope", vec![json!(["admin"]), json!(1), json!(null)]),
        ("scopes", vec![json!({"admin": true}), json!([["admin"]]), json!(null)]),
    ] {
        for value in values {
            let mut claims = claims();
            claims[name] = value.clone();
            assert_eq!(refused(&jwt, &signed(&claims)), wrong, "{name}: {value}");
        }
    }
    for claims in [json!([]), json!("x"), json!(null), json!(1)] {
        assert_eq!(refused(&jwt, &signed(&claims)), wrong, "{claims}");
    }
    for sub in ["", "a\nb", "a\u{1b}[0m", &"x".repeat(257)] {
        refused(&jwt, &signed(&claims_with(&json!({ "sub": sub }))));
    }
    assert_eq!(&*ask(&jwt, &signed(&claims_with(&json!({"sub": null})))).unwrap().name, "unnamed");
}

#[test]
fn issuer_and_audience_count_when_they_are_configured() {
    let audience = vec!["bus".to_owned(), "bus2".to_owned()];
    let issuer = Some("https://id.example".to_owned());
    let strict = JwtOptions { issuer, audience, ..options(KeySource::Secret(SECRET.into())) };
    let jwt = Jwt::new(strict, clock()).unwrap();
    let check = |iss: Value, aud: Value| ask(&jwt, &signed(&claims_with(&json!({"iss": iss, "aud": aud}))));
    let (iss, other) = (json!("https://id.example"), AuthError::BadToken("for another audience"));
    for aud in [json!("bus"), json!("bus2"), json!(["x", "bus"])] {
        assert!(check(iss.clone(), aud.clone()).is_ok(), "{aud}");
    }
    for aud in
        [json!("BUS"), json!("bu"), json!("bus "), json!(["x"]), json!([]), json!("bus bus2"), json!(null)]
    {
        assert_eq!(check(iss.clone(), aud.clone()).unwrap_err(), other, "{aud}");
    }
    for iss in [json!("https://id.example/"), json!("https://evil.example"), json!(null)] {
        assert_eq!(check(iss, json!("bus")).unwrap_err(), AuthError::BadToken("of another issuer"));
    }
}

#[test]
fn scopes_come_in_three_forms_and_add_up() {
    let may = |claims: Value, topic: &str| {
        let known = ask(&by_secret(), &signed(&claims_with(&claims))).unwrap();
        known.may(&Access::Publish(&topic.parse().unwrap()))
    };
    assert!(may(json!({"scope": "openid publish:a"}), "a"));
    assert!(may(json!({"scope": null, "scopes": ["publish:a"]}), "a"));
    assert!(may(json!({"scope": null, "scopes": "publish:x publish:a"}), "a"));
    let rule = |effect: &str| json!([{"effect": effect, "action": "publish", "topics": ["a"]}]);
    assert!(may(json!({"scope": null, "policy": rule("allow")}), "a"));
    assert!(may(json!({"scope": null, "policy": {"rules": rule("allow")}}), "a"));
    assert!(!may(json!({"scope": "publish:a", "policy": rule("deny")}), "a"));
    assert!(!may(json!({"scope": "publish:a !publish:a"}), "a"));
    assert!(!may(json!({"scope": null}), "a"), "no scopes, no rights");
    assert!(!may(json!({"scope": "publish publish: admin2 ADMIN"}), "a"));
    for bad in [
        json!({"scope": "publish:a !openid"}),
        json!({"policy": [{"effect": "deny"}]}),
        json!({"policy": {"effect": "deny"}}),
        json!({"scope": "x ".repeat(1001)}),
    ] {
        refused(&by_secret(), &signed(&claims_with(&bad)));
    }
}
