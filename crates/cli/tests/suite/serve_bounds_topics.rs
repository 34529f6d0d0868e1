//! `topics_max` of the configuration bounds the topics of a server, in either store.

use super::running_server::RunningServer;

#[test]
fn topics_beyond_topics_max_are_refused() {
    for store in ["embedded", "memory"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("server.toml"), "[limits.events]\ntopics_max = 5\n").unwrap();
        let server = RunningServer::start(dir.path(), &["--config", "server.toml", "--store", store]);
        let answers = (0..8).map(|n| server.answer("POST", &format!("/publish/t{n}"), "{}"));
        let answers: Vec<String> = answers.collect();
        let taken = answers.iter().filter(|answer| answer.contains(" 200 ")).count();
        let last = answers.last().unwrap();
        assert!((1..=5).contains(&taken), "{store}: {answers:?}");
        assert!(last.contains("topics_max"), "{store}: {last}");
        server.stop();
    }
}
