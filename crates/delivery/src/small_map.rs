//! A map for few entries.

use std::borrow::Borrow;

/// A map that keeps its entries in a vector, by ascending key. A map of one entry takes the memory of one
/// entry. A large map is fast only while entries are added and removed in order, or seldom.
#[derive(Debug)]
pub struct SmallMap<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map has no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: impl Borrow<K>) -> Option<&V> {
        let index = self.index(key.borrow()).ok()?;
        self.entries.get(index).map(|(_, value)| value)
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: impl Borrow<K>) -> Option<&mut V> {
        let index = self.index(key.borrow()).ok()?;
        self.entries.get_mut(index).map(|(_, value)| value)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.index(&key) {
            Ok(index) => {
                if let Some(entry) = self.entries.get_mut(index) {
                    entry.1 = value;
                }
            }
            Err(index) => {
                if self.entries.is_empty() {
                    // Most maps stay at one entry.
                    self.entries.reserve_exact(1);
                }
                self.entries.insert(index, (key, value));
            }
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: impl Borrow<K>) -> Option<V> {
        let index = self.index(key.borrow()).ok()?;
        let (_, value) = self.entries.remove(index);
        if self.entries.is_empty() {
            self.entries = Vec::new();
        }
        Some(value)
    }

    /// The values, by ascending key.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The values, by ascending key, without the map.
    #[inline]
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().map(|(_, value)| value)
    }

    #[inline]
    fn index(&self, key: &K) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| known.cmp(key))
    }
}

impl<K: Ord + Copy, V> SmallMap<K, V> {
    /// The keys, ascending.
    #[inline]
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|(key, _)| *key)
    }

    /// The entries, by ascending key, with values to change.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (*key, value))
    }

    /// All entries once, starting after the key `last` and going round.
    pub fn round_after(&self, last: Option<K>) -> impl Iterator<Item = (K, &V)> {
        let middle = last.map_or(0, |last| self.entries.partition_point(|(key, _)| *key <= last));
        let (before, after) = self.entries.split_at(middle);
        after.iter().chain(before).map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_goes_round() {
        let mut map = SmallMap::default();
        for key in [3, 1, 2, 1] {
            map.insert(key, key * 10);
        }
        assert_eq!((map.len(), map.get(2), map.get(4)), (3, Some(&20), None));
        let round = |last| map.round_after(last).map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(
            (round(None), round(Some(1)), round(Some(3))),
            (vec![1, 2, 3], vec![2, 3, 1], vec![1, 2, 3])
        );
        assert_eq!((map.remove(2), map.remove(2)), (Some(20), None));
        assert_eq!(map.keys().collect::<Vec<_>>(), [1, 3]);
    }
}
