//! Types of parameters: which values are accepted, and their JSON Schema. The two must say the same.

use promethean_delivery::Subject;
use promethean_model::{CollectionName, EventId, GroupName, TopicName};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// The type of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParamType {
    /// The name of a topic.
    Topic,
    /// The name of a topic that is not one of the system.
    UserTopic,
    /// A topic or a pattern.
    Subject,
    /// The name of a group.
    Group,
    /// The name of a collection.
    Collection,
    /// The id of an event.
    Id,
    /// Any text.
    Text,
    /// Visible ASCII, as in headers.
    Ascii,
    /// Bytes, each as two hexadecimal digits.
    Hex,
    /// A whole number in this range.
    Int(i64, i64),
    /// A time, in one of the forms that people write.
    Moment,
    /// An offset.
    Offset,
    /// An offset, or `none`.
    OffsetOrNone,
    /// A version of a schema, or `latest`.
    Version,
    /// `0` or `1`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `offset` or `topic:offset`.
    EventPlace,
}

/// The largest JSON number that is exact in every language. No topic gets that long.
const OFFSET_MAX: u64 = (1 << 53) - 1;

const WORD: &str = "[a-z0-9_-]+(:+[a-z0-9_-]+)*";
const FIRST_USER_WORD: &str = "[a-z0-9-][a-z0-9_-]*(:+[a-z0-9_-]+)*";
/// The times that are texts: a date with time and zone, `now`, or a length of time with `ago`.
const MOMENT_TEXT: &str = "^ *([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})|[Nn][Oo][Ww]|([0-9]+(ms|d|h|m|s))+ +ago) *$";

impl ParamType {
    /// Refuses a value that is not of this type.
    pub(super) fn check(&self, name: &str, value: &str) -> Result<(), Refusal> {
        let bad =
            |want: &str| Refusal::bad_request(format!("`{name}` is not {want}")).with("parameter", name);
        let named = |error: promethean_bus::BusError| Refusal::from(error).with("parameter", name);
        match self {
            Self::Topic | Self::UserTopic => {
                value.parse::<TopicName>().map(drop).map_err(|error| named(error.into()))
            }
            Self::Group => value.parse::<GroupName>().map(drop).map_err(|error| named(error.into())),
            Self::Collection => {
                value.parse::<CollectionName>().map(drop).map_err(|error| named(error.into()))
            }
            Self::Subject => value.parse::<Subject>().map(drop).map_err(|error| named(error.into())),
            Self::Id => value.parse::<EventId>().map(drop).map_err(|error| {
                Refusal::bad_request(format!("`{name}` is {error}")).with("parameter", name)
            }),
            Self::Text => Ok(()),
            Self::Ascii => match value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                true => Ok(()),
                false => Err(bad("visible ASCII; send other text as a query parameter")),
            },
            Self::Hex => match from_hex(value) {
                Some(_) => Ok(()),
                None => Err(bad("hexadecimal; give it as the server gave it")),
            },
            Self::Int(min, max) => match integer::<i64>(value) {
                Some(number) if (min..=max).contains(&&number) => Ok(()),
                _ => Err(bad(&format!("a whole number from {min} to {max}; give one"))),
            },
            // Whether the text is a time does not depend on `now`.
            Self::Moment => match promethean_model::Moment::parse(value, 0) {
                Ok(_) => Ok(()),
                Err(error) => Err(Refusal::bad_request(format!("`{name}`: {error}")).with("parameter", name)),
            },
            Self::Offset => match offset(value) {
                true => Ok(()),
                false => Err(bad("an offset; give a whole number that is not negative")),
            },
            Self::OffsetOrNone => match value == "none" || offset(value) {
                true => Ok(()),
                false => Err(bad("an offset or `none`; give a whole number that is not negative, or `none`")),
            },
            Self::Version => {
                match value == "latest" || integer::<u32>(value).is_some_and(|version| version > 0) {
                    true => Ok(()),
                    false => Err(bad("a version; give a whole number from 1, or `latest`")),
                }
            }
            Self::Flag => match value == "0" || value == "1" {
                true => Ok(()),
                false => Err(bad("`0` or `1`; give one of them")),
            },
            Self::Word(words) => match words.contains(&value) {
                true => Ok(()),
                false => Err(bad(&format!("one of `{}`; give one of them", words.join("`, `")))),
            },
            Self::EventPlace => match value.rsplit_once(':') {
                Some((topic, number)) if topic.parse::<TopicName>().is_ok() && offset(number) => Ok(()),
                None if offset(value) => Ok(()),
                _ => Err(bad(
                    "an offset, or a topic and an offset as in `orders.placed:7`; leave it out to begin again",
                )),
            },
        }
    }

    /// The JSON Schema of the accepted values.
    pub(super) fn schema(&self) -> Value {
        let topic = |first: &str| json!({"type": "string", "pattern": format!("^{first}(\\.{WORD})*$"), "maxLength": 180});
        let whole = |least: i64| json!({"type": "integer", "minimum": least, "maximum": OFFSET_MAX});
        match self {
            Self::Topic => topic(WORD),
            Self::UserTopic => topic(FIRST_USER_WORD),
            Self::Subject => {
                json!({"type": "string", "maxLength": 180,
                    "anyOf": [topic(WORD), {"pattern": "^([a-z0-9-][a-z0-9_-]*\\.)+\\*\\*?$"}]})
            }
            Self::Group | Self::Collection => {
                json!({"type": "string", "pattern": "^[A-Za-z0-9_.:-]+$", "maxLength": 120})
            }
            Self::Id => json!({"type": "string", "format": "uuid",
                "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"}),
            Self::Text => json!({"type": "string"}),
            Self::Ascii => json!({"type": "string", "pattern": "^([!-~]([ -~]*[!-~])?)?$"}),
            Self::Hex => json!({"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}),
            Self::Int(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Moment => json!({"oneOf": [
                {"type": "integer", "minimum": -(1_i64 << 53) + 1, "maximum": OFFSET_MAX},
                {"type": "string", "pattern": MOMENT_TEXT, "examples": ["2027-01-31T12:00:00Z", "5m ago", "now"]},
            ]}),
            Self::Offset => whole(0),
            Self::OffsetOrNone => json!({"oneOf": [whole(0), {"const": "none"}]}),
            Self::Version => {
                json!({"oneOf": [{"type": "integer", "minimum": 1, "maximum": u32::MAX}, {"const": "latest"}]})
            }
            Self::Flag => json!({"type": "integer", "enum": [0, 1]}),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::EventPlace => {
                json!({"type": "string", "pattern": format!("^({WORD}(\\.{WORD})*:)?(0|[1-9][0-9]{{0,14}})$")})
            }
        }
    }
}

/// Parses digits with an optional minus sign. Refuses `+5` and `05`, which other readers understand
/// differently.
fn integer<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|number| number.to_string() == text)
}

/// The bytes that [`ParamType::Hex`] writes.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn offset(text: &str) -> bool {
    integer::<u64>(text).is_some_and(|offset| offset <= OFFSET_MAX)
}

#[cfg(test)]
mod tests {
    use promethean_model::Moment;

    use super::*;

    #[test]
    fn bytes_are_pairs_of_hexadecimal_digits() {
        assert_eq!(from_hex("00ff1A"), Some(vec![0, 255, 26]));
        assert_eq!(from_hex(""), Some(vec![]));
        for bad in ["W", "0", "0g", "00 1", "+1"] {
            assert_eq!(from_hex(bad), None, "{bad}");
            assert!(ParamType::Hex.check("after", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_schema_of_times_has_every_form() {
        let schema = ParamType::Moment.schema();
        assert_eq!(
            (&schema["oneOf"][0]["type"], &schema["oneOf"][1]["type"]),
            (&json!("integer"), &json!("string"))
        );
        for text in schema["oneOf"][1]["examples"].as_array().unwrap() {
            assert!(Moment::parse(text.as_str().unwrap(), 0).is_ok(), "{text}");
        }
    }
}
