//! jq programs: one expression language for upcasters, downcasters and projectors.
//!
//! A program comes from the operator's configuration, so it is guarded against mistakes, not against attacks.
//! It sees its input and nothing else: no other input, no environment, no files, no time. It runs on a thread
//! of a [`Pool`] with a large stack, and every step of it is counted. A call ends when it takes too many
//! steps or too much time, recurses too deep, or makes a value or an output that is too large; that is a failure
//! of this call, and the next call runs as usual. A function in Rust, such as a pattern on a long text, cannot be
//! ended: its thread is given up until it returns. A program that keeps four such threads is stuck, and is not
//! run until one of them returns. All texts, lists and objects that one call makes may have 256 MiB together; a value
//! that grows in its place counts once.
//!
//! | module | holds |
//! | --- | --- |
//! | `program` | compiling, and running on JSON text |
//! | `names` | the functions that a program may call |
//! | `rewrite` | puts the guards into a program |
//! | `guard` | the bounds of a run: steps, stack, sizes |
//! | `text` | values as JSON text |
//! | `pool` | the threads, and the watchdog over them |
//! | `watch` | what a job's thread and the watchdog share |
//!
//! Numbers that a program passes on stay as they were written. Arithmetic is exact on whole numbers of any
//! size, and that of 64-bit floats on decimals. Names of objects keep their order; deleting one moves the
//! last name to its place. Unlike in jq, assignment does not make objects of `null`: write `.a = {b: 1}`, not
//! `.a.b = 1`.

mod guard;
mod names;
mod pool;
mod program;
mod rewrite;
mod text;
mod watch;

use std::time::Duration;

use thiserror::Error;

pub use self::pool::{JobAnswer, Lane, Pool, PoolError, PoolStatus};
pub use self::program::{BadProgram, Outputs, Program};
pub use self::watch::JobWatch;

/// The bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// How long it may take. Default: 1 s. A call over its time is ended within about 50 ms.
    pub time: Duration,
    /// Steps it may take. Default and maximum: 1,000,000.
    pub steps: u64,
    /// Values it may give. Default: 1,000.
    pub outputs: usize,
    /// Bytes of all values it gives, as JSON text. Default: 16 MiB.
    pub output_bytes: usize,
}

impl Caps {
    /// The most steps of a call. So few that a program cannot nest a value too deep for the stack.
    pub const STEPS_MAX: u64 = 1_000_000;
}

impl Default for Caps {
    fn default() -> Self {
        Self { time: Duration::from_secs(1), steps: Self::STEPS_MAX, outputs: 1_000, output_bytes: 16 << 20 }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// The program raised an error.
    #[error("{message}")]
    Failed {
        /// The message of the error, cut to 1 KiB.
        message: String,
    },
    /// It took too long.
    #[error("the program took too long for this input; look for a loop, or for a pattern on a long text")]
    Time,
    /// It keeps too many threads.
    #[error(
        "the program is stuck: four of its calls took too long and have not ended; repair it and load it again"
    )]
    Stuck,
    /// It ran for too many steps.
    #[error("the program took more than {max} steps; look for a loop without an end")]
    Steps {
        /// How many it may take.
        max: u64,
    },
    /// It recursed too deep.
    #[error("the program is nested too deep; look for a recursion without an end")]
    Depth,
    /// It made a value that is too large.
    #[error("the program made a value that is too large; look for text or lists that grow")]
    Size,
    /// It gave too many values, or too many bytes.
    #[error("the program gave more than {max} {what}")]
    Outputs {
        /// `values` or `bytes`.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// It gave no value where one is needed.
    #[error("the program gave no value; let it give one")]
    Nothing,
    /// It gave a value that is no JSON.
    #[error("the program gave a value that is no JSON: {reason}")]
    NotJson {
        /// What is wrong.
        reason: String,
    },
    /// The interpreter panicked.
    #[error("the program failed inside the interpreter; simplify it")]
    Broken,
    /// Too many jobs wait for a thread.
    #[error("too many programs wait to be run; try again")]
    Busy,
    /// No thread is left to run it.
    #[error("too many programs are stuck; repair them, and restart the server")]
    NoThread,
}
