//! The configuration sets topics that the server writes itself, also before they exist.

use serde_json::Value;

use super::running_server::RunningServer;
use super::until;

const CONFIG: &str = "[collections.docs]\nhistory = true\n[[changelogs]]\ntopic = \"a.b\"\ncollection = \"docs\"\n\
                      [topics.\"docs.changed\"]\nretention = { age = \"30d\", count = 7 }\ndurability = \"os\"\n";

#[test]
fn a_feed_has_the_retention_of_the_configuration() {
    for store in ["embedded", "memory"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
        let server = RunningServer::start(dir.path(), &["--config", "c.toml", "--store", store]);
        server.ask("POST", "/publish/a.b?key=k", "{\"a\": 1}");
        let topic = until("the feed exists", || {
            let answer = server.answer("GET", "/topics/docs.changed", "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            head.contains(" 200 ").then(|| serde_json::from_str::<Value>(body).unwrap())
        });
        let settings = &topic["settings"];
        assert_eq!(settings["retention"], serde_json::json!({"age": "30d", "count": 7}), "{store}: {topic}");
        assert_eq!(settings["durability"], "os", "{store}: {topic}");
        server.stop();
    }
}
