//! Who may do what, over the wire: every route and every op, by tokens of both kinds.

mod admins_see_the_server;
mod another_token_changes_access;
mod bad_tokens_are_refused;
mod calls;
mod calls_are_audited;
mod every_call_needs_its_scope;
mod quotas_limit_tokens_and_addresses;
mod revoked_tokens_end_connections;
mod rule;
mod tickets_stand_for_tokens;
mod tokens_are_never_shown;

use std::num::NonZeroU32;
use std::sync::Arc;

use promethean_gateway::GatewayOptions;
use promethean_gateway::auth::jwt::{KeySource, sign};
use promethean_gateway::auth::{
    Either, Grants, Jwt, JwtOptions, Quota, StaticToken, StaticTokens, TokenHash,
};
use promethean_gateway::options::FailureLimit;
use promethean_testkit::ManualClock;
use serde_json::json;

use super::auth::SECRET;
use crate::suite::world::{NOW, World};

/// The listed token for these scopes. The token contains them, which is fine only in tests.
fn listed(scopes: &str) -> String {
    format!("prom_{}", data_encoding::BASE64URL_NOPAD.encode(scopes.as_bytes()))
}

/// A signed token for these scopes, valid until so many seconds after the start.
fn signed_until(scopes: &str, seconds: i64) -> String {
    let claims = json!({"sub": "someone", "exp": NOW / 1000 + seconds, "scope": scopes});
    let token = sign::hs256(&SECRET.into(), &claims).unwrap();
    token.reveal_text().unwrap().to_owned()
}

fn signed(scopes: &str) -> String {
    signed_until(scopes, 3600)
}

/// Accepts the listed tokens for these scopes, and signed tokens.
fn authenticator(scopes: &[String]) -> Either {
    let clock = Arc::new(ManualClock::new(NOW));
    let entry = |scopes: &String| StaticToken {
        name: "someone".into(),
        hash: TokenHash::of(&listed(scopes)),
        grants: Arc::new(Grants::parse(scopes.split_whitespace()).unwrap()),
        expires_ms: None,
        quota: Quota::default(),
    };
    let mut entries: Vec<StaticToken> = scopes.iter().map(entry).collect();
    let hash = TokenHash::of(&listed("expired"));
    let grants = Arc::new(Grants::everything());
    entries.push(StaticToken {
        name: "late".into(),
        hash,
        grants,
        expires_ms: Some(NOW),
        quota: Quota::default(),
    });
    let keys = KeySource::Secret(SECRET.into());
    let options = JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 };
    Either { listed: StaticTokens::new(entries, clock.clone()), signed: Jwt::new(options, clock).unwrap() }
}

async fn world(scopes: &[String]) -> World {
    // Tests show more invalid tokens than the default limit allows.
    let auth_failures = FailureLimit { burst: NonZeroU32::MAX, ..FailureLimit::default() };
    let options = GatewayOptions { auth_failures, ..GatewayOptions::default() };
    World::with_auth(options, Arc::new(authenticator(scopes))).await
}
