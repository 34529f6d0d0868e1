//! One HTTP request.

use std::fmt::Write;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;

use crate::error::ClientError;
use crate::frames::encode::payload_json;

/// A request: its method, path, query and body.
pub(crate) struct HttpCall {
    pub(crate) method: Method,
    /// Path and query, escaped.
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) media: Option<&'static str>,
    pub(crate) body: Bytes,
    /// A status that is not an error, beside success.
    pub(crate) allowed: Option<StatusCode>,
    has_query: bool,
}

impl HttpCall {
    /// A request to the path with these segments.
    pub(crate) fn new(method: Method, segments: &[&str]) -> Self {
        let mut target = String::new();
        for segment in segments {
            target.push('/');
            escape(&mut target, segment);
        }
        let headers = Vec::new();
        Self { method, target, headers, media: None, body: Bytes::new(), allowed: None, has_query: false }
    }

    /// A request to a target that is escaped already, with a body that is JSON.
    pub(crate) fn raw(method: &str, target: &str, body: Bytes) -> Result<Self, ClientError> {
        let method = method.parse().map_err(|_| {
            let message = format!("`{method}` is not a method of HTTP; give GET, POST, PUT or DELETE");
            ClientError::new("bad_request", message)
        })?;
        let media = (!body.is_empty()).then_some("application/json");
        Ok(Self { target: target.to_owned(), media, body, ..Self::new(method, &[]) })
    }

    pub(crate) fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    pub(crate) fn post(segments: &[&str]) -> Self {
        Self::new(Method::POST, segments)
    }

    /// Adds a parameter.
    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.target.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        escape(&mut self.target, name);
        self.target.push('=');
        escape(&mut self.target, &value.to_string());
        self
    }

    /// Adds a parameter, if it is given.
    pub(crate) fn maybe(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Adds `name=1`, if it is wanted.
    pub(crate) fn flag(self, name: &str, is_wanted: bool) -> Self {
        self.maybe(name, is_wanted.then_some(1))
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the body.
    pub(crate) fn json<T: Serialize + ?Sized>(mut self, body: &T) -> Result<Self, ClientError> {
        self.body = payload_json(body)?.into();
        self.media = Some("application/json");
        Ok(self)
    }
}

/// Appends text for a segment of a path or a value of a query.
fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                out.push(byte.into())
            }
            // Writing to a text cannot fail.
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_escaped() {
        let call = HttpCall::get(&["state", "a.b", "x/y z"]).query("key", "a&b").maybe("at", None::<u64>);
        assert_eq!(call.flag("force", true).target, "/state/a.b/x%2Fy%20z?key=a%26b&force=1");
    }
}
