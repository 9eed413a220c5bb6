//! Pair of symbols → the symbol that it merges to.

use crate::error::{Error, Result};
use crate::sys::hash::fold;
use crate::sys::prefetch::prefetch;
use std::hint::select_unpredictable;

/// Number of symbols supported: 21 bits each, so that a pair and its result fit one entry of the table.
pub const MAX_SYMBOLS: usize = 1 << BITS;

/// The result of a pair that does not merge.
pub const NONE: u32 = u32::MAX;

/// A symbol that merges with no other: what lies beyond the ends of a pre-token.
pub const OUTSIDE: u32 = MAX_SYMBOLS as u32 - 1;

const BITS: u32 = 21;
const SYMBOL: u64 = (1 << BITS) - 1;
/// The three symbols of an entry have 63 bits together, so no entry has all bits set.
const EMPTY: u64 = u64::MAX;

/// Pair of symbols → symbol.
///
/// Pairs of bytes are in a grid. The others are in a flat table of one word an entry, each in one of two slots (cuckoo
/// hashing, at most 4/9 full: cl100k's 100,000 merges take 2 MB), so that a lookup has no loop and no branch. Merging looks up
/// pairs that are missing as often as not, and mispredicted branches are what it costs.
#[derive(Clone, Debug)]
pub struct PairTable {
    grid: Box<[u32]>,
    slots: Box<[u64]>,
    shift: u32,
}

/// A pair whose entry is being fetched.
#[derive(Clone, Copy, Default)]
pub struct PrefetchedPair {
    key: u64,
    one: u32,
    other: u32,
}

impl PairTable {
    /// A table for about `n_pairs` pairs; it grows if there are more.
    pub fn new(n_pairs: usize) -> Self {
        Self { grid: vec![NONE; 1 << 16].into_boxed_slice(), ..Self::with_slots((n_pairs * 9 / 4).max(32)) }
    }

    fn with_slots(n_slots: usize) -> Self {
        let n_slots = n_slots.next_power_of_two();
        let shift = 64 - n_slots.trailing_zeros();
        Self { grid: Box::default(), slots: vec![EMPTY; n_slots].into_boxed_slice(), shift }
    }

    /// The grid of byte pairs and the slots of all others.
    pub(super) fn tables(&self) -> (&[u32], &[u64]) {
        (&self.grid, &self.slots)
    }

    /// A table with this grid and these slots; `None` if they cannot be those of a table, or if a pair merges to a symbol from
    /// `n_symbols` on.
    pub(super) fn of_tables(grid: Vec<u32>, slots: Vec<u64>, n_symbols: usize) -> Option<Self> {
        let is_symbol = |symbol: u32| (symbol as usize) < n_symbols;
        let is_table = grid.len() == 1 << 16
            && slots.len() >= 32
            && slots.len().is_power_of_two()
            && grid.iter().all(|&symbol| symbol == NONE || is_symbol(symbol))
            && slots.iter().all(|&entry| entry == EMPTY || is_symbol((entry & SYMBOL) as u32));
        let shift = 64 - slots.len().trailing_zeros();
        is_table.then(|| Self { grid: grid.into(), slots: slots.into(), shift })
    }

    /// Adds a pair; the first of two entries for one pair stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a symbol that is too large, or if so many pairs share their slots that the table would have to
    /// grow out of proportion, which only pairs chosen for that purpose do.
    pub fn insert(&mut self, left: u32, right: u32, symbol: u32) -> Result<()> {
        if left.max(right).max(symbol) >= OUTSIDE {
            return Err(Error::Invalid(format!("more than {OUTSIDE} tokens are not supported")));
        }
        if left < 256 && right < 256 {
            let entry = &mut self.grid[grid_index(left as u8, right as u8)];
            *entry = (*entry).min(symbol);
            return Ok(());
        }
        if self.get(left, right) == NONE {
            self.place(key(left, right) << BITS | u64::from(symbol))?;
        }
        Ok(())
    }

    /// Puts an entry into one of its two slots; an entry that is there moves on to its other one.
    fn place(&mut self, mut entry: u64) -> Result<()> {
        loop {
            let mut index = self.indices(entry >> BITS).0;
            // A chain this long means a table too full, or a cycle.
            for _ in 0..64 {
                std::mem::swap(&mut entry, &mut self.slots[index]);
                if entry == EMPTY {
                    return Ok(());
                }
                let (one, other) = self.indices(entry >> BITS);
                index = if index == one { other } else { one };
            }
            self.grow(&mut entry)?;
        }
    }

    fn grow(&mut self, displaced: &mut u64) -> Result<()> {
        if self.slots.len() >= 64 * MAX_SYMBOLS {
            return Err(Error::Invalid("the merges cannot be put into a table".to_owned()));
        }
        let mut larger = Self::with_slots(2 * self.slots.len());
        for &entry in self.slots.iter().filter(|&&entry| entry != EMPTY) {
            larger.place(entry)?;
        }
        larger.place(std::mem::replace(displaced, EMPTY))?;
        larger.grid = std::mem::take(&mut self.grid);
        *self = larger;
        Ok(())
    }

    /// The symbol that a pair merges to, or [`NONE`].
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> u32 {
        if left < 256 && right < 256 {
            self.get_bytes(left as u8, right as u8)
        } else {
            self.get_prefetched(self.prefetch(left, right))
        }
    }

    /// The symbol that two bytes merge to, or [`NONE`].
    #[inline]
    pub fn get_bytes(&self, left: u8, right: u8) -> u32 {
        self.grid[grid_index(left, right)]
    }

    /// Prefetches the entry of a pair that is not two bytes.
    #[inline]
    pub fn prefetch(&self, left: u32, right: u32) -> PrefetchedPair {
        let key = key(left, right);
        let (one, other) = self.indices(key);
        prefetch(&self.slots, one);
        prefetch(&self.slots, other);
        PrefetchedPair { key, one: one as u32, other: other as u32 }
    }

    /// The symbol that a prefetched pair merges to, or [`NONE`].
    #[inline]
    pub fn get_prefetched(&self, pair: PrefetchedPair) -> u32 {
        let PrefetchedPair { key, one, other } = pair;
        let (one, other) = (self.slots[one as usize], self.slots[other as usize]);
        // Left to itself the compiler makes a branch of this, which is unpredictable.
        let entry = select_unpredictable(one >> BITS == key, one, other);
        select_unpredictable(entry >> BITS == key, (entry & SYMBOL) as u32, NONE)
    }

    #[inline]
    fn indices(&self, key: u64) -> (usize, usize) {
        let hash = fold(key ^ 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93);
        ((hash >> self.shift) as usize, hash as usize & (self.slots.len() - 1))
    }
}

#[inline]
fn grid_index(left: u8, right: u8) -> usize {
    usize::from(left) << 8 | usize::from(right)
}

#[inline]
fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << BITS | u64::from(right)
}

#[cfg(test)]
#[path = "tests/pair_table.rs"]
mod tests;
