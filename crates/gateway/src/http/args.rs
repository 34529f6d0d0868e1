//! The parameters of a request, checked against the table.

use std::str::FromStr;

use axum::http::HeaderMap;

use super::operation::{Operation, Param, ParamPlace, Times};
use crate::refusal::Refusal;

/// Field parameters, whose names the client chooses, at most.
const FIELDS_MAX: usize = 32;

/// Parameters by name, each of the type that the table says.
#[derive(Debug, Default)]
pub(super) struct Args {
    values: Vec<(&'static str, String)>,
    /// Parameters whose names the client chooses.
    fields: Vec<(String, String)>,
}

impl Args {
    /// Reads the parameters of an operation. Every name in the query must be known; `path` has the decoded
    /// words for the names in the operation's path, in their order.
    pub(super) fn read(
        operation: &'static Operation,
        path: Vec<String>,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let mut args = Self::default();
        let of = |place: ParamPlace| operation.params.iter().filter(move |param| param.place == place);
        for (param, value) in of(ParamPlace::Path).zip(path) {
            args.add(param, value)?;
        }
        for (name, value) in pairs(query.unwrap_or_default())? {
            let Some(param) = of(ParamPlace::Query).find(|param| param.name == name) else {
                if of(ParamPlace::Fields).next().is_some() {
                    args.add_field(name, value)?;
                    continue;
                }
                return Err(unknown(&name, of(ParamPlace::Query).map(|param| param.name).collect()));
            };
            args.add(param, value)?;
        }
        for param in of(ParamPlace::Header) {
            for value in headers.get_all(param.name) {
                let text = value.to_str().map_err(|_| {
                    let fix = "send visible ASCII, or other text as a query parameter";
                    Refusal::bad_request(format!("header `{}` has other bytes; {fix}", param.name))
                        .with("parameter", param.name)
                })?;
                args.add(param, text.to_owned())?;
            }
        }
        for param in operation.params {
            let count = args.all(param.name).count();
            let least = match param.times {
                Times::Once => 1,
                Times::AtMostOnce => 0,
                Times::Many(least, _) => least,
            };
            if count < least {
                let message = format!("`{0}` is missing; add `{0}=`, {1}", param.name, param.about);
                return Err(Refusal::bad_request(message).with("parameter", param.name));
            }
        }
        Ok(args)
    }

    fn add(&mut self, param: &'static Param, value: String) -> Result<(), Refusal> {
        param.kind.check(param.name, &value)?;
        let most = match param.times {
            Times::Once | Times::AtMostOnce => 1,
            Times::Many(_, most) => most,
        };
        if self.all(param.name).count() >= most {
            let message = format!("`{}` comes more than {most} time(s); send it less often", param.name);
            return Err(Refusal::bad_request(message).with("parameter", param.name));
        }
        self.values.push((param.name, value));
        Ok(())
    }

    fn add_field(&mut self, name: String, value: String) -> Result<(), Refusal> {
        if self.fields.iter().any(|(known, _)| *known == name) {
            let message = format!("`{name}` comes more than once; a field has one value");
            return Err(Refusal::bad_request(message).with("parameter", name));
        }
        if self.fields.len() == FIELDS_MAX {
            return Err(Refusal::bad_request(format!("more than {FIELDS_MAX} fields; name fewer")));
        }
        self.fields.push((name, value));
        Ok(())
    }

    /// The parameters whose names the client chooses.
    pub(super) fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// The value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The parsed value of a parameter.
    pub(super) fn parse<T: FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let bad =
            |_| Refusal::bad_request(format!("`{name}` cannot be read; check it")).with("parameter", name);
        self.get(name).map(str::parse).transpose().map_err(bad)
    }

    /// The parsed value of a parameter that must be there.
    pub(super) fn need<T: FromStr>(&self, name: &str) -> Result<T, Refusal> {
        let missing =
            || Refusal::bad_request(format!("`{name}` is missing; give it")).with("parameter", name);
        self.parse(name)?.ok_or_else(missing)
    }

    /// Whether a flag is set; `absent` if the parameter is missing.
    pub(super) fn flag(&self, name: &str, absent: bool) -> bool {
        self.get(name).map_or(absent, |value| value == "1")
    }
}

fn unknown(name: &str, known: Vec<&str>) -> Refusal {
    let name: String = name.chars().take(40).collect();
    let fix = match known.is_empty() {
        true => "leave it out, there are none here".to_owned(),
        false => format!("known are `{}`", known.join("`, `")),
    };
    Refusal::bad_request(format!("unknown query parameter `{name}`; {fix}")).with("parameter", name)
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Some((decode(name, true)?, decode(value, true)?))
    };
    let bad = || Refusal::bad_request("the query is not percent-encoded UTF-8; encode it");
    query.split('&').filter(|text| !text.is_empty()).map(|text| pair(text).ok_or_else(bad)).collect()
}

/// Removes percent-encoding, once. `None` if the encoding is malformed or the result is not UTF-8.
pub(super) fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_comes_off_once() {
        assert_eq!(decode("a%2Eb%252e", false).as_deref(), Some("a.b%2e"));
        assert_eq!(decode("a+b", true).as_deref(), Some("a b"));
        assert_eq!(decode("a+b", false).as_deref(), Some("a+b"));
        for bad in ["%", "%2", "%zz", "%ff", "a%"] {
            assert_eq!(decode(bad, true), None, "{bad}");
        }
    }
}
