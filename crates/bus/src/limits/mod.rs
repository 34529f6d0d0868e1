//! Token buckets on our own clock: per connection, per topic in a bounded set, and per member for deliveries.

mod bucket;
mod keyed;
mod member;

pub use bucket::{Bucket, Rate, Refused};
pub use keyed::BucketSet;
pub(crate) use member::MemberRate;
