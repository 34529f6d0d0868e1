//! A client with `wss` trusts the authorities that it is given.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use promethean_client::{Client, StartFrom};

use super::super::running_server::RunningServer;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/fixtures");

#[tokio::test]
async fn a_listed_certificate_is_accepted_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["self-made.pem", "self-made.key.pem"] {
        std::fs::copy(format!("{FIXTURES}/{file}"), dir.path().join(file)).unwrap();
        std::fs::set_permissions(dir.path().join(file), Permissions::from_mode(0o600)).unwrap();
    }
    let config = "[tls]\ncertificate = \"self-made.pem\"\nkey = \"self-made.key.pem\"\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let url = format!("wss://{}", server.address());
    let pem = |file: &str| std::fs::read(format!("{FIXTURES}/{file}")).unwrap();
    let client = Client::builder(&url).authorities(pem("self-made.pem")).build().unwrap();
    client.publish("t", &7).await.unwrap();
    let mut leases = client.subscribe::<u64>("t", "g").from(StartFrom::Earliest).leases().await.unwrap();
    let lease = leases.next().await.unwrap().unwrap();
    assert_eq!(lease.payload, 7);
    lease.ack().await.unwrap();
    assert_eq!(client.reader().end("t").await.unwrap(), 1, "HTTP trusts it too");
    drop(leases);
    client.close().await.unwrap();
    let other = Client::builder(&url).authorities(pem("first.pem")).build().unwrap();
    let error = other.connect_within(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    assert!(error.message().contains("certificate"), "{error}");
    let error = Client::builder(&url).authorities("no PEM").build().unwrap_err();
    assert_eq!(error.code(), "bad_use");
    other.close().await.unwrap();
}
