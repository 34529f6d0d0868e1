//! Verb x scope x resource x kind of token, every cell.

use std::sync::Arc;

use promethean_gateway::auth::jwt::KeySource;
use promethean_gateway::auth::{
    Access, AuthError, Authenticator, Grants, Identity, Jwt, JwtOptions, Open, Quota, StaticToken,
    StaticTokens, TokenHash,
};
use serde_json::json;

use super::{NOW, NOW_MS, SECRET, ask, claims_with, clock, hs256, token};

const VERBS: [&str; 5] = ["publish", "subscribe", "read", "manage", "admin"];
const SCOPES: [&str; 12] = [
    "",
    "publish:orders",
    "subscribe:orders",
    "subscribe:orders@workers",
    "read:orders",
    "manage:orders",
    "publish:**",
    "subscribe:**",
    "read:*",
    "manage:**",
    "admin",
    "admin !publish:orders !subscribe:orders !read:orders !manage:orders",
];
const RESOURCES: [&str; 4] = ["orders", "orders.dlq", "other", "_system"];
const KINDS: [&str; 8] =
    ["static", "jwt", "open", "none", "unknown", "expired static", "expired jwt", "forged jwt"];

/// The expected value of a cell.
fn expected(kind: &str, scope: &str, verb: &str, resource: &str, group: Option<&str>) -> bool {
    match kind {
        "open" => return true,
        "static" | "jwt" => {}
        _ => return false,
    }
    if scope.starts_with("admin !") {
        // The denial covers the topic and, for subscribe and manage, its dead-letter topic.
        let letters_too = verb == "subscribe" || verb == "manage";
        return verb == "admin" || !(resource == "orders" || (resource == "orders.dlq" && letters_too));
    }
    if scope == "admin" {
        return true;
    }
    let Some((granted, object)) = scope.split_once(':') else { return false };
    if granted != verb {
        return false;
    }
    let (object, only) = object.split_once('@').map_or((object, None), |(object, only)| (object, Some(only)));
    if only.is_some() && only != group {
        return false;
    }
    match (object, resource) {
        ("orders", "orders") => true,
        ("orders", "orders.dlq") => verb == "subscribe" || verb == "manage",
        ("orders", _) => false,
        // There are no collections of the system.
        ("*", _) => true,
        ("**", "orders" | "other") => true,
        ("**", "orders.dlq") => verb == "subscribe" || verb == "manage",
        ("**", "_system") => false,
        cell => panic!("{cell:?} has no rule"),
    }
}

fn may(identity: &Identity, verb: &str, resource: &str, group: Option<&str>) -> bool {
    let (subject, topic) = (resource.parse().unwrap(), resource.parse().unwrap());
    let group = group.map(|group| group.parse().unwrap());
    identity.may(&match verb {
        "publish" => Access::Publish(&topic),
        "subscribe" => Access::Subscribe(&subject, group.as_ref()),
        "read" => Access::Read(resource),
        "manage" => Access::Manage(&subject),
        _ => Access::Admin,
    })
}

/// The identity of a token of this kind with these scopes.
fn identify(kind: &str, scope: &str) -> Result<Identity, AuthError> {
    let jwt = || {
        let keys = KeySource::Secret(SECRET.into());
        Jwt::new(JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 }, clock()).unwrap()
    };
    let listed = |expires_ms| {
        let grants = Arc::new(Grants::parse(scope.split_whitespace()).unwrap());
        let entry = StaticToken {
            name: "n".into(),
            hash: TokenHash::of("prom_t"),
            grants,
            expires_ms,
            quota: Quota::default(),
        };
        StaticTokens::new(vec![entry], clock())
    };
    let signed = |exp: i64, secret: &str| {
        let claims = claims_with(&json!({"scope": scope, "exp": exp}));
        token(&json!({"alg": "HS256"}), &claims, hs256(secret.as_bytes()))
    };
    match kind {
        "static" => ask(&listed(Some(NOW_MS + 1)), "prom_t"),
        "expired static" => ask(&listed(Some(NOW_MS)), "prom_t"),
        "unknown" => ask(&listed(None), "prom_u"),
        "none" => ask(&listed(None), ""),
        "jwt" => ask(&jwt(), &signed(NOW + 1, SECRET)),
        "expired jwt" => ask(&jwt(), &signed(NOW, SECRET)),
        "forged jwt" => ask(&jwt(), &signed(NOW + 1, "another secret of the same length, not ours")),
        _ => ask(&Open, "whatever"),
    }
}

#[test]
fn every_cell_of_the_matrix_is_what_the_rules_say() {
    let mut cells = 0;
    let mut allowed = 0;
    for kind in KINDS {
        for scope in SCOPES {
            let identity = identify(kind, scope);
            for verb in VERBS {
                for resource in RESOURCES {
                    for group in [None, Some("workers"), Some("others")] {
                        let is = identity.as_ref().is_ok_and(|known| may(known, verb, resource, group));
                        let should = expected(kind, scope, verb, resource, group);
                        assert_eq!(is, should, "{kind} token, `{scope}`: {verb} {resource} in {group:?}");
                        cells += 1;
                        allowed += u32::from(is);
                    }
                }
            }
        }
    }
    assert_eq!(cells, 8 * 12 * 5 * 4 * 3);
    assert!(allowed > 500 && allowed < cells / 2, "{allowed} of {cells}: a matrix that says little");
}

#[test]
fn a_client_without_a_valid_token_gets_a_stable_code() {
    let code = |kind: &str| identify(kind, "admin").unwrap_err().code();
    assert_eq!(code("none"), "unauthorized");
    for kind in ["unknown", "expired static", "expired jwt", "forged jwt"] {
        assert_eq!(code(kind), "bad_token", "{kind}");
    }
    assert!(Open.is_open());
}
