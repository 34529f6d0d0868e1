use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn fault(text: &str) -> (JsonFault, usize) {
    let error = minify(text).unwrap_err();
    (error.fault, error.at)
}

/// What the scanner must agree with.
fn oracle(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn agrees(text: &str) {
    let ours = minify(text);
    let theirs = oracle(text);
    assert_eq!(
        ours.is_ok(),
        theirs.is_some(),
        "{text:?}: {ours:?}, {:?}",
        serde_json::from_str::<Value>(text)
    );
    if let Ok(small) = ours {
        assert_eq!(oracle(&small), theirs, "{text:?}");
        assert_eq!(minify(&small).as_deref(), Ok(&*small), "{text:?}");
        assert!(matches!(minify(&small), Ok(Cow::Borrowed(_))), "{text:?}");
    }
}

#[test]
fn drops_whitespace_between_tokens_only() {
    let check = |text: &str, small: &str| assert_eq!(minify(text).unwrap(), small, "{text:?}");
    check(" null\n", "null");
    check("{ \"a b\" : [ 1 , 2.50 ,\t-0e1 ] ,\r\n\"a b\":{ } }", "{\"a b\":[1,2.50,-0e1],\"a b\":{}}");
    check("[ ]", "[]");
    check("\" \\t \u{e9} \"", "\" \\t \u{e9} \"");
    check("[\"\u{e9}\" , \"\u{1f600}\"]", "[\"\u{e9}\",\"\u{1f600}\"]");
}

#[test]
fn borrows_what_is_minimal_already() {
    for text in ["{\"a\":1}", " {\"a\":1}\r\n", "\"a b\"", "7"] {
        assert!(matches!(minify(text), Ok(Cow::Borrowed(_))), "{text:?}");
    }
    assert!(matches!(minify("[1, 2]"), Ok(Cow::Owned(_))));
}

#[test]
fn says_what_is_wrong_and_where() {
    let check = |text: &str, expected: JsonFault, at: usize| {
        assert_eq!(fault(text), (expected, at), "{text:?}");
    };
    check("", JsonFault::End, 0);
    check("  ", JsonFault::End, 2);
    check(" [1, x]", JsonFault::Value, 5);
    check("{\"a\":1,}", JsonFault::Name, 7);
    check("{\"a\" 1}", JsonFault::Colon, 5);
    check("[1 2]", JsonFault::CommaOrBracket, 3);
    check("{\"a\":1]", JsonFault::CommaOrBrace, 6);
    check("1 2", JsonFault::Trailing, 2);
    check("01", JsonFault::Number, 2);
    check("1e999", JsonFault::Range, 5);
    check("\"\n\"", JsonFault::Control, 1);
    check("\"\\x\"", JsonFault::Escape, 2);
    check("\"\\ud800\"", JsonFault::Surrogate, 7);
    check("\"\\udc00\"", JsonFault::Surrogate, 7);
    check("[1", JsonFault::End, 2);
    let message = minify("[1 2]").unwrap_err().to_string();
    assert_eq!(message, "expected `,` or `]` at byte 3");
}

const EDGES: &[&str] = &[
    "-",
    "-0",
    "-01",
    "0",
    "00",
    "1.",
    ".5",
    "1.e1",
    "1e",
    "1e+",
    "1E-5",
    "+1",
    "0x1",
    "1e308",
    "1e309",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "-1e400",
    "1e-400",
    "0e999999999999",
    "1e-99999999999",
    "18446744073709551616",
    "-9223372036854775809",
    "nul",
    "nulll",
    "null",
    "True",
    "true",
    "false",
    "NaN",
    "\"",
    "\"\\",
    "\"\\u",
    "\"\\u12",
    "\"\\u12g4\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ud83dx\"",
    "\"\\uD83D\\uDE00\"",
    "\"\\ud83d\\ud83d\"",
    "\"\u{7f}\"",
    "\"\u{2028}\"",
    "\"\t\"",
    "\u{feff}1",
    "\u{a0}1",
    "[",
    "]",
    "{",
    "}",
    "[,]",
    "[1,]",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{a:1}",
    "{1:1}",
    "{\"a\":1,\"a\":2}",
    "[1]]",
    "{}{}",
    "\"a\" \"b\"",
    "'a'",
    "/**/1",
    "1\u{0}",
    "\u{c}1",
];

#[test]
fn agrees_with_serde_json_at_the_edges() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for depth in [126, 127, 128, 129, 5_000] {
        agrees(&nested(depth));
        agrees(&objects(depth));
    }
    assert_eq!(fault(&nested(128)).0, JsonFault::Depth);
    for text in EDGES {
        agrees(text);
    }
    agrees(&"9".repeat(308));
    agrees(&"9".repeat(309));
    agrees(&"9".repeat(310));
    agrees(&format!("0.{}", "9".repeat(400)));
    agrees(&format!("{}e-400", "9".repeat(400)));
}

#[test]
fn finds_what_is_special_at_every_place_of_a_word() {
    for len in 0..40 {
        for at in 0..len {
            for special in ['"', '\\', '\u{1f}', '\0', '!', '\u{80}', '\u{ff}', ' ', '#', '[', ']'] {
                let mut text: Vec<char> = vec!['x'; len];
                text[at] = special;
                agrees(&format!("\"{}\"", text.into_iter().collect::<String>()));
            }
        }
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Text made of pieces of JSON, so that much of it nearly is.
fn pieces() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"a\":", "\\", "\\u", "d83d", "\\ude00", "\\n", "1",
        "0", "-", ".", "e", "E+", "5", "null", "true", "false", " ", "\n", "\t", "\r", "\u{e9}", "\u{1}",
        "x",
    ]);
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_on_nearly_json(text in pieces()) {
        agrees(&text);
    }

    #[test]
    fn agrees_on_any_text(text in any::<String>()) {
        agrees(&text);
    }

    #[test]
    fn pretty_becomes_compact(value in json()) {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let compact = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(minify(&pretty).unwrap(), compact.as_str());
        agrees(&pretty);
    }

    #[test]
    fn agrees_on_damaged_json(value in json(), at in any::<proptest::sample::Index>(), by in any::<char>()) {
        let mut text: Vec<char> = serde_json::to_string_pretty(&value).unwrap().chars().collect();
        let at = at.index(text.len());
        text[at] = by;
        agrees(&text.iter().collect::<String>());
        text.truncate(at);
        agrees(&text.iter().collect::<String>());
    }
}
