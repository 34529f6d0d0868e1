//! jq programs: one expression language for upcasters, downcasters and projectors.
//!
//! A program comes from the configuration, so it is the operator's; what is guarded against is a mistake, not an attack.
//! It sees its input and nothing else: no other input, no environment, no files, no time. It runs on a thread of its own
//! pool with a large stack, and every step of it is counted. A step too many, recursion too deep, a value or an output
//! too large end the call, and so does its time. A program that does not give its thread back, or takes too long three
//! times in a row, is stuck and not run again. What its intermediate values take together is bounded by nothing but its
//! steps and its time.
//!
//! | module | holds |
//! | --- | --- |
//! | `program` | compiling, and running on JSON text |
//! | `names` | which functions there are |
//! | `rewrite` | puts the guards into a program |
//! | `guard` | what a run may use: steps, stack, sizes |
//! | `text` | values as JSON text |
//! | `pool` | the threads, and the watchdog over them |
//! | `watch` | what a job's thread and the watchdog share |
//!
//! Numbers: whole numbers of any size and decimals that a program passes on stay as they were written. Arithmetic on
//! decimals is that of 64-bit floats, on whole numbers exact. Names of objects keep their order; deleting one moves the
//! last name to its place. Unlike jq's, assignment does not make objects of `null`: `.a = {b: 1}`, not `.a.b = 1`.

mod guard;
mod names;
mod pool;
mod program;
mod rewrite;
mod text;
mod watch;

use std::time::Duration;

use thiserror::Error;

pub use self::pool::{Answer, Lane, Pool, PoolError, PoolStatus};
pub use self::program::{BadProgram, Outputs, Program};
pub use self::watch::JobWatch;

/// What one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// How long it may take. Default: 1 s. Seen within about 50 ms.
    pub time: Duration,
    /// Steps of the program. Default and maximum: 1,000,000.
    pub steps: u64,
    /// Values it may give. Default: 1,000.
    pub outputs: usize,
    /// Bytes of all of them as JSON text. Default: 16 MiB.
    pub output_bytes: usize,
}

impl Caps {
    /// The most steps of a call: so many that no value a program can nest is too deep for the stack.
    pub const STEPS_MAX: u64 = 1_000_000;
}

impl Default for Caps {
    fn default() -> Self {
        Self { time: Duration::from_secs(1), steps: Self::STEPS_MAX, outputs: 1_000, output_bytes: 16 << 20 }
    }
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// The program itself said so.
    #[error("{message}")]
    Failed {
        /// Its message, at most 1 KiB of it.
        message: String,
    },
    /// It took too long, in this call or in earlier ones.
    #[error("the program took too long, or is stuck since it did; repair it and load it again")]
    Stuck,
    /// It ran for too many steps.
    #[error("the program took more than {max} steps; look for a loop without an end")]
    Steps {
        /// How many it may take.
        max: u64,
    },
    /// It called itself too often.
    #[error("the program is nested too deep; look for a recursion without an end")]
    Depth,
    /// It made a value that is too large.
    #[error("the program made a value that is too large; look for text or lists that grow")]
    Size,
    /// It gave too much.
    #[error("the program gave more than {max} {what}")]
    Outputs {
        /// What there was too much of.
        what: &'static str,
        /// How much there may be.
        max: usize,
    },
    /// It gave nothing, where something is needed.
    #[error("the program gave no value; let it give one")]
    Nothing,
    /// It gave something that is no JSON.
    #[error("the program gave a value that is no JSON: {reason}")]
    NotJson {
        /// What is wrong.
        reason: String,
    },
    /// It, or the interpreter, has a bug.
    #[error("the program failed inside the interpreter; simplify it")]
    Broken,
    /// Too much waits to be run.
    #[error("too many programs wait to be run; try again")]
    Busy,
    /// No thread is left to run it.
    #[error("too many programs are stuck; repair those that are, and restart the server")]
    NoThread,
}
