//! The ops of client frames, with their names.

use std::fmt;

/// Makes [`Op`], [`Op::ALL`], [`Op::name`] and [`Op::from_name`] from one list.
macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $name:literal,)+) => {
        /// The request of a client frame: its field `op`. `op as usize` is the index in [`Op::ALL`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $op,)+
        }

        impl Op {
            /// Every op, in the order of their numbers.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$op),+];

            /// The text of the field `op`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$op => $name,)+
                }
            }

            /// Finds the op with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$op),)+
                    _ => None,
                }
            }
        }
    };
}

ops! {
    /// Tells the server who the client is.
    Auth = "AUTH",
    /// Publishes one event, or several that are committed together.
    Publish = "PUBLISH",
    /// Starts a subscription.
    Subscribe = "SUBSCRIBE",
    /// Ends a subscription.
    Unsubscribe = "UNSUBSCRIBE",
    /// Finishes deliveries.
    Ack = "ACK",
    /// Gives deliveries back, to be delivered again.
    Nack = "NACK",
    /// Extends the leases of deliveries.
    Modack = "MODACK",
    /// Stops deliveries for now.
    Pause = "PAUSE",
    /// Starts deliveries again after a pause.
    Resume = "RESUME",
    /// Asks for events, in a subscription that pulls.
    Fetch = "FETCH",
    /// Moves the group's cursor.
    Seek = "SEEK",
}

/// Displays the names of all ops as a sentence lists them: `A, B or C`.
pub(super) struct OpNames;

impl fmt::Display for OpNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, between @ .., last] = Op::ALL;
        f.write_str(first.name())?;
        for op in between {
            write!(f, ", {}", op.name())?;
        }
        write!(f, " or {}", last.name())
    }
}
