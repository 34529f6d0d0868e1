//! Strings that schemas may accept. They are guesses: every instance is checked by both validators later.

use serde_json::Value;

use crate::compat::shape::ValueShape;

/// Strings that match many common patterns.
const COMMON: [&str; 18] = [
    "", "a", "A", "0", "1", "-", " ", "ab", "abc", "ABC", "a1", "123", "a-b", "a.b", "a@b.co", "1.5", "true",
    "Zz_9",
];

/// A text of a format; some text for an unknown format.
fn of_format(format: &str) -> &'static str {
    match format {
        "date" => "2024-02-29",
        "date-time" => "2024-02-29T10:00:00Z",
        "time" => "10:00:00Z",
        "duration" => "P1D",
        "email" | "idn-email" => "a@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" => "127.0.0.1",
        "ipv6" => "::1",
        "uri" | "iri" => "https://example.com/a",
        "uri-reference" | "iri-reference" => "/a",
        "uri-template" => "/{a}",
        "uuid" => "123e4567-e89b-12d3-a456-426614174000",
        "json-pointer" => "/a",
        "relative-json-pointer" => "0/a",
        "regex" => "a+",
        _ => "?",
    }
}

/// Strings for a shape.
pub(super) fn of_shape(shape: &ValueShape<'_>) -> Vec<Value> {
    let mut texts: Vec<String> = Vec::new();
    texts.extend(shape.all("format").filter_map(Value::as_str).map(|format| of_format(format).to_owned()));
    texts.extend(shape.all("pattern").filter_map(Value::as_str).flat_map(like));
    for length in [shape.at_least("minLength"), shape.at_most("maxLength").unwrap_or(1)] {
        texts.extend(of_length(shape, length.min(512)).iter().filter_map(Value::as_str).map(str::to_owned));
    }
    texts.extend(COMMON.map(str::to_owned));
    for keyword in ["examples", "default"] {
        let said = shape
            .all(keyword)
            .flat_map(|said| said.as_array().cloned().unwrap_or_else(|| vec![said.clone()]));
        texts.extend(said.filter_map(|value| value.as_str().map(str::to_owned)));
    }
    texts.into_iter().map(Value::from).collect()
}

/// Strings of a length for a shape.
pub(super) fn of_length(shape: &ValueShape<'_>, length: u64) -> Vec<Value> {
    let length = usize::try_from(length).unwrap_or(0);
    let mut texts = vec!["x".repeat(length), "0".repeat(length), "A".repeat(length)];
    for pattern in shape.all("pattern").filter_map(Value::as_str) {
        for extra in (0..=3).chain([length / 2, length.saturating_sub(1), length]) {
            texts.extend((0..2).filter_map(|pick| PatternWriter::new(pattern, extra, pick).all()));
        }
    }
    texts.retain(|text| text.chars().count() == length);
    texts.into_iter().map(Value::from).collect()
}

/// Strings that may match a pattern.
pub(super) fn like(pattern: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for extra in [0, 1, 3] {
        for pick in 0..4 {
            texts.extend(PatternWriter::new(pattern, extra, pick).all());
        }
    }
    texts.dedup();
    texts
}

/// Reads a pattern and writes a text that it may match.
struct PatternWriter<'p> {
    rest: std::iter::Peekable<std::str::Chars<'p>>,
    /// Repeats beyond the least number.
    extra: usize,
    /// Which of several alternatives is chosen.
    pick: usize,
}

/// Groups nested in each other, and characters of a text, at most.
const DEPTH_MAX: usize = 20;
const TEXT_MAX: usize = 8_192;

impl<'p> PatternWriter<'p> {
    fn new(pattern: &'p str, extra: usize, pick: usize) -> Self {
        Self { rest: pattern.chars().peekable(), extra, pick }
    }

    fn all(mut self) -> Option<String> {
        let text = self.choices(0)?;
        self.rest.next().is_none().then_some(text)
    }

    /// `a|b|c`
    fn choices(&mut self, depth: usize) -> Option<String> {
        let mut choices = vec![self.sequence(depth)?];
        while self.rest.next_if_eq(&'|').is_some() {
            choices.push(self.sequence(depth)?);
        }
        let place = self.pick % choices.len();
        Some(choices.swap_remove(place))
    }

    fn sequence(&mut self, depth: usize) -> Option<String> {
        let mut text = String::new();
        while let Some(&next) = self.rest.peek() {
            if next == '|' || next == ')' {
                break;
            }
            let atom = self.atom(depth)?;
            let times = self.times()?;
            if text.len() + atom.len() * times > TEXT_MAX {
                return None;
            }
            text.push_str(&atom.repeat(times));
        }
        Some(text)
    }

    fn atom(&mut self, depth: usize) -> Option<String> {
        let one = match self.rest.next()? {
            '^' | '$' => return Some(String::new()),
            '.' => 'x',
            '[' => self.class()?,
            '\\' => match self.rest.next()? {
                'd' => '7',
                'w' => 'w',
                's' => ' ',
                'D' | 'S' | 'W' => '-',
                'b' | 'A' | 'z' => return Some(String::new()),
                'n' => '\n',
                't' => '\t',
                other if other.is_ascii_alphanumeric() => return None,
                other => other,
            },
            '(' => {
                if depth > DEPTH_MAX {
                    return None;
                }
                if self.rest.next_if_eq(&'?').is_some() {
                    self.rest.next_if_eq(&':')?;
                }
                let text = self.choices(depth + 1)?;
                self.rest.next_if_eq(&')')?;
                return Some(text);
            }
            other => other,
        };
        Some(one.to_string())
    }

    /// A character of a class such as `[a-z_]`.
    fn class(&mut self) -> Option<char> {
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut ranges = Vec::new();
        loop {
            let first = match self.rest.next()? {
                ']' => break,
                '\\' => match self.rest.next()? {
                    'd' => {
                        ranges.push(('0', '9'));
                        continue;
                    }
                    'w' => {
                        ranges.push(('a', 'z'));
                        continue;
                    }
                    's' => ' ',
                    other => other,
                },
                other => other,
            };
            let dash = self.rest.next_if_eq(&'-').is_some();
            match self.rest.peek() {
                Some(&last) if dash && last != ']' => {
                    self.rest.next();
                    ranges.push((first, last));
                }
                _ => ranges.push((first, first)),
            }
            if dash && self.rest.peek() == Some(&']') {
                ranges.push(('-', '-'));
            }
        }
        if negated {
            return "xA0- _~\u{e9}"
                .chars()
                .find(|one| !ranges.iter().any(|(first, last)| first <= one && one <= last));
        }
        let (first, last) = *ranges.get(self.pick % ranges.len().max(1))?;
        Some(if self.extra > 0 { last } else { first })
    }

    /// How often the atom before is repeated.
    fn times(&mut self) -> Option<usize> {
        let times = match self.rest.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.rest.next();
                let mut inside = String::new();
                while let Some(next) = self.rest.next_if(|next| *next != '}') {
                    inside.push(next);
                }
                let (least, most) = inside.split_once(',').unwrap_or((&inside, &inside));
                let least = least.parse().ok()?;
                (least, if most.is_empty() { None } else { Some(most.parse().ok()?) })
            }
            _ => return Some(1),
        };
        self.rest.next();
        self.rest.next_if_eq(&'?');
        let (least, most): (usize, Option<usize>) = times;
        Some(least.saturating_add(self.extra).min(most.unwrap_or(usize::MAX)))
    }
}
