//! Who a client of the gateway is, and what that client may do.
//!
//! | module | holds |
//! | --- | --- |
//! | [`authenticator`] | the trait from a token to an identity, and one that needs no token, [`Open`] |
//! | [`identity`] | a client whose token is valid, and how much it may use |
//! | [`grants`] | the accesses that a client can ask for, and the rules that allow them |
//! | [`static_token`], [`static_tokens`] | a listed token with its hash; the list of them |
//! | [`jwt`] | tokens that an issuer signed |
//! | `either` | listed and signed tokens together |
//! | `session` | an identity with its token, so that the token can be checked again |
//! | [`secret`] | bytes that must not be shown |
//! | [`trust`] | which servers are trusted when keys are fetched from one |

pub mod authenticator;
mod either;
pub mod grants;
pub mod identity;
pub mod jwt;
pub mod secret;
mod session;
pub mod static_token;
pub mod static_tokens;
pub mod trust;

pub use authenticator::{AuthError, Authenticator, Open};
pub use either::Either;
pub use grants::{Access, Grants};
pub use identity::{Identity, IdentityKind, Quota};
pub use jwt::{Jwt, JwtOptions};
pub use secret::Secret;
pub use session::{AuthRecheck, AuthSession};
pub use static_token::{StaticToken, TokenHash};
pub use static_tokens::StaticTokens;
