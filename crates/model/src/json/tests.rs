use proptest::prelude::*;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::*;

fn fault(text: &str) -> (JsonFault, usize) {
    let error = minify(text).unwrap_err();
    (error.fault, error.at)
}

/// What the scanner must agree with.
fn oracle(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().map(|Once(value)| value)
}

/// A value whose objects have each name once.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Once)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Once(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = serde_json::Map::new();
        while let Some((name, Once(value))) = map.next_entry::<String, _>()? {
            if members.insert(name, value).is_some() {
                return Err(serde::de::Error::custom("twice"));
            }
        }
        Ok(members.into())
    }
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
    check("{ \"a b\" : [ 1 , 2.50 ,\t-0e1 ] ,\r\n\"a  b\":{ } }", "{\"a b\":[1,2.50,-0e1],\"a  b\":{}}");
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
    let deepest = JSON_DEPTH_MAX as usize;
    for depth in [deepest - 1, deepest, 128, 129, 5_000] {
        agrees(&nested(depth));
        agrees(&objects(depth));
    }
    assert_eq!(fault(&nested(deepest + 1)), (JsonFault::Depth, deepest));
    // As it is in a dead letter, with room to spare.
    assert!(oracle(&format!("{{\"event\":{{\"payload\":{}}}}}", objects(deepest))).is_some());
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
fn a_name_comes_once_in_its_object() {
    let check = |text: &str, at: usize| assert_eq!(fault(text), (JsonFault::Twice, at), "{text:?}");
    check("{\"a\":1,\"a\":1}", 7);
    check(" {\"a\":{\"b\":1,\"c\":2}, \"a\":1}", 21);
    check("[{\"a\":1},{\"b\":{},\"\\u0062\":1}]", 17);
    check("{\"\\ud83d\\ude00\":1,\"\u{1f600}\":1}", 18);
    check("{\"\":1,\"\":1}", 6);
    for fine in [
        "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":1}]}",
        "{\"a\":1,\"\\\\u0061\":1}",
        "{\"a\":{},\"b\":1}",
    ] {
        agrees(fine);
        assert!(minify(fine).is_ok(), "{fine}");
    }
    // Around where names are no longer compared one by one, the second at every place.
    for count in 1..14 {
        for (first, second) in (0..count).flat_map(|b| (0..b).map(move |a| (a, b))) {
            for escape in [false, true] {
                let name = |n: usize| match n == second {
                    true if escape => format!("\\u{:04x}", u32::from('a') + first as u32),
                    true => char::from(b'a' + first as u8).to_string(),
                    false => char::from(b'a' + n as u8).to_string(),
                };
                let members: Vec<String> = (0..count).map(|n| format!("\"{}\":{{}}", name(n))).collect();
                let text = format!("{{{}}}", members.join(","));
                let at = 1 + members.iter().take(second).map(|member| member.len() + 1).sum::<usize>();
                check(&text, at);
            }
        }
    }
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

/// Objects whose few names come again and again, some of them escaped, inside each other.
fn crowded() -> impl Strategy<Value = String> {
    let name = proptest::sample::select(vec![
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "\\u0061", "\\u0062", "\\u006A", "\\n",
        "\\u000a", "", "\u{e9}", "\\u00e9",
    ]);
    let leaf = Just("1".to_owned()).boxed();
    leaf.prop_recursive(3, 40, 14, move |inner| {
        let members = proptest::collection::vec((name.clone(), inner), 0..14);
        members.prop_map(|members| {
            let member = |(name, value): &(&str, String)| format!("\"{name}\": {value}");
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        })
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
    fn agrees_on_names_that_come_again(text in crowded()) {
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
