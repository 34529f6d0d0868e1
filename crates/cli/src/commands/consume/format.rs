//! Events as text: for people, as JSON, the payload alone, or as a template says.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use promethean_client::TypedEvent;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{Paint, Tone, time_text};
use crate::template::{TemplatePlace, TextTemplate};

/// An event whose payload stays the text that it is.
pub(crate) type UntypedEvent = TypedEvent<Box<RawValue>>;

/// The flags that choose how events are printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct EventFormatArgs {
    /// Print one pretty line, the whole event as json, or the raw payload [default: pretty, in a pipe json]
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Output")]
    format: Option<EventFormat>,
    /// Print this text for each event, as in '{{offset}} {{key}} {{payload.order}}'
    #[arg(long, value_name = "TEXT", help_heading = "Output", conflicts_with = "format")]
    template: Option<String>,
    /// The same as --format json
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "template"])]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventFormat {
    Pretty,
    Json,
    Raw,
}

/// Writes events.
#[derive(Debug)]
pub(crate) enum EventWriter {
    Pretty(Paint),
    Json,
    Raw,
    Template(TextTemplate),
}

impl EventWriter {
    pub(crate) fn new(args: &EventFormatArgs) -> Result<Self> {
        if let Some(text) = &args.template {
            let text = text.replace("\\n", "\n").replace("\\t", "\t");
            return Ok(Self::Template(TextTemplate::parse(&text, check_place)?));
        }
        let is_terminal = crate::output::stdout_is_terminal();
        Ok(match (args.format, args.json || !is_terminal) {
            (Some(EventFormat::Pretty), _) | (None, false) => Self::Pretty(Paint::stdout()),
            (Some(EventFormat::Json), _) | (None, true) => Self::Json,
            (Some(EventFormat::Raw), _) => Self::Raw,
        })
    }

    /// Appends the line of an event.
    pub(crate) fn write(&self, out: &mut Vec<u8>, event: &UntypedEvent) -> Result<()> {
        match self {
            Self::Pretty(paint) => out.extend(pretty(*paint, event).into_bytes()),
            Self::Json => serde_json::to_writer(&mut *out, event)?,
            Self::Raw => out.extend(event.payload.get().as_bytes()),
            Self::Template(template) => {
                let payload = serde_json::from_str(event.payload.get())?;
                out.extend(template.fill(|place| value_of(place, event, &payload)).into_bytes());
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

fn pretty(paint: Paint, event: &UntypedEvent) -> String {
    let mut line = format!(
        "{}  {} {}",
        paint.paint(Tone::Faint, &time_text(event.ts)),
        paint.paint(Tone::Strong, event.topic.as_str()),
        paint.paint(Tone::Faint, &format!("#{}", event.offset)),
    );
    if let Some(key) = &event.key {
        line.push_str(&format!("  {}", paint.paint(Tone::Mark, &plain(key))));
    }
    for (name, value) in &event.headers {
        line.push_str(&format!("  {}", paint.paint(Tone::Faint, &plain(&format!("{name}={value}")))));
    }
    line.push_str("  ");
    line.push_str(event.payload.get());
    line
}

/// The text without characters that a terminal would act on. Payloads have none: JSON escapes them.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

const PLACES: &str = "topic, offset, id, ts, time, key, partition, headers.NAME, payload and payload.FIELD";

fn check_place(place: &TemplatePlace) -> Result<()> {
    let (first, rest) = place.word.split_once('.').unwrap_or((&place.word, ""));
    let is_known = match first {
        "topic" | "offset" | "id" | "ts" | "time" | "key" | "partition" => rest.is_empty(),
        "payload" => true,
        "headers" => !rest.is_empty(),
        _ => false,
    };
    if !is_known || !place.args.is_empty() {
        bail!("`{{{{{}}}}}` has no meaning; there is {PLACES}", place.word);
    }
    Ok(())
}

fn value_of(place: &TemplatePlace, event: &UntypedEvent, payload: &Value) -> String {
    let (first, rest) = place.word.split_once('.').unwrap_or((&place.word, ""));
    match first {
        "topic" => event.topic.to_string(),
        "offset" => event.offset.to_string(),
        "id" => event.id.to_string(),
        "ts" => event.ts.to_string(),
        "time" => time_text(event.ts),
        "key" => event.key.clone().unwrap_or_default(),
        "partition" => event.partition.map(|partition| partition.to_string()).unwrap_or_default(),
        "headers" => event.headers.get(rest).cloned().unwrap_or_default(),
        _ if rest.is_empty() => event.payload.get().to_owned(),
        _ => {
            let found = rest.split('.').try_fold(payload, |value, name| match value {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                _ => value.get(name),
            });
            match found {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> UntypedEvent {
        let text = r#"{"id":"0b7a34f2-9a53-4f8e-8f0a-3a1c0c7d5e11","ts":1000,"topic":"a.b","offset":7,"key":"k\u001b","headers":{"x-r":"eu"},"payload":{"a":[{"b":"c"}],"n":1.50}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn written(writer: &EventWriter) -> String {
        let mut out = Vec::new();
        writer.write(&mut out, &event()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn events_are_written_in_each_format() {
        assert_eq!(
            written(&EventWriter::Pretty(Paint::off())),
            "1970-01-01T00:00:01Z  a.b #7  k\u{fffd}  x-r=eu  {\"a\":[{\"b\":\"c\"}],\"n\":1.50}\n"
        );
        assert_eq!(written(&EventWriter::Raw), "{\"a\":[{\"b\":\"c\"}],\"n\":1.50}\n");
        let json: Value = serde_json::from_str(&written(&EventWriter::Json)).unwrap();
        assert_eq!((&json["offset"], &json["headers"]["x-r"]), (&7.into(), &"eu".into()));
        let template =
            TextTemplate::parse("{{offset}}|{{payload.a.0.b}}|{{payload.x}}|{{headers.x-r}}", check_place);
        assert_eq!(written(&EventWriter::Template(template.unwrap())), "7|c||eu\n");
        assert!(
            TextTemplate::parse("{{ofset}}", check_place).unwrap_err().to_string().contains("there is topic")
        );
    }
}
