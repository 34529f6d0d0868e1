//! The id of an event: a UUID of any version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;
use uuid::{Builder, Uuid};
use xxhash_rust::xxh3::xxh3_128;

/// An event's id. Publishers may give any UUID; the server mints version 7 ids, which sort by time.
///
/// Its text is `8-4-4-4-12` hexadecimal digits: read in either case, written in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId([u8; 16]);

/// The error for a text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a UUID; write 8-4-4-4-12 hexadecimal digits, or leave the id out to be given one")]
pub struct IdError;

impl EventId {
    /// Bytes of the text form.
    pub const TEXT_BYTES: usize = 36;

    /// Makes the id with these bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Writes the text form into `buf`, for callers that must not allocate.
    pub fn encode_text<'a>(&self, buf: &'a mut [u8; Self::TEXT_BYTES]) -> &'a str {
        self.uuid().hyphenated().encode_lower(buf)
    }

    /// The time in the id, in milliseconds since 1970 began, if it is of version 7.
    pub fn unix_ms(&self) -> Option<u64> {
        let [a, b, c, d, e, f, version, _, variant, ..] = self.0;
        let is_v7 = version >> 4 == 7 && variant >> 6 == 0b10;
        is_v7.then(|| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Derives an id from `namespace` and `name`: a version 8 UUID over the XXH3-128 of the namespace's
    /// length (u64, little-endian), the namespace and the name. Stored ids depend on this, so it never
    /// changes.
    ///
    /// XXH3 resists accidents, not attackers: derive only from names that the system chooses.
    pub fn derive(namespace: &[u8], name: &[u8]) -> Self {
        let mut input = Vec::with_capacity(8 + namespace.len() + name.len());
        input.extend_from_slice(&(namespace.len() as u64).to_le_bytes());
        input.extend_from_slice(namespace);
        input.extend_from_slice(name);
        Self(Builder::from_custom_bytes(xxh3_128(&input).to_be_bytes()).into_uuid().into_bytes())
    }

    const fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.0)
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `Uuid` also reads braced, URN and undashed forms, which other readers of the log may not.
        if text.len() != Self::TEXT_BYTES {
            return Err(IdError);
        }
        Uuid::try_parse(text).map(|uuid| Self(uuid.into_bytes())).map_err(|_| IdError)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.encode_text(&mut [0; Self::TEXT_BYTES]))
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({self})")
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.encode_text(&mut [0; Self::TEXT_BYTES]))
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = EventId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID as text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<EventId, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_any_version_in_either_case() {
        let check = |text: &str, unix_ms: Option<u64>| {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.to_string(), text.to_lowercase());
            assert_eq!(id.unix_ms(), unix_ms, "{text}");
        };
        check("00000000-0000-0000-0000-000000000000", None);
        check("ffffffff-ffff-ffff-ffff-ffffffffffff", None);
        check("F47AC10B-58CC-4372-A567-0E02B2C3D479", None);
        check("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", Some(1_645_557_742_000));
        check("017f22e2-79b0-7cc3-18c4-dc0c0c07398f", None);
    }

    #[test]
    fn refuses_other_forms() {
        for text in [
            "",
            "017f22e279b07cc398c4dc0c0c07398f",
            "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
            "017f22e2-79b0-7cc3-98c4dc-0c0c07398f",
            " 17f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "\u{e9}17f22e2-79b0-7cc3-98c4-dc0c0c0739",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(IdError), "{text:?}");
        }
    }

    #[test]
    fn derived_ids_never_change() {
        let id = EventId::derive(b"processes.txn", b"process.state/7/0");
        assert_eq!(id.to_string(), "1a3155d8-7782-8486-ba6e-69e9bd5f8cfe");
        assert_eq!(id.as_bytes()[6] >> 4, 8);
        assert_ne!(EventId::derive(b"ab", b"c"), EventId::derive(b"a", b"bc"));
    }

    proptest! {
        #[test]
        fn text_and_json_round_trip(bytes in any::<[u8; 16]>()) {
            let id = EventId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
        }

        #[test]
        fn order_is_that_of_the_text(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
            let (a, b) = (EventId::from_bytes(a), EventId::from_bytes(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
