//! Signed tokens, valid and invalid.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use promethean_gateway::auth::jwt::{JwksUrl, JwtError, KeySource, sign};
use promethean_gateway::auth::{Access, AuthError, Jwt, JwtOptions, Secret};
use serde_json::{Value, json};

use super::*;

pub(super) fn options(keys: KeySource) -> JwtOptions {
    JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 10_000 }
}

pub(super) fn by_secret() -> Jwt {
    Jwt::new(options(KeySource::Secret(SECRET.into())), clock()).unwrap()
}

fn by_pem(pem: &str) -> Jwt {
    Jwt::new(options(KeySource::Pem(pem.into())), clock()).unwrap()
}

fn by_jwks() -> Jwt {
    Jwt::new(options(KeySource::Jwks(jwks().to_string().into())), clock()).unwrap()
}

pub(super) fn signed(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, hs256(SECRET.as_bytes()))
}

#[track_caller]
pub(super) fn refused(jwt: &Jwt, token: &str) -> AuthError {
    let error = ask(jwt, token).unwrap_err();
    assert_eq!(error.code(), "bad_token");
    error
}

#[test]
fn a_good_token_says_who_and_what_and_until_when() {
    let known = ask(&by_secret(), &signed(&claims())).unwrap();
    assert_eq!((&*known.name, known.expires_ms), ("billing", Some((NOW + 3600) * 1000)));
    assert!(known.may(&Access::Publish(&"orders.placed".parse().unwrap())));
    assert!(!known.may(&Access::Publish(&"other".parse().unwrap())));
}

#[test]
fn each_algorithm_works_with_its_key() {
    let by = |alg: &str| json!({"alg": alg});
    assert!(ask(&by_pem(RSA_PUBLIC), &token(&by("RS256"), &claims(), rs256())).is_ok());
    assert!(ask(&by_pem(P256_PUBLIC), &token(&by("ES256"), &claims(), es256())).is_ok());
    assert!(ask(&by_pem(ED25519_PUBLIC), &token(&by("EdDSA"), &claims(), eddsa())).is_ok());
    // One file can hold the current key and its successor.
    let all = by_pem(&[RSA_PUBLIC, P256_PUBLIC, ED25519_PUBLIC].concat());
    assert!(ask(&all, &token(&by("RS256"), &claims(), rs256())).is_ok());
    assert!(ask(&all, &token(&by("ES256"), &claims(), es256())).is_ok());
    assert!(ask(&all, &token(&by("EdDSA"), &claims(), eddsa())).is_ok());
}

#[test]
fn keys_of_a_set_are_found_by_name() {
    let jwt = by_jwks();
    let by = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    assert!(ask(&jwt, &token(&by("RS256", "rsa"), &claims(), rs256())).is_ok());
    assert!(ask(&jwt, &token(&by("ES256", "p256"), &claims(), es256())).is_ok());
    assert!(ask(&jwt, &token(&by("EdDSA", "ed"), &claims(), eddsa())).is_ok());
    assert!(ask(&jwt, &token(&json!({"alg": "ES256"}), &claims(), es256())).is_ok(), "there is only one");
    // The right signature under a wrong name, and names of keys for other purposes.
    for kid in ["p256", "ed", "other", "enc", "rs512", "", "RSA"] {
        let error = refused(&jwt, &token(&by("RS256", kid), &claims(), rs256()));
        assert_eq!(error, AuthError::BadToken("unknown key"), "{kid}");
    }
}

#[test]
fn names_of_keys_are_no_paths_and_no_addresses() {
    let jwt = by_jwks();
    for kid in [
        "../../../../dev/null",
        "/etc/passwd",
        "http://127.0.0.1:1/jwks",
        "file:///dev/null",
        "rsa\0",
        "' OR 1=1 --",
        "%2e%2e%2f",
        "rsa/../rsa",
        &"k".repeat(5000),
    ] {
        let header = json!({"alg": "RS256", "kid": kid});
        assert_eq!(
            refused(&jwt, &token(&header, &claims(), rs256())),
            AuthError::BadToken("unknown key"),
            "{kid:.30}"
        );
        // Such a file, read as a secret, would be empty.
        refused(&jwt, &token(&json!({"alg": "HS256", "kid": kid}), &claims(), hs256(b"")));
    }
}

#[test]
fn nothing_is_accepted_without_a_signature() {
    let jwts = [by_secret(), by_pem(RSA_PUBLIC), by_jwks()];
    for alg in ["none", "None", "NONE", "nOnE", "", " HS256", "HS256 ", "hs256", "rs256"] {
        for jwt in &jwts {
            let header = json!({"alg": alg});
            let error = refused(jwt, &token(&header, &claims(), |_| vec![]));
            assert_eq!(error, AuthError::BadToken("algorithm not accepted"), "{alg}");
            refused(jwt, &token(&header, &claims(), hs256(SECRET.as_bytes())));
            refused(jwt, &token(&header, &claims(), rs256()));
        }
    }
    for jwt in &jwts {
        for alg in ["HS256", "RS256", "ES256", "EdDSA"] {
            refused(jwt, &token(&json!({"alg": alg}), &claims(), |_| vec![]));
            refused(jwt, &token(&json!({"alg": alg}), &claims(), |_| vec![0; 64]));
            refused(jwt, &token(&json!({"alg": alg}), &claims(), |_| vec![0; 256]));
        }
    }
}

#[test]
fn a_public_key_is_no_secret() {
    // The public key in every form that an attacker could use as a secret.
    let forms =
        |pem: &str| [pem.into(), pem.trim_end().into(), der(pem), BASE64URL_NOPAD.encode(&der(pem)).into()];
    for pem in [RSA_PUBLIC, P256_PUBLIC, ED25519_PUBLIC] {
        for form in forms(pem) {
            for jwt in [by_pem(pem), by_jwks()] {
                let error = refused(&jwt, &token(&json!({"alg": "HS256"}), &claims(), hs256(&form)));
                assert_eq!(error, AuthError::BadToken("unknown key"));
                let named = json!({"alg": "HS256", "kid": "rsa"});
                refused(&jwt, &token(&named, &claims(), hs256(&form)));
            }
        }
    }
}

#[test]
fn one_key_does_not_serve_for_the_algorithm_of_another() {
    let sign = |alg: &str, kid: &str| {
        let header = json!({"alg": alg, "kid": kid});
        match kid {
            "rsa" => token(&header, &claims(), rs256()),
            "p256" => token(&header, &claims(), es256()),
            _ => token(&header, &claims(), eddsa()),
        }
    };
    let jwt = by_jwks();
    for (kid, own) in [("rsa", "RS256"), ("p256", "ES256"), ("ed", "EdDSA")] {
        for alg in ["HS256", "RS256", "ES256", "EdDSA", "RS384", "RS512", "PS256", "ES384", "HS512"] {
            assert_eq!(ask(&jwt, &sign(alg, kid)).is_ok(), alg == own, "{kid} {alg}");
        }
    }
    refused(&by_secret(), &token(&json!({"alg": "RS256"}), &claims(), rs256()));
}

#[test]
fn forged_and_damaged_tokens_are_refused() {
    let jwt = by_secret();
    let good = signed(&claims());
    assert!(ask(&jwt, &good).is_ok());
    let parts: Vec<&str> = good.split('.').collect();
    let other = part(&claims_with(&json!({"scope": "admin"})));
    let secret =
        token(&json!({"alg": "HS256"}), &claims(), hs256(b"another secret, just as long as the first."));
    let bad = [
        format!("{}.{other}.{}", parts[0], parts[2]),
        secret,
        format!("{}.{}", parts[0], parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!(".{}.{}", parts[1], parts[2]),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.x"),
        format!("{}.{}.{}.{}.{}", parts[0], parts[0], parts[0], parts[1], parts[2]),
        format!("{good}="),
        format!("{good} "),
        format!("Bearer {good}"),
        good.to_uppercase(),
        "..".into(),
        "...".into(),
        ".".into(),
        "x".into(),
        "\0.\0.\0".into(),
        "\u{e9}.\u{e9}.\u{e9}".into(),
        format!("{}.{}.{}", part(&json!([])), parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], "A".repeat(100_000)),
    ];
    for token in &bad {
        refused(&jwt, token);
    }
    // Every character matters, also the unused bits at the end of base64.
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        refused(&jwt, &changed);
    }
    let mut last = good.clone();
    let end = last.pop().unwrap();
    for next in ('A'..='Z').chain('a'..='z').chain('0'..='9').filter(|next| *next != end) {
        refused(&jwt, &format!("{last}{next}"));
    }
}

#[test]
fn headers_that_ask_for_more_are_refused_or_not_followed() {
    let jwt = by_secret();
    let with = |changes: Value| {
        let mut header = json!({"alg": "HS256"});
        for (name, value) in changes.as_object().unwrap() {
            header[name] = value.clone();
        }
        token(&header, &claims(), hs256(SECRET.as_bytes()))
    };
    for crit in [json!(["exp"]), json!(["b64"]), json!([]), json!(null), json!("x"), json!({})] {
        assert_eq!(
            refused(&jwt, &with(json!({ "crit": crit }))),
            AuthError::BadToken("`crit` names an extension")
        );
    }
    for typ in ["logout+jwt", "secevent+jwt", "dpop+jwt", "JWE", ""] {
        refused(&jwt, &with(json!({ "typ": typ })));
    }
    for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        assert!(ask(&jwt, &with(json!({ "typ": typ }))).is_ok(), "{typ}");
    }
    for wrong in
        [json!({"kid": 1}), json!({"kid": null}), json!({"kid": ["a"]}), json!({"typ": 1}), json!({"alg": 1})]
    {
        refused(&jwt, &with(wrong));
    }
    // A key inside the token is ignored: signed with the server's key the token is valid, signed with its own
    // it is not.
    let own = json!({"jwk": {"kty": "oct", "k": BASE64URL_NOPAD.encode(&[7; 64])}, "jku": "http://127.0.0.1:1/",
        "x5u": "http://127.0.0.1:1/", "x5c": ["AA"]});
    assert!(ask(&jwt, &with(own.clone())).is_ok());
    let mut header = own;
    header["alg"] = json!("HS256");
    refused(&jwt, &token(&header, &claims(), hs256(&[7; 64])));
    // The same name twice is refused, because readers differ in which value counts.
    let twice = format!("{}.{}", BASE64URL_NOPAD.encode(br#"{"alg":"none","alg":"HS256"}"#), part(&claims()));
    let signature = BASE64URL_NOPAD.encode(&hs256(SECRET.as_bytes())(twice.as_bytes()));
    refused(&jwt, &format!("{twice}.{signature}"));
}

#[test]
fn keys_that_cannot_work_are_refused_at_the_start() {
    let new = |keys: KeySource| Jwt::new(options(keys), clock()).unwrap_err();
    assert_eq!(new(KeySource::Secret("short".into())), JwtError::ShortSecret { bytes: 5 });
    for pem in [
        "",
        "nonsense",
        RSA_KEY,
        SECRET,
        include_str!("../../fixtures/p384.pub.pem"),
        include_str!("../../fixtures/rsa1024.pub.pem"),
        include_str!("../../fixtures/first.pem"),
        &RSA_PUBLIC[..200],
        &RSA_PUBLIC.replace("MII", "MIA"),
    ] {
        let error = new(KeySource::Pem(pem.into()));
        assert!(matches!(error, JwtError::Pem(_)), "{error}");
        assert!(!error.to_string().contains("MII"));
    }
    for set in ["", "[]", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}"#] {
        assert!(matches!(new(KeySource::Jwks(set.into())), JwtError::Jwks(_)), "{set}");
    }
    for url in [
        "",
        "x",
        "/jwks",
        "ftp://id.example/",
        "http://id.example/jwks",
        "https://user:pw@id.example/",
        "http://localhost.evil.com/",
        "file:///etc/passwd",
    ] {
        let error = new(KeySource::Url(JwksUrl::new(url)));
        assert!(matches!(error, JwtError::Url(_)), "{url}: {error}");
        assert!(!error.to_string().contains("pw@"));
    }
}

#[test]
fn a_secret_may_be_in_a_set_of_a_file() {
    let set = json!({"keys": [{"kty": "oct", "kid": "s", "k": BASE64URL_NOPAD.encode(SECRET.as_bytes())}]});
    let jwt = Jwt::new(options(KeySource::Jwks(set.to_string().into())), clock()).unwrap();
    assert!(
        ask(&jwt, &token(&json!({"alg": "HS256", "kid": "s"}), &claims(), hs256(SECRET.as_bytes()))).is_ok()
    );
}

#[test]
fn a_token_without_a_name_is_not_tried_with_many_keys() {
    let key = &jwks()["keys"][1];
    let keys: Vec<Value> = (0..5)
        .map(|n| {
            let mut key = key.clone();
            key["kid"] = json!(format!("k{n}"));
            key
        })
        .collect();
    let jwt = Jwt::new(options(KeySource::Jwks(json!({"keys": keys}).to_string().into())), clock()).unwrap();
    refused(&jwt, &token(&json!({"alg": "ES256"}), &claims(), es256()));
    assert!(ask(&jwt, &token(&json!({"alg": "ES256", "kid": "k3"}), &claims(), es256())).is_ok());
}

#[test]
fn tokens_we_make_are_tokens_we_accept() {
    let made = sign::hs256(&Secret::from(SECRET), &claims()).unwrap();
    assert_eq!(&*ask(&by_secret(), made.reveal_text().unwrap()).unwrap().name, "billing");
    assert!(sign::hs256(&Secret::from("short"), &claims()).is_err());
}

/// The examples of RFC 7515, appendix A: made by others.
#[test]
fn the_examples_of_the_standard_verify() {
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let hmac = json!({"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"});
    let rsa = json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"});
    let ec = json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
    let table = [
        (hmac, "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
        (
            rsa,
            "eyJhbGciOiJSUzI1NiJ9",
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            ec,
            "eyJhbGciOiJFUzI1NiJ9",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ];
    for (key, header, signature) in table {
        let clock = Arc::new(promethean_testkit::ManualClock::new(1_300_819_379_000));
        let keys = KeySource::Jwks(json!({"keys": [key]}).to_string().into());
        let jwt = Jwt::new(options(keys), Arc::clone(&clock) as _).unwrap();
        let token = format!("{header}.{CLAIMS}.{signature}");
        assert_eq!(&*ask(&jwt, &token).unwrap().name, "unnamed", "{header}");
        clock.advance(1000);
        assert_eq!(refused(&jwt, &token), AuthError::BadToken("expired"), "{header}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_is_a_token_by_chance(text in ".{0,200}", parts in proptest::collection::vec(".{0,60}", 1..5)) {
        let encoded: Vec<String> = parts.iter().map(|part| BASE64URL_NOPAD.encode(part.as_bytes())).collect();
        let header = part(&json!({"alg": "HS256"}));
        for token in [text, encoded.join("."), format!("{header}.{}", encoded.join("."))] {
            let error = ask(&by_secret(), &token).unwrap_err();
            proptest::prop_assert!(matches!(error, AuthError::BadToken(_) | AuthError::Missing));
        }
    }
}
