//! From lines to events: the key, headers and tags of the flags, and the places of templates.

use anyhow::{Context, Result, bail, ensure};
use promethean_client::EventToPublish;
use promethean_model::{Clock, IdMint, SystemClock, TopicName};

use super::input::InputLine;
use super::{PreparedEvent, PubArgs, header_of, payload_of};
use crate::output::time_text;
use crate::template::{TemplatePlace, TextTemplate};

/// Makes events from lines.
pub(super) struct Filler {
    topic: TopicName,
    is_text: bool,
    /// The payload with its places; without it the line is the payload.
    payload: Option<TextTemplate>,
    key: Option<TextTemplate>,
    headers: Vec<(String, TextTemplate)>,
    tags: Vec<String>,
    is_template: bool,
    values: PlaceValues,
    count: u64,
}

impl Filler {
    pub(super) fn new(args: &PubArgs) -> Result<Self> {
        let read = |what: &str, text: &str| {
            // Without --template, `{{` has no meaning.
            let template = match args.template {
                true => TextTemplate::parse(text, check_place),
                false => Ok(TextTemplate::verbatim(text)),
            };
            template.with_context(|| format!("the template of the {what}"))
        };
        let headers = args.headers.iter().map(|header| {
            let (name, value) = header_of(header)?;
            Ok((name, read("header", &value)?))
        });
        Ok(Self {
            topic: args.topic.clone(),
            is_text: args.text,
            payload: args.payload.as_deref().map(|text| read("payload", text)).transpose()?,
            key: args.key.as_deref().map(|text| read("key", text)).transpose()?,
            headers: headers.collect::<Result<_>>()?,
            tags: args.tags.clone(),
            is_template: args.template,
            values: PlaceValues::new()?,
            count: 0,
        })
    }

    /// The event of a line that comes after the last one; or its number and what is wrong.
    pub(super) fn prepare_next(&mut self, line: InputLine) -> Result<PreparedEvent, (u64, anyhow::Error)> {
        self.count += 1;
        self.values.turn(self.count);
        self.prepare(&line).map_err(|error| (line.number, error))
    }

    /// The event of a line.
    pub(super) fn prepare(&self, line: &InputLine) -> Result<PreparedEvent> {
        let fill = |template: &TextTemplate| match self.is_template {
            true => template.fill(|place| self.values.value(place, &line.text)),
            false => template.fill(|_| String::new()),
        };
        let payload = match &self.payload {
            Some(template) => payload_of(&fill(template), self.is_text)?,
            None => payload_of(&line.text, self.is_text)?,
        };
        let mut event = EventToPublish::new(self.topic.as_str(), &payload);
        if let Some(key) = &self.key {
            event = event.key(fill(key));
        }
        for (name, value) in &self.headers {
            event = event.header(name.as_str(), fill(value));
        }
        let event = self.tags.iter().fold(event, |event, tag| event.tag(tag.as_str()));
        Ok(PreparedEvent { line: line.number, event })
    }
}

/// Refuses a place that has no meaning.
fn check_place(place: &TemplatePlace) -> Result<()> {
    let args = place.args.as_slice();
    match (place.word.as_str(), args) {
        ("count" | "id" | "time" | "date" | "line", []) => Ok(()),
        ("random", [low, high]) => {
            let read =
                |text: &str| text.parse::<i64>().with_context(|| format!("`{text}` is not a whole number"));
            ensure!(read(low)? <= read(high)?, "{{{{random {low} {high}}}}}: give the lower number first");
            Ok(())
        }
        ("pick", [_, ..]) => Ok(()),
        ("text", [letters]) => {
            let is_good = letters.parse::<u16>().is_ok_and(|letters| (1..=10_000).contains(&letters));
            ensure!(is_good, "{{{{text {letters}}}}}: give a number of letters from 1 to 10000");
            Ok(())
        }
        _ => bail!(
            "`{{{{{} {}}}}}` has no meaning; use {{{{count}}}}, {{{{random 1 100}}}}, {{{{pick a b}}}}, {{{{text 8}}}}, {{{{id}}}}, \
             {{{{time}}}}, {{{{date}}}} or {{{{line}}}}",
            place.word,
            args.join(" ")
        ),
    }
}

/// The values of places for one event.
struct PlaceValues {
    n: u64,
    mint: IdMint,
    clock: SystemClock,
    random: std::cell::Cell<u64>,
}

impl PlaceValues {
    fn new() -> Result<Self> {
        let (mint, clock) = (IdMint::new()?, SystemClock::new());
        let seed = mint.mint(0);
        let (_, seed) = seed.as_bytes().split_at(8);
        let seed = seed.iter().fold(0_u64, |seed, byte| seed << 8 | u64::from(*byte));
        Ok(Self { n: 1, mint, clock, random: std::cell::Cell::new(seed) })
    }

    /// Goes to the `n`th event.
    fn turn(&mut self, n: u64) {
        self.n = n;
    }

    fn value(&self, place: &TemplatePlace, line: &str) -> String {
        let args = place.args.as_slice();
        match (place.word.as_str(), args) {
            ("count", _) => self.n.to_string(),
            ("id", _) => self.mint.mint(u64::try_from(self.clock.wall_ms()).unwrap_or(0)).to_string(),
            ("time", _) => self.clock.wall_ms().to_string(),
            ("date", _) => time_text(self.clock.wall_ms()),
            ("line", _) => line.to_owned(),
            ("random", [low, high]) => {
                let (low, high) = (low.parse().unwrap_or(0_i64), high.parse().unwrap_or(0_i64));
                let span = high.abs_diff(low).saturating_add(1);
                low.wrapping_add_unsigned(self.below(span)).to_string()
            }
            ("pick", words) => {
                let at = usize::try_from(self.below(words.len() as u64)).unwrap_or(0);
                words.get(at).cloned().unwrap_or_default()
            }
            ("text", [letters]) => {
                let letter = |_| char::from(b'a' + u8::try_from(self.below(26)).unwrap_or(0));
                (0..letters.parse().unwrap_or(0_u16)).map(letter).collect()
            }
            _ => String::new(),
        }
    }

    /// A random number below `end`, by splitmix64.
    fn below(&self, end: u64) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_their_values() {
        let mut values = PlaceValues::new().unwrap();
        values.turn(7);
        let fill = |text: &str| {
            TextTemplate::parse(text, check_place).unwrap().fill(|place| values.value(place, "l"))
        };
        assert_eq!(fill("{{count}} {{line}}"), "7 l");
        for _ in 0..100 {
            assert!((-2..=2).contains(&fill("{{random -2 2}}").parse::<i64>().unwrap()));
            assert!(["a", "b"].contains(&fill("{{pick a b}}").as_str()));
        }
        assert_eq!(fill("{{text 9}}").len(), 9);
        assert_ne!(fill("{{id}}"), fill("{{id}}"));
    }

    #[test]
    fn places_without_a_meaning_are_refused() {
        for text in [
            "{{m}}",
            "{{random 1}}",
            "{{random a b}}",
            "{{random 2 1}}",
            "{{pick}}",
            "{{text 0}}",
            "{{count 1}}",
        ] {
            assert!(TextTemplate::parse(text, check_place).is_err(), "{text}");
        }
    }
}
