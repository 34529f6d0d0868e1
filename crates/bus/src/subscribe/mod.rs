//! Becoming a member of a group.
//!
//! - `request`: what a subscriber asks for
//! - `create`: the group comes into being, with its cursors
//! - `join`: the member joins the owners of its topics, and those of topics born later

mod create;
mod join;
mod request;

pub(crate) use self::create::{floor_of, group_row, require_group, stored_row};
pub(crate) use self::join::subscribe;
pub use self::request::{MemberOptions, Subscribe};
