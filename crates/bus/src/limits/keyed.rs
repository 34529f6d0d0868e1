//! A bucket for each key, in bounded memory.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use super::bucket::{Bucket, Rate, Refused};
use promethean_model::IgnorePoison;

/// A bucket of the same rate for each key, such as a topic.
///
/// When the set is full, buckets that were idle long enough to be full again are dropped: a new bucket would
/// be equal. While more keys than `keys_max` are busy, the keys beyond that number share one bucket.
#[derive(Debug)]
pub struct BucketSet<K> {
    rate: Rate,
    keys_max: usize,
    /// The lock is held for one lookup, or for a sweep when the set is full.
    buckets: Mutex<Buckets<K>>,
    overflow: Arc<Bucket>,
}

#[derive(Debug)]
struct Buckets<K> {
    by_key: HashMap<K, UsedBucket>,
    /// The time of the last sweep. A second sweep at the same time would find nothing to drop.
    swept_ms: Option<u64>,
}

#[derive(Debug)]
struct UsedBucket {
    bucket: Arc<Bucket>,
    used_ms: u64,
}

impl<K: Hash + Eq> BucketSet<K> {
    /// An empty set.
    pub fn new(rate: Rate, keys_max: usize, now_ms: u64) -> Self {
        let buckets = Mutex::new(Buckets { by_key: HashMap::new(), swept_ms: None });
        Self { rate, keys_max, buckets, overflow: Arc::new(Bucket::new(rate, now_ms)) }
    }

    /// Takes `n` tokens of the key's bucket, or none if there are fewer.
    pub fn take<Q>(&self, key: &Q, n: u32, now_ms: u64) -> Result<(), Refused>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.bucket(key, now_ms).take(n, now_ms)
    }

    /// Takes as many tokens of the key's bucket as there are, at most `n`, and returns how many.
    pub fn take_up_to<Q>(&self, key: &Q, n: u32, now_ms: u64) -> u32
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.bucket(key, now_ms).take_up_to(n, now_ms)
    }

    /// Gives back tokens of the key's bucket that were taken and not used.
    pub fn put_back<Q>(&self, key: &Q, n: u32, now_ms: u64)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.bucket(key, now_ms).put_back(n);
    }

    /// How many keys have a bucket of their own.
    pub fn len(&self) -> usize {
        self.buckets.lock().ignore_poison().by_key.len()
    }

    /// Whether no key has a bucket of its own.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bucket<Q>(&self, key: &Q, now_ms: u64) -> Arc<Bucket>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        // A panic leaves the map whole, so poison is ignored.
        let mut buckets = self.buckets.lock().ignore_poison();
        if let Some(entry) = buckets.by_key.get_mut(key) {
            entry.used_ms = entry.used_ms.max(now_ms);
            return Arc::clone(&entry.bucket);
        }
        if buckets.by_key.len() >= self.keys_max {
            buckets.sweep(self.rate.refill_ms(), now_ms);
        }
        if buckets.by_key.len() >= self.keys_max {
            return Arc::clone(&self.overflow);
        }
        let bucket = Arc::new(Bucket::new(self.rate, now_ms));
        buckets.by_key.insert(key.to_owned(), UsedBucket { bucket: Arc::clone(&bucket), used_ms: now_ms });
        bucket
    }
}

impl<K: Hash + Eq> Buckets<K> {
    /// Drops idle buckets. Runs at most once per millisecond, so that a full set of busy keys does not cost a
    /// sweep for each `take`.
    fn sweep(&mut self, refill_ms: u64, now_ms: u64) {
        if self.swept_ms.replace(now_ms) != Some(now_ms) {
            self.by_key.retain(|_, entry| now_ms.saturating_sub(entry.used_ms) < refill_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys_max: usize) -> BucketSet<String> {
        BucketSet::new(Rate::new(10, 2), keys_max, 0)
    }

    #[test]
    fn keys_do_not_share() {
        let set = set(10);
        assert_eq!(set.take("a", 2, 0), Ok(()));
        assert_eq!(set.take("a", 1, 0), Err(Refused::RetryAfterMs(100)));
        assert_eq!(set.take_up_to("b", 5, 0), 2);
        assert_eq!(set.len(), 2);
    }

    #[test]
    fn keys_beyond_the_maximum_share_one_bucket() {
        let set = set(2);
        assert!(set.is_empty());
        for key in ["a", "b", "c"] {
            assert_eq!(set.take(key, 2, 0), Ok(()), "{key}");
        }
        assert_eq!(set.len(), 2);
        assert!(set.take("d", 1, 0).is_err());
    }

    #[test]
    fn idle_keys_make_room() {
        let set = set(2);
        assert_eq!(set.take("a", 2, 0), Ok(()));
        assert_eq!(set.take("b", 2, 150), Ok(()));
        // `a` is full again after 200 ms, `b` is not.
        assert_eq!(set.take("c", 2, 200), Ok(()));
        assert_eq!(set.len(), 2);
        assert_eq!(set.take("b", 1, 200), Err(Refused::RetryAfterMs(50)));
        assert_eq!(set.take("c", 1, 200), Err(Refused::RetryAfterMs(100)));
    }

    #[test]
    fn a_million_keys_take_bounded_memory() {
        let set = set(100);
        for n in 0..1_000_000_u64 {
            let _ = set.take(n.to_string().as_str(), 1, n / 100);
        }
        assert!(set.len() <= 100);
    }
}
