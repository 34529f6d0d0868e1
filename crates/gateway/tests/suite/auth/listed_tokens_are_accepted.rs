//! Listed tokens.

use std::collections::HashSet;
use std::sync::Arc;

use promethean_gateway::auth::jwt::KeySource;
use promethean_gateway::auth::static_token::mint;
use promethean_gateway::auth::{
    Access, AuthError, Authenticator, Either, Grants, Jwt, JwtOptions, Quota, Secret, StaticToken,
    StaticTokens, TokenHash,
};
use serde_json::json;

use super::{NOW_MS, SECRET, ask, claims, clock, hs256, token};

fn entry(name: &str, token: &str, scope: &str, expires_ms: Option<i64>) -> StaticToken {
    let grants = Arc::new(Grants::parse(scope.split_whitespace()).unwrap());
    StaticToken { name: name.into(), hash: TokenHash::of(token), grants, expires_ms, quota: Quota::default() }
}

#[test]
fn new_tokens_are_long_random_and_have_the_prefix() {
    let tokens: HashSet<String> =
        (0..100).map(|_| mint().unwrap().reveal_text().unwrap().to_owned()).collect();
    assert_eq!(tokens.len(), 100);
    for token in tokens {
        let random = token.strip_prefix("prom_").unwrap();
        let bytes = data_encoding::BASE64URL_NOPAD.decode(random.as_bytes()).unwrap();
        assert!(bytes.len() * 8 >= 128, "{} bit", bytes.len() * 8);
    }
}

#[test]
fn a_hash_is_sha256_in_hexadecimal() {
    let hash = TokenHash::of("abc").to_string();
    assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(hash.parse::<TokenHash>().unwrap(), TokenHash::of("abc"));
    assert_eq!(hash.to_uppercase().parse::<TokenHash>().unwrap(), TokenHash::of("abc"));
    for text in ["", "abc", "prom_secret", &hash[..63], &format!("{hash}00"), &hash.replace('b', "g")] {
        let error = text.parse::<TokenHash>().unwrap_err().to_string();
        assert!(!error.contains("prom_secret"), "{error}");
    }
}

#[test]
fn each_token_is_its_own_and_every_other_text_is_none() {
    let tokens = (0..50).map(|n| entry(&format!("n{n}"), &format!("prom_{n}"), "publish:a", None)).collect();
    let tokens = StaticTokens::new(tokens, clock());
    for n in 0..50 {
        assert_eq!(&*ask(&tokens, &format!("prom_{n}")).unwrap().name, format!("n{n}"));
    }
    let long = "x".repeat(100_000);
    let hash = TokenHash::of("prom_1").to_string();
    for text in ["prom_", "prom_50", "prom_1 ", " prom_1", "PROM_1", "prom_1\0", &hash, &long] {
        assert_eq!(ask(&tokens, text).unwrap_err().code(), "bad_token", "{text:.20}");
    }
    assert_eq!(ask(&tokens, "").unwrap_err(), AuthError::Missing);
    assert!(!tokens.is_open());
    let none = StaticTokens::new(vec![], clock());
    assert_eq!(ask(&none, "prom_1").unwrap_err().code(), "bad_token");
    assert!(!none.is_open());
}

#[test]
fn a_token_ends_when_it_expires() {
    let clock = clock();
    let entries = vec![entry("n", "t", "publish:a", Some(NOW_MS + 10))];
    let tokens = StaticTokens::new(entries, Arc::clone(&clock) as _);
    assert_eq!(ask(&tokens, "t").unwrap().expires_ms, Some(NOW_MS + 10));
    clock.advance(9);
    assert!(ask(&tokens, "t").is_ok());
    clock.advance(1);
    assert_eq!(ask(&tokens, "t").unwrap_err(), AuthError::BadToken("expired"));
}

#[test]
fn of_two_entries_for_one_token_the_first_counts() {
    let entries = vec![entry("first", "t", "publish:a", None), entry("second", "t", "admin", None)];
    let known = ask(&StaticTokens::new(entries, clock()), "t").unwrap();
    assert_eq!(&*known.name, "first");
    assert!(!known.may(&Access::Admin));
}

#[test]
fn the_token_of_the_command_line_may_do_everything() {
    let tokens = StaticTokens::new(vec![StaticTokens::admin("operator", &Secret::from("devtoken"))], clock());
    let known = ask(&tokens, "devtoken").unwrap();
    assert!(known.may(&Access::Admin) && known.expires_ms.is_none());
    assert!(ask(&tokens, "devtoke").is_err());
}

#[test]
fn listed_and_signed_tokens_work_side_by_side() {
    let keys = KeySource::Secret(SECRET.into());
    let either = Either {
        listed: StaticTokens::new(vec![entry("listed", "prom_t", "admin", None)], clock()),
        signed: Jwt::new(JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 }, clock()).unwrap(),
    };
    assert_eq!(&*ask(&either, "prom_t").unwrap().name, "listed");
    let signed = token(&json!({"alg": "HS256"}), &claims(), hs256(SECRET.as_bytes()));
    assert_eq!(&*ask(&either, &signed).unwrap().name, "billing");
    for text in ["prom_u", "a.b.c", "x", &signed[1..]] {
        assert_eq!(ask(&either, text).unwrap_err().code(), "bad_token", "{text}");
    }
    assert_eq!(ask(&either, "").unwrap_err(), AuthError::Missing);
    assert!(!either.is_open());
}
