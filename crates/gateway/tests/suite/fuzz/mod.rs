//! Random input for everything that reads what clients send: frames, bodies, names, schemas and jq programs.
//!
//! A target takes texts that are mostly right, changes them at random and must neither panic nor take long.
//! `FUZZ_SECONDS` is the time of each target, and `FUZZ_SEED` repeats a run; `cargo xtask fuzz` draws a new
//! seed. A failure prints the target, the seed and the input.

mod mutation;
mod over_the_wire;

use std::time::Duration;

use promethean_delivery::Subject;
use promethean_jq::{Caps, Pool, Program};
use promethean_model::wire::ClientFrame;
use promethean_model::{Clock, CollectionName, EventId, GroupName, SystemClock, TopicName};
use promethean_schema::compat::{self, CompatDirection, Undeclared, Verdict};
use promethean_schema::{SchemaRejected, SchemaText, validator};
use promethean_testkit::SeededRng;

use self::mutation::Mutator;

/// How long one input may take, far above what any needs.
const INPUT_MS_MAX: u64 = 10_000;
/// How far the memory of the process may grow during a target.
const GROWTH_BYTES_MAX: u64 = 512 << 20;

const FRAMES: &str = include_str!("../../../../../fixtures/protocol/client.jsonl");
const SCHEMAS: &[&str] = &[
    r#"{"type":"object","properties":{"a":{"type":"integer","minimum":0},"b":{"enum":[1,"x",null]}},"required":["a"]}"#,
    r##"{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"number"}},"items":{"$ref":"#/definitions/n"}}"##,
    r#"{"oneOf":[{"type":"string","pattern":"^a+$","maxLength":5},{"type":"array","uniqueItems":true,"maxItems":3}]}"#,
    r##"{"$defs":{"t":{"properties":{"next":{"$ref":"#/$defs/t"}},"additionalProperties":false}},"$ref":"#/$defs/t"}"##,
    r#"{"allOf":[{"not":{"const":7}},{"if":{"type":"string"},"then":{"format":"date-time"},"else":{"multipleOf":0.5}}]}"#,
    "true",
];
const PAYLOADS: &[&str] = &[
    r#"{"a":1,"b":"x"}"#,
    "[1,2,3]",
    r#""aaa""#,
    r#"{"next":{"next":{}}}"#,
    "7.5",
    "null",
    r#"[[],[[]],{}]"#,
];
const PROGRAMS: &[&str] = &[
    ".payload",
    "{upsert: {collection: \"orders\", key: .key, set: (.payload | {a, b})}}",
    "def f(x): if x > 10 then x else f(x + 1) end; f(.a // 0)",
    "[.[]? | select(type == \"number\")] | add",
    "reduce range(0; 100) as $i (0; . + $i)",
    "to_entries | map(.value) | join(\",\")",
    "gsub(\"a\"; \"b\") | test(\"^b\")",
    "[limit(5; repeat(1))], (try error(\"x\") catch .)",
    "path(..), getpath([\"a\", 0]), (.a |= 1), del(.b)",
];
const NAMES: &[&str] =
    &["orders.placed", "a", "a.*", "a.**", "**", "_sys.x", "a-b_c.d:e", "orders.placed.dlq", "G.r:o-up"];

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: `{text}`")))
}

/// Prints what led to a panic.
struct Witness<'a> {
    target: &'a str,
    seed: u64,
    input: Vec<u8>,
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, seed, input } = self;
            eprintln!("fuzz {target}: FUZZ_SEED={seed}, input `{}`", input.escape_ascii());
        }
    }
}

/// The inputs of a target, until its time is over.
struct Inputs<'a> {
    mutator: Mutator,
    witness: Witness<'a>,
    clock: SystemClock,
    until_ms: u64,
    began_ms: u64,
    count: u64,
    resident: u64,
}

impl<'a> Inputs<'a> {
    fn new(target: &'a str, corpus: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        let (seed, clock) = (number("FUZZ_SEED").unwrap_or(1), SystemClock::new());
        let for_ms = number("FUZZ_SECONDS").map_or(300, |seconds| seconds * 1_000);
        let mutator = Mutator::new(SeededRng::new(seed), corpus.into_iter().map(Into::into).collect());
        let (began_ms, witness) = (clock.monotonic_ms(), Witness { target, seed, input: Vec::new() });
        let until_ms = began_ms + for_ms;
        Self { mutator, witness, clock, until_ms, began_ms, count: 0, resident: resident_bytes() }
    }

    /// The next input, if there is time for one. The one before it must not have taken long.
    fn next(&mut self) -> Option<Vec<u8>> {
        let now_ms = self.clock.monotonic_ms();
        let took_ms = now_ms - self.began_ms;
        assert!(took_ms < INPUT_MS_MAX, "an input took {took_ms} ms");
        if now_ms >= self.until_ms {
            return None;
        }
        self.witness.input = self.mutator.next();
        self.count += 1;
        self.began_ms = self.clock.monotonic_ms();
        Some(self.witness.input.clone())
    }

    fn rng(&mut self) -> &mut SeededRng {
        self.mutator.rng()
    }

    /// Checks the memory. Other tests use memory of the process too, so this is only for a run of its own.
    fn finish(self) {
        let grown = resident_bytes().saturating_sub(self.resident);
        let Witness { target, seed, .. } = &self.witness;
        eprintln!("fuzz {target}: {} inputs, FUZZ_SEED={seed}, {} MiB more", self.count, grown >> 20);
        assert!(self.count > 0, "no input in time");
        if number("FUZZ_SECONDS").is_some() {
            assert!(grown < GROWTH_BYTES_MAX, "the memory grew by {grown} bytes");
        }
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn frames() {
    let mut inputs = Inputs::new("frames", FRAMES.lines());
    while let Some(input) = inputs.next() {
        if let Ok(text) = str::from_utf8(&input) {
            let (corr, _) = ClientFrame::read(text);
            // The reply has the same `corr`, and must be JSON.
            assert!(corr.is_none_or(|corr| serde_json::from_str::<serde_json::Value>(corr.get()).is_ok()));
        }
    }
    inputs.finish();
}

#[test]
fn names() {
    let mut inputs = Inputs::new("names", NAMES.iter().copied());
    while let Some(input) = inputs.next() {
        let Ok(text) = str::from_utf8(&input) else { continue };
        if let Ok(topic) = text.parse::<TopicName>() {
            assert_eq!(topic.as_str(), text);
            assert!(text.len() <= 180 && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert!(text.parse::<Subject>().is_ok(), "a topic is a subject: {text}");
        }
        if let Ok(subject) = text.parse::<Subject>() {
            assert_eq!(subject.to_string(), text);
        }
        if let Ok(group) = text.parse::<GroupName>() {
            assert_eq!(group.to_string(), text);
        }
        if let Ok(collection) = text.parse::<CollectionName>() {
            assert_eq!(collection.to_string(), text);
        }
        let _ = text.parse::<EventId>();
    }
    inputs.finish();
}

#[test]
fn schemas() {
    let topic: TopicName = "t".parse().unwrap();
    let payloads: Vec<serde_json::Value> =
        PAYLOADS.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let old = serde_json::from_str(SCHEMAS[0]).unwrap();
    let mut inputs = Inputs::new("schemas", SCHEMAS.iter().copied());
    while let Some(input) = inputs.next() {
        let Ok(text) = String::from_utf8(input) else { continue };
        let Ok(schema) = SchemaText::parse(text) else { continue };
        let Ok(compiled) = validator::compile(schema.value()) else { continue };
        for payload in &payloads {
            let is_valid = compiled.is_valid(payload);
            let rejected = SchemaRejected::new(&topic, 1, &compiled, payload, u64::MAX);
            assert_eq!(is_valid, rejected.violations.is_empty(), "{payload}");
        }
        let same = compat::check(schema.value(), schema.value(), CompatDirection::Backward, Undeclared::Any);
        assert_ne!(same.verdict, Verdict::Incompatible, "with itself");
        let there = compat::check(&old, schema.value(), CompatDirection::Backward, Undeclared::Any);
        let back = compat::check(schema.value(), &old, CompatDirection::Forward, Undeclared::Any);
        assert_eq!(there.verdict, back.verdict, "from both sides");
    }
    inputs.finish();
}

#[test]
fn programs() {
    let pool = Pool::new();
    let caps = Caps { time: Duration::from_millis(200), ..Caps::default() };
    let mut inputs = Inputs::new("programs", PROGRAMS.iter().copied());
    while let Some(input) = inputs.next() {
        let Ok(text) = str::from_utf8(&input) else { continue };
        let Ok(program) = Program::compile(text) else { continue };
        let payload = *inputs.rng().choose(PAYLOADS).unwrap();
        for output in program.run_blocking(&pool, payload, caps).unwrap_or_default() {
            assert!(serde_json::from_str::<serde_json::Value>(&output).is_ok(), "not JSON: {output}");
        }
    }
    inputs.finish();
}
