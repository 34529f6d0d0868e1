//! Durability: what an acknowledgement promises.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What an acknowledgement promises about an event. It is a server default, a topic setting, and a word in
/// every acknowledgement. In every mode an acknowledged event survives a crash of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Default of the embedded store: the acknowledgement follows a sync, so the event survives a power cut.
    /// It does not survive the loss of the disk.
    Fsync,
    /// Embedded store: the acknowledgement follows the write to the operating system, which is synced every
    /// 50 ms. A power cut or a kernel crash can lose the last 50 ms of events; it never reorders the others.
    Os,
    /// Default of MongoDB: the event is journalled on a majority of the replica set, so it survives the loss
    /// of any minority of the nodes.
    Majority,
    /// MongoDB: the event is written on the primary. A failover before replication can lose it; readers will
    /// then never have seen it, because they read what a majority has.
    W1,
}

/// The error for a word that names no durability.
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

    /// The stronger of two wishes. `None` wishes for the store's default, which is at least the weaker word of the store.
    pub const fn stronger(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(Self::Fsync | Self::Majority), _) => one,
            (_, Some(Self::Fsync | Self::Majority)) => other,
            (None, _) | (_, None) => None,
            (Some(Self::Os | Self::W1), Some(Self::Os | Self::W1)) => one,
        }
    }

    /// Whether the embedded store offers this durability; MongoDB offers the others.
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
    fn the_stronger_of_two_wishes_counts() {
        for (weak, strong) in [(Durability::Os, Durability::Fsync), (Durability::W1, Durability::Majority)] {
            let (weak, strong) = (Some(weak), Some(strong));
            for (one, other, expected) in [
                (weak, weak, weak),
                (weak, None, None),
                (None, None, None),
                (weak, strong, strong),
                (None, strong, strong),
                (strong, strong, strong),
            ] {
                assert_eq!(Durability::stronger(one, other), expected);
                assert_eq!(Durability::stronger(other, one), expected);
            }
        }
    }

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
