//! Bad input, as data: `fixtures/protocol/bad-*.jsonl`, over both transports, against one gateway each.
//!
//! Each case has its expected answer. After each case the connection still works or is closed, as the case
//! says; another connection is not disturbed, and nothing was written.

mod bad_frames_are_refused;
mod bad_requests_are_refused;
pub(super) mod http1;
mod state;
mod witness;

pub(super) use state::snapshot;

/// Expands `<<TEXT*COUNT>>` in the text of a case, so that a long text is short in the data.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<<") {
        let (inside, behind) = after.split_once(">>").unwrap();
        let (part, count) = inside.rsplit_once('*').unwrap();
        out.push_str(before);
        out.push_str(&part.repeat(count.parse().unwrap()));
        rest = behind;
    }
    out + rest
}

fn unhex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
}

/// Words of Rust and serde that tell a user nothing.
const FOREIGN: [&str; 16] = [
    "usize", "u64", "u32", "u16", "u8", "i64", "i32", "f64", "struct", "enum", "variant", "untagged",
    "newtype", "sequence", "EOF", "nonzero",
];

/// Whether a message is in plain words; texts in it that the client sent do not count.
fn is_plain(said: &str) -> bool {
    let own = |quote: char, text: &str| text.split(quote).step_by(2).collect::<Vec<_>>().join(" ");
    let said = own('"', &own('`', said));
    let mut words = said.split(|c: char| !c.is_ascii_alphanumeric());
    !words.any(|word| FOREIGN.contains(&word))
        && !said.contains("invalid type")
        && !said.contains("missing field")
}

#[test]
fn foreign_words_are_found_outside_quotes() {
    assert!(is_plain("give a whole number; `u64` and \"usize\" were sent"));
    assert!(!is_plain("`a`: expected usize") && !is_plain("invalid type: map"));
}

#[test]
fn long_texts_are_written_out() {
    assert_eq!(expand("a<<b*3>>c<<d,*2>>"), "abbbcd,d,");
    assert_eq!(expand("plain"), "plain");
}
