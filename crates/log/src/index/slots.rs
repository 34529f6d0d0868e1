//! A hash table from a hash to the newest item of its chain, with open addressing. The items are in the
//! memory table; a slot has four bytes.

/// The index that stands for no item.
pub(crate) const NONE: u32 = u32::MAX;
/// The most items of a table.
pub(crate) const ITEMS_MAX: usize = 1 << 30;

const SLOTS_MIN: usize = 1 << 10;
const INDEX_BITS_MIN: u32 = 24;

/// The slots. Zero is a free slot. In a used slot the low `index_bits` are the item's index plus one, and the
/// high bits are bits of its hash, so that an item is read only if it is very likely the wanted one.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<u32>,
    used: usize,
    index_bits: u32,
}

impl Slots {
    /// An empty table.
    pub(crate) fn new() -> Slots {
        Slots { slots: vec![0; SLOTS_MIN], used: 0, index_bits: INDEX_BITS_MIN }
    }

    /// The number of chains in the table.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The newest item of the chain that `same` recognises, or `NONE`.
    pub(crate) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> u32 {
        let tag = self.tag(hash);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots.get(at).copied().unwrap_or_default();
            if slot == 0 {
                return NONE;
            }
            if slot & !self.index_mask() == tag && same((slot & self.index_mask()) - 1) {
                return (slot & self.index_mask()) - 1;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The item in the slot where a search for this hash begins, of any chain, or `NONE`.
    pub(crate) fn peek(&self, hash: u64) -> u32 {
        let slot = self.slots.get(self.home(hash)).copied().unwrap_or_default();
        (slot & self.index_mask()).wrapping_sub(1)
    }

    /// Makes `item` the newest of its chain and returns the newest before it, or `NONE`. `hash_of` gives the
    /// hash of any item in the table; it is called when the table grows.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        item: u32,
        same: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> u32 {
        if (self.used + 1) * 5 > self.slots.len() * 3 || item + 1 > self.index_mask() {
            self.rebuild(item, hash_of);
        }
        let (tag, mask) = (self.tag(hash), self.index_mask());
        let last = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let Some(slot) = self.slots.get_mut(at) else { return NONE };
            if *slot == 0 {
                *slot = tag | (item + 1);
                self.used += 1;
                return NONE;
            }
            if *slot & !mask == tag && same((*slot & mask) - 1) {
                let before = (*slot & mask) - 1;
                *slot = tag | (item + 1);
                return before;
            }
            at = (at + 1) & last;
        }
    }

    /// Empties the table. Keeps its memory unless that is far more than was used.
    pub(crate) fn clear(&mut self) {
        if self.slots.len() > SLOTS_MIN && self.slots.len() > self.used * 16 {
            self.slots = vec![0; (self.used * 4).next_power_of_two().max(SLOTS_MIN)];
        } else {
            self.slots.fill(0);
        }
        self.used = 0;
        self.index_bits = INDEX_BITS_MIN;
    }

    fn rebuild(&mut self, item: u32, hash_of: impl Fn(u32) -> u64) {
        let mask = self.index_mask();
        while item + 1 > self.index_mask() {
            self.index_bits += 2;
        }
        let room =
            if (self.used + 1) * 5 > self.slots.len() * 3 { self.slots.len() * 2 } else { self.slots.len() };
        let old = std::mem::replace(&mut self.slots, vec![0; room]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let hash = hash_of((slot & mask) - 1);
            let mut at = self.home(hash);
            while self.slots.get(at).is_some_and(|slot| *slot != 0) {
                at = (at + 1) & (room - 1);
            }
            let tag = self.tag(hash);
            if let Some(free) = self.slots.get_mut(at) {
                *free = tag | (slot & mask);
            }
        }
    }

    fn index_mask(&self) -> u32 {
        (1 << self.index_bits) - 1
    }

    fn tag(&self, hash: u64) -> u32 {
        ((hash >> 32) as u32) & !self.index_mask()
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More items than the first index width can name, in one chain and in many.
    #[test]
    fn widens_the_index_when_items_outgrow_it() {
        let mut slots = Slots { slots: vec![0; 16], used: 0, index_bits: 4 };
        let hash_of = |item: u32| u64::from(item % 7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for item in 0..500_u32 {
            let before = slots.put(hash_of(item), item, |other| other % 7 == item % 7, hash_of);
            assert_eq!(before, if item < 7 { NONE } else { item - 7 });
        }
        assert_eq!(slots.used(), 7);
        for rest in 0..7 {
            let newest = slots.find(hash_of(rest), |other| other % 7 == rest);
            assert_eq!(newest % 7, rest);
            assert!(newest >= 493);
        }
        slots.clear();
        assert_eq!(slots.find(hash_of(1), |_| true), NONE);
    }
}
