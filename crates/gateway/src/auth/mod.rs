//! Who a client is, and what that client may do.
//!
//! | module | holds |
//! | --- | --- |
//! | [`authenticator`] | the trait from a token to an identity, and two that need no files: [`Open`] and [`Either`] |
//! | [`identity`] | a client whose token is valid, and how much it may use |
//! | [`grants`] | the accesses that a client can ask for, and the rules that allow them |
//! | [`static_tokens`] | tokens that are listed, by their hashes |
//! | [`jwt`] | tokens that an issuer signed |
//! | `session` | an identity with its token, so that the token can be checked again |
//! | [`secret`] | bytes that must not be shown |

pub mod authenticator;
pub mod grants;
pub mod identity;
pub mod jwt;
pub mod secret;
mod session;
pub mod static_tokens;

pub use authenticator::{AuthError, Authenticator, Either, Open};
pub use grants::{Access, Grants};
pub use identity::{Identity, IdentityKind, Quota};
pub use jwt::{Jwt, JwtOptions};
pub use secret::Secret;
pub(crate) use session::{AuthRecheck, AuthSession};
pub use static_tokens::{StaticToken, StaticTokens, TokenHash};
