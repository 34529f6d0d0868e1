//! Token buckets on the bus's clock: one for each connection, one for each topic in a bounded set, and one
//! for the deliveries of each member.

mod bucket;
mod keyed;
mod member;

pub use bucket::{Bucket, Rate, Refused};
pub use keyed::BucketSet;
pub(crate) use member::MemberRate;
