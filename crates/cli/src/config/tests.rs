use std::sync::Arc;

use promethean_gateway::auth::Open;
use promethean_model::{Clock, SystemClock};

use super::*;

const EXAMPLE: &str = include_str!("../../../../examples/promethean.toml");
pub(super) const ENTRY: &str = "[[auth.tokens]]\nname = \"n\"\nscopes = [\"admin\"]\nsha256 = \
    \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

fn read(text: &str) -> Result<Config> {
    parse(text, Path::new("dir"))
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let message = format!("{:#}", read(text).unwrap_err());
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

#[test]
fn the_example_is_valid_and_shows_the_defaults() {
    let config = read(EXAMPLE).unwrap();
    assert_eq!(config.listen, ["127.0.0.1:8090".parse().unwrap()]);
    assert_eq!(config.data, Path::new("dir/promethean-data"));
    assert_eq!(config.file.schemas.as_deref(), Some(Path::new("dir/order-schemas")));
    let settings = config.file.topics.get("orders.placed").unwrap();
    assert_eq!((settings.partitions, settings.max_attempts), (Some(8), 5));
    let options = config.gateway_options();
    assert_eq!(options.allowed_origins, ["https://app.example.com"]);
    assert_eq!(options.publish_rate.unwrap().per_second.get(), 200);
    assert!(options.tls.is_none());
    assert_eq!(config.bus_options().topic_rate.unwrap().burst.get(), 1000);
    // The numbers in the example are the defaults, so both change together.
    let (with, without) = (read(EXAMPLE).unwrap(), read("").unwrap());
    assert_eq!(with.file.limits.events, without.file.limits.events);
    let mut options = with.gateway_options();
    (options.publish_rate, options.delivery_rate) = (None, None);
    options.allowed_origins.clear();
    assert_eq!(options.stored_headers.take().unwrap(), ["content-type", "traceparent", "x-region"]);
    options.quota = without.gateway_options().quota;
    assert_eq!(options.audit.take().unwrap().as_str(), "audit.events");
    assert_eq!(format!("{options:?}"), format!("{:?}", without.gateway_options()));
    let mut options = with.bus_options();
    options.topic_rate = None;
    options.topics.clear();
    assert_eq!(format!("{options:?}"), format!("{:?}", without.bus_options()));
}

#[test]
fn the_example_leaves_no_key_out() {
    // An unknown key is refused with a list of the known keys; the example must have all of them.
    for section in [
        "",
        "[auth]\n",
        "[auth.jwt]\n",
        "[tls]\n",
        "[limits]\n",
        "[limits.events]\n",
        "[limits.auth_failures]\n",
        "[limits.token]\n",
        "[topics.a]\n",
        "[[auth.tokens]]\n",
        "[collections.a]\n",
        "[[projectors]]\n",
        "[[changelogs]]\n",
        "[[compactors]]\n",
    ] {
        let message = format!("{:#}", read(&format!("{section}no_such_key = 1")).unwrap_err());
        let (_, known) = message.split_once("use one of ").unwrap_or_else(|| panic!("{message}"));
        for key in known.split(", ").map(|key| key.trim_matches('`')) {
            let is_there = [format!("{key} = "), format!("[{key}"), format!(".{key}]")]
                .iter()
                .any(|form| EXAMPLE.contains(form));
            assert!(is_there, "{section}{key}");
        }
        // A key in a comment is not parsed with the example.
        let here = EXAMPLE.split_once(section).map_or(EXAMPLE, |(_, after)| after);
        let here = here.lines().take_while(|line| !line.trim_start_matches("# ").starts_with('['));
        let shown = here.filter_map(|line| line.strip_prefix("# ")?.split_once(" = ")).map(|(key, _)| key);
        for key in shown.filter(|key| !key.contains(' ')) {
            assert!(known.contains(&format!("`{key}`")), "{section}{key} is no key");
        }
    }
}

#[test]
fn nothing_needs_to_be_set() {
    let config = read("").unwrap();
    assert_eq!(config.listen, ["127.0.0.1:8090".parse().unwrap()]);
    assert_eq!(config.data, Path::new("promethean-data"));
    assert!(config.authenticator(&clock()).unwrap().is_open());
    assert!(config.bus_options().auto_create && config.gateway_options().tls.is_none());
    assert_eq!(read("listen = \"[::1]:1\"").unwrap().listen.len(), 1);
    let listen = read("listen = [\"localhost:1\", \":2\"]").unwrap().listen;
    assert_eq!(listen, ["127.0.0.1:1".parse().unwrap(), "0.0.0.0:2".parse().unwrap()]);
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    refused(
        "data = \"d\"\nlisen = \"127.0.0.1:1\"",
        &["line 2: `lisen` is not known here; use one of `listen`"],
    );
    refused("\n\n[limits]\nconections = 1", &["line 4: `conections` is not known here", "`connections`"]);
    refused("[auth.jwt]\nsecret_fil = \"x\"", &["line 2: `secret_fil` is not known here"]);
    refused("[topics.\"a.b\"]\npartition = 1", &["line 2: `partition` is not known here"]);
    refused("[topics.a.retention]\ndays = 1", &["line 2: `days` is not known here"]);
    refused(
        "[limits.publish_rate]\nper_second = 1\nburst = 1\nper_minute = 2",
        &["line 4: `per_minute` is not known here"],
    );
    refused(&format!("{ENTRY}scope = []"), &["line 5: `scope` is not known here"]);
    refused("[nonsense]", &["line 1: `nonsense` is not known here"]);
    refused("a = \n", &["line 1"]);
    refused("data = \"a\"\ndata = \"b\"", &["line 2: duplicate key"]);
}

#[test]
fn wrong_values_are_refused_with_a_remedy() {
    refused("listen = \"localhost\"", &["line 1", "`localhost` is not an address", "localhost:8090"]);
    refused("listen = 8090", &["line 1: the number 8090 was given; give a text, or a list of texts"]);
    refused("[limits.events]\ntags_max = \"5\"", &["line 2: a text was given; give a whole number from 0"]);
    refused("limits = 5", &["line 1: the number 5 was given; give a table"]);
    refused("[topics.a]\nschema = \"on\"", &["line 2: `on` is not possible here; use one of `optional`"]);
    refused("listen = []", &["`listen` names no address"]);
    refused(
        "durability = \"majority\"",
        &["`durability`", "does not offer `majority`", "use `fsync` or `os`"],
    );
    refused("allowed_origins = [\"*\"]", &["`allowed_origins`", "`*` is not an origin"]);
    refused("[limits]\nconnections = 0", &["line 2", "a whole number from 1"]);
    refused("stored_headers = [\"x region\"]", &["`stored_headers`", "`x region`", "not the name"]);
    refused("[limits]\nreceiving_bytes = 1000", &["`receiving_bytes` is 1000", "16777216"]);
    refused("[limits.events]\nmessage_bytes_max = 100_000_000", &["`token_receiving_bytes`", "100000000"]);
    refused("[limits]\nping_every = \"0s\"", &["line 2", "give at least `1ms`"]);
    refused("[limits]\nping_every = \"5\"", &["line 2", "not a length of time"]);
    refused("[limits.publish_rate]\nper_second = 0\nburst = 1", &["line 2"]);
    refused("[limits.events]\nkey_bytes_max = 100000", &["[limits.events]", "key_bytes_max"]);
    refused("[topics.\"A\"]", &["topic name", "use only"]);
    refused("[topics.\"_a\"]", &["[topics.\"_a\"]", "kept for the system"]);
    refused("[topics.a]\npartitions = 0", &["[topics.\"a\"]", "give a number from 1 to 4096"]);
    refused("[audit]\ntopic = \"_audit\"", &["[audit]", "kept for"]);
    refused("[audit]\ntopic = \"a.dlq\"", &["[audit]", "kept for"]);
    refused("[audit]", &["line 1: `topic` is missing"]);
    refused("[auth]", &["[auth] accepts no client"]);
    refused("[auth]\ntokens = []", &["[auth] accepts no client"]);
    refused("[auth.jwt]", &["[auth.jwt]", "give one of `secret`"]);
    refused("[auth.jwt]\njwks_url = \"https://a\"\nsecret = \"x\"", &["and only one"]);
    refused("[auth.jwt]\nsecret_file = \"none\"", &["cannot read `dir/none`"]);
    refused("[tls]\nkey = \"k\"", &["line 1: `certificate` is missing"]);
    refused(&ENTRY.replace("admin", "publish:A"), &["the token `n`", "scope `publish:A`"]);
    refused(&ENTRY.replace("9f86", "xyz"), &["line 4", "64 hexadecimal digits"]);
    refused(&format!("{ENTRY}{ENTRY}"), &["the token `n` is listed twice"]);
    refused(&format!("{ENTRY}{}", ENTRY.replace("\"n\"", "\"m\"")), &["has the hash of `n`"]);
    refused(&format!("{ENTRY}expires = 2027-01-01"), &["line 5", "needs date, time and offset"]);
}

#[test]
fn topics_that_the_server_writes_may_set_retention_and_durability() {
    let config = read(
        "[topics.\"a.dlq\"]\nretention = { age = \"30d\" }\n[topics.\"a.changed\"]\nretention = { count = 5 }\n\
         [topics.\"a.snapshot\"]\ndurability = \"os\"\n[topics.\"a.v2\"]\nretention = { bytes = 1000 }\n",
    );
    let topics = config.unwrap().file.topics;
    assert_eq!(topics.get("a.dlq").unwrap().retention.age.unwrap().to_string(), "30d");
    assert_eq!(topics.get("a.snapshot").unwrap().durability, Some(promethean_model::Durability::Os));
    for setting in [
        "compacted = true",
        "partitions = 4",
        "dedupe_window = \"1h\"",
        "schema = \"off\"",
        "compat = \"none\"",
        "undeclared = \"absent\"",
        "max_attempts = 3",
    ] {
        let key = setting.split(' ').next().unwrap();
        let remedy = "only `retention` and `durability` can be set for it; leave out";
        refused(
            &format!("[topics.\"a.dlq\"]\n{setting}"),
            &["[topics.\"a.dlq\"]", remedy, &format!("`{key}`")],
        );
    }
}

#[test]
fn durabilities_that_no_store_offers_are_refused() {
    for (topic, word) in [("a", "majority"), ("a.b", "w1"), ("a.dlq", "majority")] {
        let text = format!("[topics.\"{topic}\"]\ndurability = \"{word}\"");
        let remedy = format!("no store of this server offers durability `{word}`; use `fsync` or `os`");
        refused(&text, &[&format!("[topics.\"{topic}\"]"), &remedy]);
    }
}

#[test]
fn keys_that_cannot_work_are_refused_before_serving() {
    for (jwt, reason) in [
        ("secret = \"short\"", "has 5 bytes; use at least 32"),
        ("jwks_url = \"http://id.example.com/\"", "jwks_plain_http"),
        ("secret = \"0123456789012345678901234567890123456789\"\nleeway = \"31s\"", "at most 30000"),
    ] {
        let config = read(&format!("[auth.jwt]\n{jwt}")).unwrap();
        let message = format!("{:#}", config.authenticator(&clock()).unwrap_err());
        assert!(message.contains("[auth.jwt]") && message.contains(reason), "{message}");
    }
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let environment = |pairs: &'static [(&str, &str)]| {
        move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let laid = |pairs, flags: Overrides| -> Result<Config> {
        let mut config = read("listen = \"127.0.0.1:1\"\ndata = \"file\"")?;
        config.apply(Overrides::from_environment(environment(pairs))?)?;
        config.apply(flags)?;
        Ok(config)
    };
    let none = Overrides::default;
    let config = laid(&[], none()).unwrap();
    assert_eq!((config.listen[0].port(), config.data.as_path()), (1, Path::new("dir/file")));
    let pairs: &[(&str, &str)] = &[
        ("PROMETHEAN_LISTEN", "127.0.0.1:2, [::1]:3"),
        ("PROMETHEAN_DATA", "env"),
        ("PROMETHEAN_STORE", "memory"),
        ("PROMETHEAN_TOKEN", "t"),
        ("WS_PORT", "9"),
        ("WS_TOKEN", "u"),
    ];
    let config = laid(pairs, none()).unwrap();
    assert_eq!(config.listen, ["127.0.0.1:2".parse().unwrap(), "[::1]:3".parse().unwrap()]);
    assert_eq!(
        (config.data.as_path(), config.token.as_ref().unwrap().reveal()),
        (Path::new("env"), &b"t"[..])
    );
    let flags = Overrides {
        listen: vec!["127.0.0.1:4".parse().unwrap()],
        data: Some("flag".into()),
        store: Some("embedded".into()),
        token: Some("f".into()),
        insecure: true,
    };
    let config = laid(pairs, flags).unwrap();
    assert_eq!(
        (config.listen[0].port(), config.listen.len(), config.data.as_path()),
        (4, 1, Path::new("flag"))
    );
    assert!(config.token.as_ref().unwrap().reveal() == b"f" && config.insecure);
    assert_eq!(config.store.as_deref(), Some("embedded"));
    assert_eq!(laid(pairs, none()).unwrap().store.as_deref(), Some("memory"));
    // The older names of variables, and empty variables.
    let config = laid(&[("WS_PORT", "9"), ("WS_TOKEN", "u"), ("PROMETHEAN_TOKEN", "")], none()).unwrap();
    assert_eq!(config.listen, ["127.0.0.1:9".parse().unwrap()]);
    assert_eq!(config.token.as_ref().unwrap().reveal(), b"u");
    assert!(laid(&[("WS_TOKEN", "")], none()).unwrap().token.is_none());
    for bad in [&[("WS_PORT", "x")][..], &[("WS_PORT", "99999")], &[("PROMETHEAN_LISTEN", "localhost")]] {
        assert!(laid(bad, none()).is_err(), "{bad:?}");
    }
    let empty = Overrides { token: Some(" ".into()), ..none() };
    assert!(laid(&[], empty).unwrap_err().to_string().contains("the token is empty"));
}

#[test]
fn other_machines_are_served_with_authentication_only() {
    let exposed = ["0.0.0.0:1", "[::]:1", "192.168.0.1:1", "[::ffff:10.0.0.1]:1"];
    let local = ["127.0.0.1:1", "127.3.4.5:1", "[::1]:1", "[::ffff:127.0.0.1]:1"];
    let config = |address: &str| read(&format!("listen = [\"127.0.0.1:1\", \"{address}\"]")).unwrap();
    for address in exposed {
        let mut config = config(address);
        let message = config.check_exposure(&Open).unwrap_err().to_string();
        assert!(message.contains(&*config.listen[1].to_string()) && message.contains("--token"), "{message}");
        config.apply(Overrides { insecure: true, ..Overrides::default() }).unwrap();
        config.check_exposure(&Open).unwrap();
        assert!(config.describe_exposure(&Open).contains("INSECURE"));
    }
    for address in local {
        config(address).check_exposure(&Open).unwrap();
    }
    let mut config = config("0.0.0.0:1");
    config.apply(Overrides { token: Some("t".into()), ..Overrides::default() }).unwrap();
    let auth = config.authenticator(&clock()).unwrap();
    config.check_exposure(&*auth).unwrap();
    let line = config.describe_exposure(&*auth);
    assert!(line.contains("clients with a token") && line.contains("without TLS, so"), "{line}");
}

#[tokio::test]
async fn tokens_of_the_file_and_of_the_flag_are_accepted() {
    let mut config = read(ENTRY).unwrap();
    config.apply(Overrides { token: Some("mine".into()), ..Overrides::default() }).unwrap();
    let auth = config.authenticator(&clock()).unwrap();
    assert_eq!(&*auth.authenticate(Some("test")).await.unwrap().name, "n");
    assert_eq!(&*auth.authenticate(Some("mine")).await.unwrap().name, "operator");
    assert!(auth.authenticate(Some("other")).await.is_err() && auth.authenticate(None).await.is_err());
}

#[test]
fn named_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("tokens.toml"), ENTRY.replace("auth.", "")).unwrap();
    std::fs::write(path("secret"), "0123456789012345678901234567890123456789\r\n").unwrap();
    let text = "[auth]\ntokens_file = \"tokens.toml\"\n[auth.jwt]\nsecret_file = \"secret\"\n";
    std::fs::write(path("c.toml"), text).unwrap();
    assert!(!load(&path("c.toml")).unwrap().authenticator(&clock()).unwrap().is_open());
    std::fs::write(path("tokens.toml"), "tokns = []").unwrap();
    let message = format!("{:#}", load(&path("c.toml")).unwrap_err());
    assert!(
        message.contains("tokens.toml") && message.contains("line 1: `tokns` is not known here"),
        "{message}"
    );
    let message = format!("{:#}", load(&path("none.toml")).unwrap_err());
    assert!(message.contains("cannot read") && message.contains("none.toml"), "{message}");
    std::fs::write(path("c.toml"), [0xff, 0xfe]).unwrap();
    assert!(load(&path("c.toml")).unwrap_err().to_string().contains("is not text"));
}

#[test]
fn no_secret_is_in_messages_or_debug_output() {
    const CANARY: &str = "canary-7f3a9c1e5b2d8046-canary-7f3a9c1e5b2d8046";
    let mut seen = String::new();
    for text in [
        format!("[auth.jwt]\nsecret = \"{CANARY}\""),
        format!("[auth.jwt]\nsecrett = \"{CANARY}\""),
        format!("[auth.jwt]\nsecret = [\"{CANARY}\"]"),
        format!("[auth]\ntokens = \"{CANARY}\""),
        format!("[auth]\njwt = \"{CANARY}\""),
        format!("auth = \"{CANARY}\""),
        format!("[auth.jwt]\nsecret = \"{CANARY}"),
        format!("[auth.jwt]\nsecret = {CANARY}"),
        format!("[auth.jwt]\nleeway = \"{CANARY}\""),
        format!("[[auth.tokens]]\nname = \"n\"\nscopes = []\nsha256 = \"{CANARY}\""),
        format!("[[auth.tokens]]\nname = \"n\"\nscopes = \"{CANARY}\"\nsha256 = \"\""),
    ] {
        match read(&text) {
            Ok(mut config) => {
                config.apply(Overrides { token: Some(CANARY.into()), ..Overrides::default() }).unwrap();
                seen += &format!("{config:#?} {:#?}", config.authenticator(&clock()).unwrap());
            }
            Err(error) => seen += &format!("{error:#} {error:?}"),
        }
    }
    assert!(seen.contains("[redacted]"));
    assert!(!seen.contains("canary"), "{seen}");
}

#[test]
fn the_interval_of_token_checks_can_be_set() {
    let every = |text: &str| read(text).unwrap().gateway_options().auth_check_every_ms;
    assert_eq!(every(""), 5_000);
    assert_eq!(every(&format!("[auth]\ncheck_every = \"1s\"\n{ENTRY}")), 1_000);
}

#[tokio::test]
async fn a_token_has_its_own_limits_or_the_common_ones() {
    let limits = "limits = { max_connections = 2 }\n";
    let config =
        read(&format!("{ENTRY}{limits}[limits.token]\nmax_connections = 9\npublish_per_second = 5")).unwrap();
    let default = config.gateway_options().quota;
    assert_eq!(default.max_connections.unwrap().get(), 9);
    let known = config.authenticator(&clock()).unwrap().authenticate(Some("test")).await.unwrap();
    let quota = known.quota.or(&default);
    assert_eq!((quota.max_connections.unwrap().get(), quota.publish_per_second.unwrap().get()), (2, 5));
    assert!(quota.max_subscriptions.is_none() && quota.publish_bytes_per_second.is_none());
    refused(&format!("{ENTRY}limits = {{ max_connections = 0 }}"), &["line 5", "a whole number from 1"]);
    refused(&format!("{ENTRY}limits = {{ colour = 1 }}"), &["line 5", "`colour` is not known here"]);
    refused("[limits.token]\npublish_per_second = 0", &["line 2", "a whole number from 1"]);
    refused("[limits.auth_failures]\nburst = 0", &["line 2", "a whole number from 1"]);
    let limit =
        read("[limits.auth_failures]\nburst = 3\nevery = \"1m\"").unwrap().gateway_options().auth_failures;
    assert_eq!((limit.burst.get(), limit.every_ms, limit.addresses), (3, 60_000, 10_000));
}

#[test]
fn the_address_of_the_dashboard_can_be_opened() {
    let url = |text: &str, address: &str| read(text).unwrap().dashboard_url(&address.parse().unwrap());
    assert_eq!(url("", "127.0.0.1:8090"), "http://127.0.0.1:8090/");
    assert_eq!(url("", "[::1]:80"), "http://[::1]:80/");
    assert_eq!(url("", "0.0.0.0:8090"), "http://localhost:8090/");
    let tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"";
    assert_eq!(url(tls, "192.0.2.7:443"), "https://192.0.2.7:443/");
}
