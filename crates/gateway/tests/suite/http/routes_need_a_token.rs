use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use promethean_gateway::auth::{AuthError, Authenticator, Grants, Identity};
use promethean_gateway::options::{FailureLimit, GatewayOptions};

use crate::suite::world::{NOW, World};

/// Accepts only `good`, which allows everything until it expires.
#[derive(Debug)]
struct OneToken;

#[async_trait]
impl Authenticator for OneToken {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        match token {
            None => Err(AuthError::Missing),
            Some("good") => {
                Ok(Identity { expires_ms: Some(NOW + 1000), ..Identity::new("good", Grants::everything()) })
            }
            Some("later") => Err(AuthError::Unavailable),
            Some("panic") => panic!("as a bug would"),
            Some(_) => Err(AuthError::BadToken("unknown")),
        }
    }
}

#[tokio::test]
async fn every_route_but_health_and_the_dashboard_needs_a_token() {
    let auth_failures = FailureLimit { burst: NonZeroU32::MAX, ..FailureLimit::default() };
    let options = GatewayOptions { auth_failures, ..GatewayOptions::default() };
    let world = World::with_auth(options, Arc::new(OneToken)).await;
    let mut client = world.http().await;
    let good = [("authorization", "Bearer good")];
    let document = client.send("GET", "/openapi.json", &good, "").await.json(200);
    for (path, verbs) in document["paths"].as_object().unwrap() {
        let path = path.replace("{topic}", "a").replace("{group}", "g").replace("{id}", "x");
        for verb in verbs.as_object().unwrap().keys() {
            let verb = verb.to_uppercase();
            let answer = client.send(&verb, &path, &[], "").await;
            if path.starts_with("/dashboard/") {
                // No file has the name of the parameter.
                answer.refused(404, "not_found");
                continue;
            }
            if matches!(path.as_str(), "/health" | "/ready" | "/dashboard") {
                assert_eq!(answer.status, 200, "{verb} {path}");
                continue;
            }
            answer.refused(401, "unauthorized");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            let bad = [("authorization", "Bearer bad")];
            client.send(&verb, &path, &bad, "").await.refused(401, "bad_token");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn tokens_come_in_one_header_only() {
    let world = World::with_auth(GatewayOptions::default(), Arc::new(OneToken)).await;
    let mut client = world.http().await;
    for value in ["good", "Basic good", "Bearer", "Bearer ", "Bearer good good", "BearerX good"] {
        client.send("GET", "/topics", &[("authorization", value)], "").await.refused(401, "bad_token");
    }
    client.send("GET", "/topics", &[("authorization", "bearer good")], "").await.json(200);
    let two = [("authorization", "Bearer good"), ("authorization", "Bearer good")];
    client.send("GET", "/topics", &two, "").await.refused(401, "bad_token");
    client.send("GET", "/topics?token=good", &[], "").await.refused(401, "unauthorized");
    let later = [("authorization", "Bearer later")];
    client.send("GET", "/topics", &later, "").await.refused(503, "auth_unavailable");
    world.stop().await;
}

#[tokio::test]
async fn a_panic_is_an_answer_and_the_connection_goes_on() {
    let world = World::with_auth(GatewayOptions::default(), Arc::new(OneToken)).await;
    let mut client = world.http().await;
    let panic = [("authorization", "Bearer panic"), ("x-request-id", "find-me")];
    let refused = client.send("POST", "/publish/a", &panic, "1").await.refused(500, "internal");
    assert_eq!(refused["request_id"], "find-me");
    client.send("GET", "/health", &[], "").await.json(200);
    world.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_does() {
    let world = World::with_auth(GatewayOptions::default(), Arc::new(OneToken)).await;
    let mut client = world.http().await;
    let good = [("authorization", "Bearer good")];
    let mut publisher = world.http().await;
    let stream = async { client.send("GET", "/stream/a", &good, "").await };
    let publishing = async {
        // Events published before the stream follows the topic do not reach it; so publish until it has
        // ended.
        for n in 0..u32::MAX {
            if n == 3 {
                world.clock.advance(2000);
            }
            publisher.send("POST", "/publish/a", &good, "1").await.json(200);
        }
    };
    let answer = tokio::select! {
        answer = stream => answer,
        () = publishing => unreachable!(),
    };
    assert_eq!(answer.status, 200);
    assert!(answer.text().matches("data: ").count() <= 3, "{}", answer.text());
    world.stop().await;
}
