//! Pair of symbols -> value.

use crate::hash::hash_pair;
use crate::prefetch::prefetch;

/// No pair: there are not that many symbols.
const EMPTY: (u32, u32) = (u32::MAX, u32::MAX);

/// A hash table with linear probing, at most half full. Beside the standard library's it can be asked to bring an
/// entry into the cache ahead of time.
pub struct PairMap<V> {
    entries: Vec<((u32, u32), V)>,
    shift: u32,
    n_used: usize,
}

impl<V: Copy + Default> PairMap<V> {
    pub fn with_capacity(n_pairs: usize) -> Self {
        let n_entries = (2 * n_pairs).next_power_of_two().max(1 << 8);
        let shift = 64 - n_entries.trailing_zeros();
        Self { entries: vec![(EMPTY, V::default()); n_entries], shift, n_used: 0 }
    }

    pub fn n_pairs(&self) -> usize {
        self.n_used
    }

    #[inline]
    fn home(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }

    /// Where the pair is, or the free place where it would go.
    #[inline]
    fn find(&self, left: u32, right: u32) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(left, right);
        loop {
            let key = self.entries[at & mask].0;
            if key == (left, right) || key == EMPTY {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<V> {
        let (key, value) = self.entries[self.find(left, right)];
        (key != EMPTY).then_some(value)
    }

    /// The value of a pair; the default where the pair is new.
    #[inline]
    pub fn entry(&mut self, left: u32, right: u32) -> &mut V {
        self.entry_or(left, right, V::default())
    }

    /// The value of a pair; `new` where the pair is new.
    #[inline]
    pub fn entry_or(&mut self, left: u32, right: u32, new: V) -> &mut V {
        let mut at = self.find(left, right);
        if self.entries[at].0 == EMPTY {
            if 2 * self.n_used >= self.entries.len() {
                self.grow();
                at = self.find(left, right);
            }
            self.entries[at] = ((left, right), new);
            self.n_used += 1;
        }
        &mut self.entries[at].1
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_capacity(self.entries.len());
        for ((left, right), value) in self.iter() {
            *larger.entry(left, right) = value;
        }
        *self = larger;
    }

    /// Asks for the entry of a pair ahead of time.
    #[inline]
    pub fn prefetch(&self, left: u32, right: u32) {
        prefetch(&self.entries, self.home(left, right));
    }

    pub fn iter(&self) -> impl Iterator<Item = ((u32, u32), V)> {
        self.entries.iter().copied().filter(|(key, _)| *key != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_answers_as_a_hash_map_does(
            added in prop::collection::vec((0u32..40, 0u32..40, 0u64..9), 0..1500),
            asked in prop::collection::vec((0u32..50, 0u32..50), 0..50),
        ) {
            let mut map = PairMap::with_capacity(0);
            let mut expected = HashMap::new();
            for (left, right, value) in added {
                *map.entry(left, right) += value;
                *expected.entry((left, right)).or_insert(0) += value;
            }
            for (left, right) in asked {
                prop_assert_eq!(map.get(left, right), expected.get(&(left, right)).copied());
            }
            prop_assert_eq!(map.iter().collect::<HashMap<_, _>>(), expected);
        }
    }
}
