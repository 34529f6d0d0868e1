//! Token buckets on our own clock: per connection, and per topic in a bounded set.

mod bucket;
mod keyed;

pub use bucket::{Bucket, Rate, Refused};
pub use keyed::BucketSet;
