//! Who a client is, and what that client may do.
//!
//! | module | holds |
//! | --- | --- |
//! | [`authenticator`] | from a token to an identity |
//! | [`identity`] | a client that is known |
//! | [`quota`] | how much it may use |
//! | [`access`] | what can be asked for |
//! | [`grants`] | what is allowed |
//! | [`static_tokens`] | tokens that are listed, by their hashes |
//! | [`jwt`] | tokens that somebody signed |
//! | [`either`] | both kinds together |
//! | `session` | whether a client is still known |
//! | [`secret`] | what must not be shown |

pub mod access;
pub mod authenticator;
pub mod either;
pub mod grants;
pub mod identity;
pub mod jwt;
pub mod quota;
pub mod secret;
mod session;
pub mod static_tokens;

pub use access::Access;
pub use authenticator::{AuthError, Authenticator, Open};
pub use either::Either;
pub use grants::Grants;
pub use identity::Identity;
pub use jwt::{Jwt, JwtOptions};
pub use quota::Quota;
pub use secret::Secret;
pub(crate) use session::{AuthRecheck, AuthSession};
pub use static_tokens::{StaticToken, StaticTokens, TokenHash};
