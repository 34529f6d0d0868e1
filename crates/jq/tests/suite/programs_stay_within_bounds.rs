//! Programs do what jq does, see only their input, and stay within their bounds.

use std::time::Duration;

use promethean_jq::{Caps, Pool, Program, RunError};

fn run(program: &str, input: &str) -> Result<Vec<String>, RunError> {
    Program::compile(program).unwrap().run_blocking(&Pool::new(), input, Caps::default())
}

/// Runs with so much time that only steps and sizes end a call, also on a busy machine.
fn run_unhurried(program: &str, input: &str) -> Result<Vec<String>, RunError> {
    let caps = Caps { time: Duration::from_secs(600), ..Caps::default() };
    Program::compile(program).unwrap().run_blocking(&Pool::new(), input, caps)
}

fn one(program: &str, input: &str) -> String {
    let mut outputs = run(program, input).unwrap_or_else(|error| panic!("{program}: {error}"));
    assert_eq!(outputs.len(), 1, "{program}");
    outputs.remove(0)
}

#[test]
fn programs_do_what_jq_does() {
    for (program, input, output) in [
        (".", r#"{"b":1,"a":[1,2]}"#, r#"{"b":1,"a":[1,2]}"#),
        (".a + 1", r#"{"a":1}"#, "2"),
        (r#". + {b: "x"}"#, r#"{"a":1}"#, r#"{"a":1,"b":"x"}"#),
        (r#""\(.a)-\(.b | tojson)""#, r#"{"a":1,"b":["x"]}"#, r#""1-[\"x\"]""#),
        ("[range(4)] | add", "null", "6"),
        (r#".a | tonumber + 1"#, r#"{"a":"41"}"#, "42"),
        ("fromjson", r#""{\"a\":[1,2.5]}""#, r#"{"a":[1,2.5]}"#),
        ("[range(10; 0; -3)]", "null", "[10,7,4,1]"),
        ("[range(0, 1; 3, 4)]", "null", "[0,1,2,0,1,2,3,1,2,1,2,3]"),
        (".a += 1 | .b *= 2", r#"{"a":1,"b":3}"#, r#"{"a":2,"b":6}"#),
        (".[] += 1", "[1,2]", "[2,3]"),
        ("map(. * 2)", "[1,2]", "[2,4]"),
        ("[(1, 2) * (3, 4)]", "null", "[3,4,6,8]"),
        ("[(1, 2) + (10, 20)]", "null", "[11,21,12,22]"),
        (r#""ab" * 2"#, "null", r#""abab""#),
        (r#"join(",")"#, r#"["a","b"]"#, r#""a,b""#),
        ("to_entries | from_entries", r#"{"z":1,"y":2}"#, r#"{"z":1,"y":2}"#),
        (r#"sub("(?<x>a)"; "\(.x)!")"#, r#""bab""#, r#""ba!b""#),
        (". as {a: $x, b: [$y]} | $x + $y", r#"{"a":1,"b":[2]}"#, "3"),
        ("reduce .[] as $x (0; . + $x)", "[1,2,3]", "6"),
        ("def f($n): if $n == 0 then [] else [f($n - 1)] end; f(3)", "null", "[[[[]]]]"),
        ("try error(\"x\") catch .", "null", r#""x""#),
        (r#"@base64 "\(.)""#, r#""hi""#, r#""aGk=""#),
        ("gmtime | mktime", "1700000000", "1700000000"),
        (r#"del(.a) | .c = {d: 1}"#, r#"{"a":1,"b":2}"#, r#"{"b":2,"c":{"d":1}}"#),
    ] {
        assert_eq!(one(program, input), output, "{program}");
    }
    assert_eq!(run(".[]", "[1,2]").unwrap(), ["1", "2"]);
    assert_eq!(run("empty", "1").unwrap(), [""; 0]);
}

#[test]
fn numbers_that_are_passed_on_stay_as_they_are() {
    let kept = r#"[12345678901234567890123,0.10,1e2,-0.0,9007199254740993,1.000000000000000000001]"#;
    assert_eq!(one(".", kept), kept);
    assert_eq!(one(".[0] + 1", kept), "12345678901234567890124");
    assert_eq!(one(".[1] + 1", kept), "1.1");
}

#[test]
fn programs_see_nothing_but_their_input() {
    for name in [
        "input",
        "inputs",
        "env",
        "$ENV",
        "now",
        "halt",
        "debug",
        "stderr",
        "localtime",
        "$__loc__",
        "input_filename",
        "get_search_list",
        "halt_error",
        "tobytes",
        "strflocaltime(\"%Y\")",
    ] {
        let error = Program::compile(name).unwrap_err();
        assert!(error.message.starts_with("unknown"), "{name}: {error}");
        assert_eq!((error.line, error.column), (1, 1), "{name}");
    }
    for text in [r#"import "a" as a; a::f"#, r#"include "a"; f"#, r#"import "a" as $x; $x"#] {
        assert!(Program::compile(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let said = |text: &str| Program::compile(text).unwrap_err().to_string();
    assert_eq!(said(". |\n  nonsense(1)"), "unknown filter `nonsense` at line 2, column 3");
    assert_eq!(said("1 +"), "expected term at line 1, column 4");
    assert_eq!(said("(1"), "expected closing parenthesis at line 1, column 3");
    assert!(said(&" ".repeat(70_000)).starts_with("the program has 70000 bytes"));
    assert_eq!(run("error(\"no\")", "1"), Err(RunError::Failed { message: "no".to_owned() }));
    let Err(RunError::Failed { message }) = run(".a.b", &format!(r#"{{"a":"{}"}}"#, "x".repeat(9_000)))
    else {
        panic!("not refused")
    };
    assert_eq!(message.len(), 1024);
}

#[test]
fn what_never_ends_is_ended() {
    for program in [
        "def f: f; f",
        "repeat(1) | empty",
        "[repeat(1)]",
        "[range(1e12)]",
        "last(range(1e12))",
        "[limit(1e12; repeat(1))]",
        "range(1; 0; 0) | empty",
        "def f: . + 1 | f; 1 | f",
        "until(false; .)",
        "[.[] as $x | range(1e9)]",
        "reduce range(1e9) as $x (0; . + 1)",
        "[recurse(.)]",
    ] {
        let ended = run(program, "[1]");
        assert!(matches!(ended, Err(RunError::Steps { .. } | RunError::Time)), "{program}: {ended:?}");
    }
}

#[test]
fn recursion_does_not_reach_the_end_of_the_stack() {
    for program in [
        "def f: [f]; f",
        "def f: f + 1; f",
        "def f: {a: f}; f",
        "def f: 1 + f; f",
        "def f: (f | f); f",
        "def f: f as $x | $x; f",
        "def f: try f; f",
        "def f: .[f]; f",
        "def f: ., (f | . + 1); [f]",
    ] {
        let ended = run(program, "1");
        assert!(
            matches!(ended, Err(RunError::Depth | RunError::Steps { .. } | RunError::Time)),
            "{program}: {ended:?}"
        );
    }
    // Deep values are made without recursion, but dropped, compared and written with it.
    for program in [
        "def f: [.] | f; f",
        "last(limit(300000; repeat(1)))",
        "reduce range(200000) as $x (0; [.]) | . == 1",
        "reduce range(200000) as $x (0; [.]) | tojson",
        "reduce range(100000) as $x (0; [.]) | . == .",
        "[reduce range(90000) as $x (0; [.])] | unique",
        "reduce range(200000) as $x (0; {a: .}) | {(tojson): 1}",
        "reduce range(200000) as $x (0; [.])",
    ] {
        drop(run(program, "1"));
    }
    let deep = "(".repeat(30_000);
    assert!(Program::compile(&deep).is_err());
}

#[test]
fn what_grows_is_refused() {
    for program in [
        r#""x" * 1e9"#,
        r#""x" * 1000000000"#,
        r#"1000000000000 * "xy""#,
        r#"reduce range(60) as $i ("x"; . + .)"#,
        r#"reduce range(60) as $i ([1]; . + .)"#,
        r#"reduce range(60) as $i ({a: "x"}; .a += .a)"#,
        r#"reduce range(60) as $i ("x"; "\(.)\(.)")"#,
        r#"reduce range(60) as $i ("x"; [., .]) | tojson"#,
        r#"reduce range(60) as $i ("x"; [., .]) | tostring"#,
        r#"reduce range(60) as $i ("x"; [., .]) | "\(.)""#,
        r#"reduce range(60) as $i ("x"; [., .])"#,
        r#"reduce range(60) as $i (7; . * .)"#,
    ] {
        let ended = run_unhurried(program, "1");
        let refused = matches!(ended, Err(RunError::Size | RunError::Steps { .. } | RunError::Failed { .. }));
        assert!(
            refused,
            "{program}: {:?}",
            ended.map(|outputs| outputs.iter().map(String::len).sum::<usize>())
        );
    }
    let doubled = run_unhurried("reduce range(60) as $i ([1]; [.[], .[]])", "1");
    assert_eq!(doubled, Err(RunError::Steps { max: 1_000_000 }));
}

#[test]
fn outputs_are_bounded_and_json() {
    let caps = Caps { outputs: 2, output_bytes: 10, ..Caps::default() };
    let program = |text| Program::compile(text).unwrap();
    assert_eq!(program("1, 2").run_blocking(&Pool::new(), "0", caps).unwrap(), ["1", "2"]);
    assert_eq!(
        program("1, 2, 3").run_blocking(&Pool::new(), "0", caps),
        Err(RunError::Outputs { what: "values", max: 2 })
    );
    assert_eq!(
        program(r#""0123456789""#).run_blocking(&Pool::new(), "0", caps),
        Err(RunError::Outputs { what: "bytes", max: 10 })
    );
    for text in ["nan", "infinite", "{(1): 2}", "1e999", "{([]): 1}"] {
        let given = program(text).run_blocking(&Pool::new(), "0", Caps::default());
        assert!(
            matches!(given, Err(RunError::NotJson { .. } | RunError::Failed { .. })),
            "{text}: {given:?}"
        );
    }
}

#[test]
fn a_call_that_takes_too_long_fails_alone() {
    let program = Program::compile("if . then def f: f; f else 1 end").unwrap();
    let (pool, caps) = (Pool::new(), Caps { time: Duration::ZERO, ..Caps::default() });
    for _ in 0..10 {
        // Whether steps or time end the call first depends on the machine.
        let ended = program.run_blocking(&pool, "true", caps);
        assert!(matches!(ended, Err(RunError::Time | RunError::Steps { .. })), "{ended:?}");
        assert_eq!(program.run_blocking(&pool, "false", Caps::default()).unwrap(), ["1"]);
    }
    assert!(!program.is_stuck());
}

#[tokio::test]
async fn the_input_that_takes_too_long_is_the_one_that_fails() {
    // The interpreter cannot end the search for a match.
    let program = Program::compile(r#"if length > 100 then test("(a?){400}b") else length end"#).unwrap();
    let (pool, caps) = (Pool::new(), Caps { time: Duration::from_millis(50), ..Caps::default() });
    let slow = format!("\"{}\"", "a".repeat(1 << 19));
    let inputs = || ["\"x\"", "\"xx\"", &slow, "\"xxx\""].map(str::to_owned).to_vec();
    let ok = |length: &str| Ok(vec![length.to_owned()]);
    let each = program.run_each(&pool, inputs(), caps).await;
    assert_eq!(each, [ok("1"), ok("2"), Err(RunError::Time), ok("3")]);
    let until = program.run_until_failure(&pool, inputs(), caps).await;
    assert_eq!(until, [ok("1"), ok("2"), Err(RunError::Time)]);
}

#[test]
fn the_matches_of_a_pattern_are_bounded() {
    let text = |bytes: usize| format!("\"{}\"", "a".repeat(bytes));
    for program in [r#"gsub("a"; "b")"#, r#"[scan("a")]"#, r#"split("a"; "")"#, r#"[match("a"; "g")]"#] {
        assert_eq!(run_unhurried(program, &text(70_000)), Err(RunError::Size), "{program}");
        assert!(run_unhurried(program, &text(1_000)).is_ok(), "{program}");
    }
    for program in [r#"sub("a"; "b") | length"#, r#"test("a")"#, r#"[match("a")] | length"#] {
        assert!(run_unhurried(program, &text(1 << 20)).is_ok(), "{program}");
    }
    let shadowed = r#"def matches(a; b): a + b; matches(1; 2, 3)"#;
    assert_eq!(run(shadowed, "null").unwrap(), ["3", "4"]);
    assert_eq!(run(r#"[test("A"; "", "i")]"#, r#""a""#).unwrap(), ["[false,true]"]);
}

#[test]
fn large_values_count_together() {
    let hoard = r#"[range(1000) | "x" * 15000000] | length"#;
    assert_eq!(run_unhurried(hoard, "null"), Err(RunError::Size));
    let caught = r#"[range(1000) | try ("x" * 15000000) catch "y"] | map(length) | add"#;
    assert_eq!(run_unhurried(caught, "null").unwrap(), [(17 * 15_000_000 + 983).to_string()]);
    assert_eq!(
        run_unhurried(r#"[range(10) | "x" * 1000000] | map(length) | add"#, "null").unwrap(),
        ["10000000"]
    );
}

#[test]
fn small_values_count_together_too() {
    let texts = format!("{{\"n\":[{}]}}", ["7"; 60_000].join(","));
    for hoard in [
        r#"[range(20000) | "x" * 60000]"#,
        r#"[range(20000) as $i | "\("x" * 60000)"]"#,
        r#"("x" * 50000) as $x | [range(20000) as $i | $x + "y"]"#,
        r#"("x" * 60000) as $x | [range(20000) | $x | ascii_upcase]"#,
        r#"("x" * 60000) as $x | [range(20000) | $x | explode]"#,
        r#"("x," * 30000) as $x | [range(20000) | $x | split(",")]"#,
        r#"("x" * 30000) as $x | [range(20000) | $x | split("x"; "g")]"#,
        r#"("[1]," * 9000 | "[" + . + "1]") as $x | [range(20000) | $x | fromjson]"#,
        r#"("x" * 60000) as $x | [range(20000) | $x | @base64]"#,
        r#"("x" * 60000) as $x | [range(20000) | $x | tojson]"#,
        ".n as $x | [range(20000) | $x[1:]]",
        ".n as $x | [range(20000) | $x | reverse]",
        ".n as $x | [range(20000) as $i | $x | .[0] = $i]",
        ".n as $x | [range(20000) as $i | $x | .[0] |= $i]",
        ".n as $x | [range(20000) as $i | $x | .[0] += $i]",
        ".n as $x | [range(20000) as $i | $x | .[0] //= $i]",
        ".n as $x | [range(20000) as $i | $x | keys_unsorted]",
        ".n as $x | [range(20000) as $i | $x | indices(7)]",
    ] {
        assert_eq!(run_unhurried(&format!("{hoard} | length"), &texts), Err(RunError::Size), "{hoard}");
    }
}

/// What a program drops, and what grows in its place, does not count again and again.
#[test]
fn values_that_grow_count_once() {
    for (program, length) in [
        ("reduce range(20000) as $i ([]; . + [$i])", "20000"),
        ("reduce range(20000) as $i ({}; .[\"k\\($i)\"] = $i)", "20000"),
        ("reduce range(20000) as $i ({}; . + {\"k\\($i)\": $i})", "20000"),
        ("reduce range(10000) as $i (\"\"; . + \"0123456789\")", "100000"),
        ("[range(10000) | \"0123456789\"] | join(\"\")", "100000"),
    ] {
        let outputs = run_unhurried(&format!("{program} | length"), "null");
        assert_eq!(outputs, Ok(vec![length.to_owned()]), "{program}");
    }
    assert_eq!(run(".[1:] |= map(. + 1)", "[1,2,3]").unwrap(), ["[1,3,4]"]);
    assert_eq!(run("[paths], [path(.[0:1])]", "[1]").unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_are_all_answered() {
    let (pool, program) = (Pool::new(), Program::compile(".+1").unwrap());
    let calls: Vec<_> = (0..500)
        .map(|n: u32| {
            let (pool, program) = (pool.clone(), program.clone());
            async move { (n, program.run(&pool, &n.to_string(), Caps::default()).await) }
        })
        .collect();
    let mut set = tokio::task::JoinSet::new();
    calls.into_iter().for_each(|call| drop(set.spawn(call)));
    while let Some(done) = set.join_next().await {
        let (n, outputs) = done.unwrap();
        assert_eq!(outputs.unwrap(), [(n + 1).to_string()]);
    }
    let now = pool.status();
    assert!(now.workers <= 4 && now.lost <= 8, "{now:?}");
}

#[test]
fn text_within_a_payload_is_read_within_bounds() {
    for text in ["[".repeat(1 << 20), "9".repeat(1 << 20), "[1,".to_owned(), "1e999".to_owned()] {
        let input = format!("\"{text}\"");
        for program in ["fromjson", "tonumber"] {
            let outcome =
                Program::compile(program).unwrap().run_blocking(&Pool::new(), &input, Caps::default());
            assert!(outcome.is_err(), "{program} of {} bytes: {outcome:?}", text.len());
        }
    }
}
