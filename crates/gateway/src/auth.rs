//! Who a client is, and what that client may do.
//!
//! | module | holds |
//! | --- | --- |
//! | [`authenticator`] | from a token to an identity |
//! | [`identity`] | a client that is known |
//! | [`access`] | what can be asked for |
//! | [`grants`] | what is allowed |

pub mod access;
pub mod authenticator;
pub mod grants;
pub mod identity;

pub use access::Access;
pub use authenticator::{AuthError, Authenticator, Open};
pub use grants::Grants;
pub use identity::Identity;
