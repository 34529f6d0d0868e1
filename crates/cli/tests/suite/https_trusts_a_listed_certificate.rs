//! Commands that talk to a server accept the certificate that `--ca-file` lists, also one that the server made
//! itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::running_server::RunningServer;
use super::{promethean, stderr};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/fixtures");

#[test]
fn a_self_made_certificate_is_accepted_if_it_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["self-made.pem", "self-made.key.pem"] {
        std::fs::copy(format!("{FIXTURES}/{file}"), dir.path().join(file)).unwrap();
        std::fs::set_permissions(dir.path().join(file), Permissions::from_mode(0o600)).unwrap();
    }
    let config = "[tls]\ncertificate = \"self-made.pem\"\nkey = \"self-made.key.pem\"\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let url = format!("https://{}", server.address());
    let list = |ca: &str| promethean(dir.path(), &["schema", "list", "--server", &url, "--ca-file", ca]);
    let done = list("self-made.pem");
    assert!(done.status.success(), "{}", stderr(&done));
    // A certificate of another server does not help, nor does an authority that did not issue it.
    for other in ["first.pem", "ca.pem"] {
        let refused = list(&format!("{FIXTURES}/{other}"));
        assert_eq!(refused.status.code(), Some(3));
        let said = stderr(&refused);
        assert!(said.contains("TLS") && said.contains("--ca-file") && said.contains("certificate"), "{said}");
    }
    server.stop();
}
