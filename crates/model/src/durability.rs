//! What an acknowledgement promises.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What an event has survived by the time its publisher hears of it: a server default, a topic setting, and a word in
/// every acknowledgement. In every mode an acknowledged event survives the crash of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Embedded store, its default: the acknowledgement follows a sync, so the event survives a power cut. It does not
    /// survive the loss of the disk.
    Fsync,
    /// Embedded store: acknowledged when handed to the operating system, synced every 50 ms. A power cut or a kernel
    /// crash can lose that last moment of events; it never reorders what remains.
    Os,
    /// MongoDB, its default: journalled on a majority of the replica set, so the event survives the loss of any
    /// minority of its nodes.
    Majority,
    /// MongoDB: written on the primary. A failover before replication can lose the event; readers, who read what a
    /// majority has, will then never have seen it.
    W1,
}

/// A word that names no durability.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown durability; use `fsync` or `os` with the embedded store, `majority` or `w1` with MongoDB")]
pub struct UnknownDurability;

impl Durability {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Fsync, Self::Os, Self::Majority, Self::W1];

    /// The word used in settings and acknowledgements.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
            Self::Majority => "majority",
            Self::W1 => "w1",
        }
    }

    /// Whether the embedded store offers it; MongoDB offers the others.
    pub const fn is_embedded(self) -> bool {
        matches!(self, Self::Fsync | Self::Os)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|d| d.as_str() == word).ok_or(UnknownDurability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_everywhere() {
        for durability in Durability::ALL {
            let word = durability.to_string();
            assert_eq!(word.parse(), Ok(durability));
            assert_eq!(serde_json::to_string(&durability).unwrap(), format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<Durability>(&format!("\"{word}\"")).unwrap(), durability);
        }
        assert_eq!("FSYNC".parse::<Durability>(), Err(UnknownDurability));
    }
}
