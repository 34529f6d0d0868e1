//! One record.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Who did what. It never holds a token.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Record {
    /// The name of the identity, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub(crate) who: Option<Arc<str>>,
    /// The address.
    pub(crate) from: IpAddr,
    /// `auth`, the id of an HTTP operation, or the op of a frame.
    pub(crate) what: &'static str,
    /// What it was done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on: Option<String>,
    /// `ok`, or the code of the refusal.
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// How many records before this one were lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::ref_option, reason = "as serde wants it")]
fn text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

impl Record {
    pub(crate) fn new(from: IpAddr, what: &'static str, outcome: &'static str) -> Self {
        Self { who: None, from, what, on: None, outcome, request_id: None, lost: 0 }
    }

    /// Whether nothing was done, which a client can bring about as often as it likes.
    pub(super) fn is_refusal(&self) -> bool {
        self.outcome != "ok"
    }

    pub(super) fn json(&self) -> String {
        // It has nothing that cannot be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}
