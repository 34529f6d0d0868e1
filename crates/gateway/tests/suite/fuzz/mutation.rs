//! Texts that are mostly right, changed at random.

use promethean_testkit::SeededRng;

/// Bytes of an input, at most.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Changed inputs that are kept to be changed again.
const KEPT_MAX: usize = 200;

/// Pieces that mean something to one of the readers.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "\\",
    "\u{feff}",
    "\0",
    "\r\n",
    "\n",
    "null",
    "true",
    "-0",
    "1e999",
    "1e-999",
    "9007199254740993",
    "18446744073709551616",
    "0.1",
    "\"op\":\"PUBLISH\"",
    "\"payload\":",
    "\"corr\":",
    "\"events\":[",
    "**",
    "..",
    ".dlq",
    "_",
    "%2e",
    "\"$ref\":\"#\"",
    "\"oneOf\":[",
    "\"not\":{",
    "|",
    "..",
    "as $x",
    "def f: f; f",
    "reduce",
    "limit(",
    "input",
    "$__loc__",
    "@base64d",
    "\u{1f980}",
];

/// Makes inputs from a corpus.
pub(super) struct Mutator {
    rng: SeededRng,
    corpus: Vec<Vec<u8>>,
    /// How many of the corpus are as they were given.
    given: usize,
}

impl Mutator {
    pub(super) fn new(rng: SeededRng, corpus: Vec<Vec<u8>>) -> Self {
        let given = corpus.len();
        Self { rng, corpus, given }
    }

    pub(super) fn rng(&mut self) -> &mut SeededRng {
        &mut self.rng
    }

    /// A new input. Some are kept, so that changes add up.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let mut input = self.rng.choose(&self.corpus).cloned().unwrap_or_default();
        for _ in 0..1 + self.rng.range(0..4) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        if self.rng.chance(5) {
            if self.corpus.len() < self.given + KEPT_MAX {
                self.corpus.push(input.clone());
            } else {
                let place = self.given + self.rng.range(0..KEPT_MAX as u64) as usize;
                self.corpus[place].clone_from(&input);
            }
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.place(input.len() + 1);
        match self.rng.range(0..8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.rng.range(0..8);
                }
            }
            1 => input.insert(at, self.rng.next_u64() as u8),
            2 => {
                let end = (at + self.place(20)).min(input.len());
                input.drain(at..end);
            }
            3 => input.truncate(at),
            4 | 5 => {
                let piece = self.rng.choose(PIECES).copied().unwrap_or_default();
                input.splice(at..at, piece.bytes());
            }
            6 => {
                // A part again, many times: nesting and long lists.
                let end = (at + 1 + self.place(30)).min(input.len());
                let part = input[at..end].to_vec();
                let times = 1 << self.rng.range(0..10);
                input.splice(at..at, part.repeat(times).into_iter().take(INPUT_BYTES_MAX));
            }
            _ => {
                let other = self.rng.choose(&self.corpus).cloned().unwrap_or_default();
                let from = self.place(other.len() + 1);
                input.splice(at..at, other[from..].iter().copied());
            }
        }
    }

    fn place(&mut self, below: usize) -> usize {
        self.rng.range(0..below as u64) as usize
    }
}
