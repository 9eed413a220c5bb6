//! Which symbol a pair of neighbours becomes.

use crate::error::{Error, Result};
use crate::hash::hash_pair;
use crate::vocab::MAX_SYMBOLS;

/// No merge joins the pair.
pub const NONE: u32 = u32::MAX;

const BITS: u32 = 21;
const SYMBOL: u64 = (1 << BITS) - 1;
const EMPTY: u64 = u64::MAX;

/// Pair of symbols -> symbol. Pairs of bytes in a grid, the others in a flat table of one word an entry: the three
/// symbols have 21 bits each, so a word of 64 never equals `EMPTY`.
#[derive(Clone, Debug)]
pub struct PairTable {
    grid: Box<[u32]>,
    slots: Box<[u64]>,
    shift: u32,
    mask: usize,
}

impl PairTable {
    /// A table for up to `n_pairs` pairs, with at least as many slots free as used.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there are more pairs than symbols can be.
    pub fn new(n_pairs: usize) -> Result<Self> {
        if n_pairs > 16 * MAX_SYMBOLS {
            return Err(Error::Invalid(format!("{n_pairs} merges are too many")));
        }
        let n_slots = (2 * n_pairs).next_power_of_two().max(64);
        Ok(Self {
            grid: vec![NONE; 1 << 16].into_boxed_slice(),
            slots: vec![EMPTY; n_slots].into_boxed_slice(),
            shift: 64 - n_slots.trailing_zeros(),
            mask: n_slots - 1,
        })
    }

    /// Adds a pair; the first of two entries for one pair stays.
    pub fn insert(&mut self, left: u32, right: u32, symbol: u32) {
        if left < 256 && right < 256 {
            let entry = &mut self.grid[(left << 8 | right) as usize];
            *entry = (*entry).min(symbol);
            return;
        }
        let key = key(left, right);
        let mut at = self.home(left, right);
        while self.slots[at] != EMPTY {
            if self.slots[at] >> BITS == key {
                return;
            }
            at = (at + 1) & self.mask;
        }
        self.slots[at] = key << BITS | u64::from(symbol);
    }

    /// The symbol that the pair becomes, or [`NONE`].
    #[inline]
    #[must_use]
    pub fn get(&self, left: u32, right: u32) -> u32 {
        if left < 256 && right < 256 {
            return self.grid[(left << 8 | right) as usize];
        }
        let key = key(left, right);
        let mut at = self.home(left, right);
        loop {
            let slot = self.slots[at & self.mask];
            if slot >> BITS == key {
                #[expect(clippy::cast_possible_truncation, reason = "masked to 21 bits")]
                return (slot & SYMBOL) as u32;
            }
            if slot == EMPTY {
                return NONE;
            }
            at += 1;
        }
    }

    #[inline]
    fn home(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }
}

#[inline]
fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << BITS | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn table_answers_as_a_hash_map_does(
            pairs in prop::collection::hash_map((0u32..2000, 0u32..2000), 0u32..(MAX_SYMBOLS as u32), 0..300),
            asked in prop::collection::vec((0u32..2000, 0u32..2000), 0..300),
        ) {
            let mut table = PairTable::new(pairs.len()).unwrap();
            for (&(left, right), &symbol) in &pairs {
                table.insert(left, right, symbol);
            }
            let expected: &HashMap<(u32, u32), u32> = &pairs;
            for (left, right) in asked.into_iter().chain(pairs.keys().copied()) {
                prop_assert_eq!(table.get(left, right), expected.get(&(left, right)).copied().unwrap_or(NONE));
            }
        }
    }

    #[test]
    fn the_largest_symbols_fit() {
        let largest = MAX_SYMBOLS as u32 - 1;
        let mut table = PairTable::new(1).unwrap();
        table.insert(largest, largest - 1, largest);
        assert_eq!(table.get(largest, largest - 1), largest);
        assert_eq!(table.get(largest - 1, largest), NONE);
    }
}
