//! Scopes and policies, compared with a reference that checks every topic of a small world.

use promethean_delivery::Subject;
use promethean_gateway::auth::{Access, Grants};
use promethean_model::{GroupName, TopicName};
use proptest::prelude::*;
use serde_json::json;

fn grants(scopes: &str) -> Grants {
    Grants::parse(scopes.split_whitespace()).unwrap()
}

fn subscribes(grants: &Grants, subject: &str, group: Option<&str>) -> bool {
    let group: Option<GroupName> = group.map(|group| group.parse().unwrap());
    grants.allow(&Access::Subscribe(&subject.parse().unwrap(), group.as_ref()))
}

fn publishes(grants: &Grants, topic: &str) -> bool {
    grants.allow(&Access::Publish(&topic.parse().unwrap()))
}

fn manages(grants: &Grants, subject: &str) -> bool {
    grants.allow(&Access::Manage(&subject.parse().unwrap()))
}

#[test]
fn a_pattern_must_be_contained_and_not_begin_alike() {
    let one = grants("subscribe:a.*");
    for (asked, allowed) in
        [("a.b", true), ("a.*", true), ("a.**", false), ("a.b.c", false), ("a.b.*", false), ("*.b", false)]
    {
        assert_eq!(subscribes(&one, asked, None), allowed, "{asked}");
    }
    let many = grants("subscribe:a.**");
    for (asked, allowed) in
        [("a.b", true), ("a.*", true), ("a.**", true), ("a", false), ("**", false), ("ab.c", false)]
    {
        assert_eq!(subscribes(&many, asked, None), allowed, "{asked}");
    }
    assert!(!subscribes(&grants("subscribe:a.b subscribe:a.c"), "a.*", None));
}

#[test]
fn a_denial_inside_what_is_asked_for_refuses_all_of_it() {
    let secret = grants("subscribe:a.** !subscribe:a.secret");
    for (asked, allowed) in [
        ("a.open", true),
        ("a.secret", false),
        ("a.secret.dlq", false),
        ("a.**", false),
        ("a.*", false),
        ("a.*.x", true),
        ("a.secret.**", true),
    ] {
        assert_eq!(subscribes(&secret, asked, None), allowed, "{asked}");
    }
    let pattern = grants("admin !subscribe:*.secret.** !publish:a !manage:**");
    for (asked, allowed) in [("a.**", false), ("a.*", true), ("a.b.**", true), ("x.secret.y", false)] {
        assert_eq!(subscribes(&pattern, asked, None), allowed, "{asked}");
    }
    assert!(!publishes(&pattern, "a") && publishes(&pattern, "b") && !manages(&pattern, "b"));
    assert!(pattern.allow(&Access::Admin));
    assert!(!grants("admin !admin").allow(&Access::Admin));
}

#[test]
fn topics_of_the_system_belong_to_what_they_hold() {
    let exact = grants("subscribe:orders.placed manage:orders.placed");
    for topic in ["orders.placed.dlq", "orders.placed.snapshot", "orders.placed.v2", "orders.placed.v2.dlq"] {
        assert!(subscribes(&exact, topic, None) && manages(&exact, topic), "{topic}");
    }
    for topic in ["orders.dlq", "orders.placed.changed", "orders.placed.dlq.more", "dlq", "_audit"] {
        assert!(!subscribes(&exact, topic, None), "{topic}");
    }
    let pattern = grants("subscribe:orders.*");
    assert!(subscribes(&pattern, "orders.placed.dlq", None));
    assert!(!subscribes(&pattern, "orders.dlq", None), "the letters of `orders`, which is not allowed");
    let all = grants("topic:read topic:write");
    assert!(!subscribes(&all, "_audit", None) && !publishes(&all, "_audit"));
    assert!(subscribes(&grants("subscribe:_audit"), "_audit", None));
    let letters = grants("subscribe:orders.placed.dlq");
    assert!(subscribes(&letters, "orders.placed.dlq", None) && !subscribes(&letters, "orders.placed", None));
}

#[test]
fn a_changefeed_goes_with_its_collection() {
    let read = grants("read:hosts");
    assert!(read.allow(&Access::Read("hosts")) && !read.allow(&Access::Read("host")));
    assert!(subscribes(&read, "hosts.changed", None) && subscribes(&read, "hosts.changed", Some("g")));
    assert!(!subscribes(&read, "hosts", None) && !subscribes(&read, "hosts.dlq", None));
    assert!(!subscribes(&grants("subscribe:hosts"), "hosts.changed", None));
    assert!(!subscribes(&grants("topic:read"), "hosts.changed", None));
    assert!(!subscribes(&grants("subscribe:hosts.changed !read:hosts"), "hosts.changed", None));
    let some = grants("read:eu.* !read:eu.secret");
    assert!(some.allow(&Access::Read("eu.hosts")) && !some.allow(&Access::Read("eu.secret")));
    assert!(grants("read:*").allow(&Access::Read("x")) && grants("read:**").allow(&Access::Read("x.y")));
}

#[test]
fn a_group_is_a_name_or_a_prefix() {
    let one = grants("subscribe:a@billing");
    for (group, allowed) in
        [(Some("billing"), true), (Some("billing2"), false), (Some("b"), false), (None, false)]
    {
        assert_eq!(subscribes(&one, "a", group), allowed, "{group:?}");
    }
    let prefix = grants("subscribe:a@billing*");
    for (group, allowed) in
        [(Some("billing"), true), (Some("billing-2"), true), (Some("bill"), false), (None, false)]
    {
        assert_eq!(subscribes(&prefix, "a", group), allowed, "{group:?}");
    }
    let denied = grants("subscribe:a !subscribe:a@audit*");
    assert!(subscribes(&denied, "a", Some("x")) && subscribes(&denied, "a", None));
    assert!(!subscribes(&denied, "a", Some("audit-1")));
    let any = grants("subscribe:a@*");
    assert!(subscribes(&any, "a", Some("x")) && !subscribes(&any, "a", None));
}

#[test]
fn what_is_no_scope_is_refused_with_a_reason() {
    for text in [
        "",
        "!",
        "!!admin",
        "Admin",
        "admin:x",
        "publish",
        "publish:",
        "publish:A",
        "publish:a b",
        "publish:a.b*",
        "publish:**.a",
        "publish:a@g",
        "subscribe:a@",
        "subscribe:a@g@h",
        "subscribe:a@*g",
        "read:",
        "read:a/b",
        "read:a*b",
        "manage:",
        "topic:delete",
        "openid",
        "subscribe:*.dlq",
        "publish:../x",
    ] {
        let error = Grants::parse([text]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("scope `{text}`: ")), "{error}");
    }
    let long = Grants::parse([format!("publish:{}", "a".repeat(500))]).unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
}

#[test]
fn foreign_scopes_allow_nothing_but_foreign_denials_are_refused() {
    let grants = Grants::parse_foreign(["openid", "publish:NO", "publish:a"]).unwrap();
    assert_eq!(grants.scopes(), ["publish:a"]);
    assert!(Grants::parse_foreign(["publish:a", "!openid"]).is_err());
    assert!(Grants::parse_foreign(["!publish:NO"]).is_err());
}

#[test]
fn scopes_print_as_they_were_read() {
    let text = "publish:a.* subscribe:b subscribe:c.**@g* read:x* manage:** admin !publish:a.b !read:y";
    assert_eq!(grants(text).to_string(), text);
    assert_eq!(grants("topic:write topic:read").to_string(), "publish:** subscribe:**");
}

#[test]
fn a_policy_becomes_grants() {
    let policy = json!([
        {"effect": "allow", "action": "publish", "topics": ["heartbeat.*"]},
        {"effect": "allow", "action": "subscribe", "topics": ["process.**", "x"], "groups": ["ui.*", "ops"]},
        {"effect": "deny", "action": "subscribe", "topics": ["process.secret"]}
    ]);
    for policy in [policy.clone(), json!({ "rules": policy })] {
        let grants = Grants::from_policy(&policy).unwrap();
        assert!(publishes(&grants, "heartbeat.received") && !publishes(&grants, "heartbeat"));
        assert!(
            subscribes(&grants, "process.state", Some("ui.web")) && subscribes(&grants, "x", Some("ops"))
        );
        assert!(!subscribes(&grants, "process.state", Some("ui.web.old")), "`*` is one word of a group");
        assert!(!subscribes(&grants, "process.state", Some("other")) && !subscribes(&grants, "x", None));
        assert!(!subscribes(&grants, "process.state", Some("ui")), "and there must be one");
        assert!(!subscribes(&grants, "process.secret", Some("ops")));
        assert!(!subscribes(&grants, "process.**", Some("ops")));
    }
    assert!(!publishes(&Grants::from_policy(&json!([])).unwrap(), "a"), "nothing matching means deny");
}

#[test]
fn a_policy_that_is_not_understood_is_refused_as_a_whole() {
    let rule = |name: &str, value: serde_json::Value| {
        let mut rule = json!({"effect": "allow", "action": "subscribe", "topics": ["a"]});
        rule[name] = value;
        json!([rule])
    };
    for policy in [
        json!(null),
        json!("admin"),
        json!({}),
        json!([{}]),
        json!({"rules": [], "more": 1}),
        rule("effect", json!("ALLOW")),
        rule("action", json!("admin")),
        rule("topics", json!("a")),
        rule("topics", json!(["A"])),
        rule("topics", json!([1])),
        rule("groups", json!([])),
        rule("groups", json!(["a b"])),
        rule("groups", json!(["a.**.b"])),
        rule("groups", json!(["a*"])),
        rule("when", json!("weekdays")),
        json!([{"effect": "allow", "action": "publish", "topics": ["a"], "groups": ["g"]}]),
        rule("topics", json!(vec!["a"; 1001])),
    ] {
        assert!(Grants::from_policy(&policy).is_err(), "{policy}");
    }
}

// The reference: sets of topics, compared one by one. Patterns have at most three words and the world topics
// of four, so a pattern that is contained in the world is contained everywhere.

const WORDS: [&str; 4] = ["a", "b", "c", "dlq"];

fn world() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut longest = vec![String::new()];
    for _ in 0..4 {
        longest = longest
            .iter()
            .flat_map(|start| {
                WORDS.map(|word| if start.is_empty() { word.into() } else { format!("{start}.{word}") })
            })
            .collect();
        all.extend(longest.clone());
    }
    all.extend(["_a".to_owned(), "_a.b".to_owned(), "a._b".to_owned()]);
    all
}

/// Matches by recursion over words; shares nothing with the code under test.
fn means(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], []) => true,
        (["**"], [_, ..]) => true,
        (["*", pattern @ ..], [_, topic @ ..]) => means(pattern, topic),
        ([word, pattern @ ..], [first, topic @ ..]) => word == first && means(pattern, topic),
        _ => false,
    }
}

fn is_of_the_system(topic: &str) -> bool {
    topic.starts_with('_') || topic.ends_with(".dlq")
}

/// The topics of the world that match a subject.
fn set(subject: &str, world: &[String]) -> Vec<String> {
    if !subject.contains('*') {
        return vec![subject.to_owned()];
    }
    let words: Vec<&str> = subject.split('.').collect();
    let is_meant =
        |topic: &&String| !is_of_the_system(topic) && means(&words, &topic.split('.').collect::<Vec<_>>());
    world.iter().filter(is_meant).cloned().collect()
}

/// Whether the rule has this topic, or the topic whose dead letters it holds.
fn holds(rule: &[String], topic: &str) -> bool {
    rule.iter().any(|one| one == topic) || topic.strip_suffix(".dlq").is_some_and(|base| holds(rule, base))
}

fn subject() -> impl Strategy<Value = String> {
    let words = proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("*"), Just("dlq")], 0..3);
    let last = prop_oneof![3 => Just("a"), 3 => Just("b"), 2 => Just("*"), 3 => Just("**"), 1 => Just("dlq")];
    (words, last)
        .prop_map(|(mut words, last)| {
            words.push(last);
            words.join(".")
        })
        .prop_filter("no pattern", |text| text.parse::<Subject>().is_ok())
}

#[derive(Debug, Clone)]
struct Scope {
    denies: bool,
    verb: &'static str,
    subject: String,
    group: Option<&'static str>,
}

impl Scope {
    fn text(&self) -> String {
        let not = if self.denies { "!" } else { "" };
        let at = self.group.map_or(String::new(), |group| format!("@{group}"));
        format!("{not}{}:{}{at}", self.verb, self.subject)
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    let verb = prop_oneof![Just("subscribe"), Just("subscribe"), Just("manage"), Just("publish")];
    let group =
        prop_oneof![3 => Just(None), 1 => Just(Some("g")), 1 => Just(Some("g*")), 1 => Just(Some("*"))];
    (any::<bool>(), verb, subject(), group).prop_map(|(denies, verb, subject, group)| {
        let group = group.filter(|_| verb == "subscribe");
        Scope { denies, verb, subject, group }
    })
}

fn in_group(rule: Option<&str>, asked: Option<&str>) -> bool {
    match (rule, asked) {
        (None, _) => true,
        (Some("*"), asked) => asked.is_some(),
        (Some("g*"), asked) => asked.is_some_and(|asked| asked.starts_with('g')),
        (rule, asked) => rule == asked,
    }
}

/// Whether the scopes should allow the access.
fn reference(scopes: &[Scope], verb: &str, asked: &str, group: Option<&str>) -> bool {
    let world = world();
    let topics = set(asked, &world);
    let fitting = |scope: &&Scope| scope.verb == verb && in_group(scope.group, group);
    // Publishing to a topic does not include its dead-letter topic.
    let is_in = |rule: &[String], topic: &str| {
        if verb == "publish" { rule.iter().any(|one| one == topic) } else { holds(rule, topic) }
    };
    let allowed = scopes.iter().filter(|scope| !scope.denies).filter(fitting).any(|scope| {
        let rule = set(&scope.subject, &world);
        topics.iter().all(|topic| is_in(&rule, topic))
    });
    let denied = scopes.iter().filter(|scope| scope.denies).filter(fitting).any(|scope| {
        let rule = set(&scope.subject, &world);
        topics.iter().any(|topic| is_in(&rule, topic))
    });
    allowed && !denied
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn grants_are_what_the_reference_says(
        scopes in proptest::collection::vec(scope(), 0..6),
        asked in proptest::collection::vec(subject(), 1..8),
        group in prop_oneof![Just(None), Just(Some("g")), Just(Some("gg")), Just(Some("h"))],
    ) {
        let texts: Vec<String> = scopes.iter().map(Scope::text).collect();
        let grants = Grants::parse(&texts).unwrap();
        for asked in &asked {
            let expected = reference(&scopes, "subscribe", asked, group);
            prop_assert_eq!(subscribes(&grants, asked, group), expected, "{:?} {} {:?}", texts, asked, group);
            prop_assert_eq!(manages(&grants, asked), reference(&scopes, "manage", asked, None), "{:?} {}", texts, asked);
            if asked.parse::<TopicName>().is_ok() {
                prop_assert_eq!(publishes(&grants, asked), reference(&scopes, "publish", asked, None), "{:?} {}", texts, asked);
            }
        }
    }

    #[test]
    fn no_scope_makes_the_parser_fail_badly(text in ".{0,60}") {
        let _ = Grants::parse([&text]);
        let _ = Grants::parse_foreign(text.split_whitespace());
    }

    #[test]
    fn more_grants_never_allow_less_and_more_denials_never_more(
        scopes in proptest::collection::vec(scope(), 0..5), more in scope(), asked in subject(),
    ) {
        let mut texts: Vec<String> = scopes.iter().map(Scope::text).collect();
        let before = subscribes(&Grants::parse(&texts).unwrap(), &asked, Some("g"));
        texts.push(more.text());
        let after = subscribes(&Grants::parse(&texts).unwrap(), &asked, Some("g"));
        let is_monotonic = if more.denies { before || !after } else { after || !before };
        prop_assert!(is_monotonic);
    }
}
