//! JSON Schemas: reading one, compiling it, holding a payload against it, and comparing two of them.
//!
//! Pure: it reads no clock, waits for nothing and stores nothing.
//!
//! | module | holds |
//! | --- | --- |
//! | `text` | a schema as it is given, and its limits |
//! | [`validator`] | compiling a schema |
//! | `rejection` | the rules that a payload breaks |
//! | [`compat`] | whether a new schema fits an old one |
//! | `comparison` | a new version compared with the versions before it |
//! | `error` | the refusal of a text that is no schema |

mod comparison;
pub mod compat;
mod error;
mod rejection;
mod text;
pub mod validator;

pub use self::comparison::{Compared, Incompatible, judge};
pub use self::error::BadSchema;
pub use self::rejection::{SchemaRejected, SchemaViolation, VIOLATIONS_MAX};
pub use self::text::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SchemaText};

/// The header that says which version a payload fits. The server sets it; a publisher that names a version is held to it.
pub const VERSION_HEADER: &str = "x-schema-version";
