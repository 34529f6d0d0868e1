//! A secret must not appear in debug output, errors or logs.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use promethean_gateway::auth::jwt::{JwksUrl, KeySource};
use promethean_gateway::auth::{
    Authenticator, Either, Grants, Jwt, JwtOptions, Open, Quota, Secret, StaticToken, StaticTokens, TokenHash,
};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{ask, claims, clock, hs256, jwks, token};

const CANARY: &str = "canary-7f3a9c1e5b2d8046-canary-7f3a9c1e5b2d8046";

/// Records every log line.
#[derive(Debug, Clone, Default)]
pub(in crate::suite) struct Recorder(pub(in crate::suite) Arc<Mutex<String>>);

impl Visit for Recorder {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn jwt(keys: KeySource) -> Jwt {
    Jwt::new(JwtOptions { keys, issuer: None, audience: vec![], leeway_ms: 0 }, clock()).unwrap()
}

#[test]
fn no_secret_is_in_debug_output_errors_or_logs() {
    let recorder = Recorder::default();
    let seen = Arc::clone(&recorder.0);
    let see = |text: String| seen.lock().unwrap().push_str(&text);
    tracing::subscriber::with_default(recorder, || {
        let secret = Secret::from(CANARY);
        let oct =
            json!({"keys": [{"kty": "oct", "k": data_encoding::BASE64URL_NOPAD.encode(CANARY.as_bytes())}]});
        let url = JwksUrl::new(format!("http://127.0.0.1:9/{CANARY}?token={CANARY}"));
        let sources = [
            KeySource::Secret(secret.clone()),
            KeySource::Jwks(oct.to_string().into()),
            KeySource::Jwks(jwks().to_string().into()),
            // Both are wrong, in ways that a user could write them.
            KeySource::Pem(CANARY.into()),
            KeySource::Url(url.clone()),
        ];
        see(format!("{secret:?} {sources:#?}"));
        let entry = StaticTokens::admin("operator", &secret);
        see(format!("{entry:#?}"));
        let tokens = vec![
            entry,
            StaticToken {
                name: "n".into(),
                hash: TokenHash::of(CANARY),
                grants: Arc::new(Grants::everything()),
                expires_ms: Some(0),
                quota: Quota::default(),
            },
        ];
        let either = Either { listed: StaticTokens::new(tokens, clock()), signed: jwt(sources[0].clone()) };
        let signed = token(&json!({"alg": "HS256"}), &claims(), hs256(CANARY.as_bytes()));
        let forged = format!("{}.{CANARY}", &signed[..signed.rfind('.').unwrap()]);
        let by_url = jwt(KeySource::Url(url));
        let others = [jwt(sources[1].clone()), jwt(sources[2].clone()), by_url];
        let mut all: Vec<&dyn Authenticator> = vec![&either, &Open];
        all.extend(others.iter().map(|jwt| jwt as &dyn Authenticator));
        let wrong = format!("{CANARY}.{CANARY}.{CANARY}");
        for auth in all {
            see(format!("{auth:#?}"));
            for token in [CANARY, &signed, &forged, &wrong, &token_by_rsa()] {
                let answer = ask(auth, token);
                see(format!("{answer:#?}"));
                if let Err(error) = answer {
                    see(error.to_string());
                }
            }
        }
        for short in [CANARY.get(..31).unwrap(), "x"] {
            let options = JwtOptions {
                keys: KeySource::Secret(short.into()),
                issuer: None,
                audience: vec![],
                leeway_ms: 0,
            };
            see(format!("{0:?} {0}", Jwt::new(options, clock()).unwrap_err()));
        }
        see(format!("{:?}", CANARY.parse::<TokenHash>()));
    });
    let seen = seen.lock().unwrap();
    assert!(seen.contains("[redacted]") && seen.contains("cannot fetch"), "{seen}");
    let hex = data_encoding::HEXLOWER.encode(CANARY.as_bytes());
    let bytes = format!("{:?}", CANARY.as_bytes());
    let hash = TokenHash::of(CANARY).to_string();
    let base64 = data_encoding::BASE64URL_NOPAD.encode(CANARY.as_bytes());
    for form in [&CANARY[..16], &hex[..32], &bytes[1..40], &hash[..16], &base64[..20]] {
        assert!(!seen.contains(form), "{form} in {seen}");
    }
}

/// Makes the authenticator with a URL try to fetch its keys.
fn token_by_rsa() -> String {
    token(&json!({"alg": "RS256", "kid": "x"}), &claims(), |_| vec![0; 256])
}
