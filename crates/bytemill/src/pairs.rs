//! Which symbol a pair of neighbours becomes.

mod perfect;

use crate::error::{Error, Result};
use crate::hash::fold;
use crate::prefetch::prefetch;
use crate::vocab::MAX_SYMBOLS;
pub use perfect::PerfectPairs;
use std::hint::select_unpredictable;

/// No merge joins the pair.
pub const NONE: u32 = u32::MAX;

/// A symbol that no merge joins with any other: what stands beyond the ends of a pre-token.
pub const OUTSIDE: u32 = MAX_SYMBOLS as u32 - 1;

const BITS: u32 = MAX_SYMBOLS.trailing_zeros();
const SYMBOL: u64 = (1 << BITS) - 1;
/// The three symbols of an entry have 21 bits each, so none has all 64 bits set.
const EMPTY: u64 = u64::MAX;

/// Pairs of symbols and the symbol that each becomes.
pub trait Pairs {
    /// A pair that has been asked for.
    type Asked: Copy + Default;

    /// The symbol that two bytes become, or [`NONE`].
    fn get_bytes(&self, left: u8, right: u8) -> u32;

    /// Asks for a pair, of which one at least is no byte, ahead of time.
    fn ask(&self, left: u32, right: u32) -> Self::Asked;

    /// The symbol that the pair becomes for which it was asked, or [`NONE`].
    fn answer(&self, asked: Self::Asked) -> u32;
}

/// A pair that a [`PairTable`] has been asked for, and where its entry may be.
#[derive(Clone, Copy, Default)]
pub struct AskedTwice {
    key: u64,
    one: u32,
    other: u32,
}

/// Pair of symbols -> symbol.
///
/// Pairs of bytes are in a grid. The others are in a flat table of one word an entry, each in one of two places (cuckoo
/// hashing, at most 4/9 full: cl100k's 100,000 merges fit 2 MB), so that a look-up has no loop and no branch: merging asks for pairs that are as often
/// missing as not, and what it costs is mispredicted branches.
#[derive(Clone, Debug)]
pub struct PairTable {
    grid: Box<[u32]>,
    slots: Box<[u64]>,
    shift: u32,
}

impl PairTable {
    /// A table for about `n_pairs` pairs; it grows where there are more.
    #[must_use]
    pub fn new(n_pairs: usize) -> Self {
        Self { grid: vec![NONE; 1 << 16].into_boxed_slice(), ..Self::with_slots((n_pairs * 9 / 4).max(32)) }
    }

    fn with_slots(n_slots: usize) -> Self {
        let n_slots = n_slots.next_power_of_two();
        let shift = 64 - n_slots.trailing_zeros();
        Self { grid: Box::default(), slots: vec![EMPTY; n_slots].into_boxed_slice(), shift }
    }

    /// Adds a pair; the first of two entries for one pair stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a symbol that is too large, or where so many pairs share their places that the table would
    /// have to grow beyond all measure, which only pairs chosen for that do.
    pub fn insert(&mut self, left: u32, right: u32, symbol: u32) -> Result<()> {
        if left.max(right).max(symbol) >= OUTSIDE {
            return Err(Error::Invalid(format!("more than {OUTSIDE} tokens are not supported")));
        }
        if left < 256 && right < 256 {
            let entry = &mut self.grid[grid_place(left as u8, right as u8)];
            *entry = (*entry).min(symbol);
            return Ok(());
        }
        if self.get(left, right) == NONE {
            self.place(key(left, right) << BITS | u64::from(symbol))?;
        }
        Ok(())
    }

    /// Puts an entry into one of its two places; whoever is there moves on to its other one.
    fn place(&mut self, mut entry: u64) -> Result<()> {
        loop {
            let mut at = self.places(entry >> BITS).0;
            // A chain this long means a table too full, or a cycle.
            for _ in 0..64 {
                std::mem::swap(&mut entry, &mut self.slots[at]);
                if entry == EMPTY {
                    return Ok(());
                }
                let (one, other) = self.places(entry >> BITS);
                at = if at == one { other } else { one };
            }
            self.grow(&mut entry)?;
        }
    }

    fn grow(&mut self, waiting: &mut u64) -> Result<()> {
        if self.slots.len() >= 64 * MAX_SYMBOLS {
            return Err(Error::Invalid("the merges cannot be put into a table".to_owned()));
        }
        let mut larger = Self::with_slots(2 * self.slots.len());
        for &entry in self.slots.iter().filter(|&&entry| entry != EMPTY) {
            larger.place(entry)?;
        }
        larger.place(std::mem::replace(waiting, EMPTY))?;
        larger.grid = std::mem::take(&mut self.grid);
        *self = larger;
        Ok(())
    }

    /// The symbol that a pair becomes, or [`NONE`].
    #[inline]
    #[must_use]
    pub fn get(&self, left: u32, right: u32) -> u32 {
        get(self, left, right)
    }

    #[inline]
    fn places(&self, key: u64) -> (usize, usize) {
        let hash = hash(key);
        ((hash >> self.shift) as usize, hash as usize & (self.slots.len() - 1))
    }
}

impl Pairs for PairTable {
    type Asked = AskedTwice;

    #[inline]
    fn get_bytes(&self, left: u8, right: u8) -> u32 {
        self.grid[grid_place(left, right)]
    }

    #[inline]
    fn ask(&self, left: u32, right: u32) -> AskedTwice {
        let key = key(left, right);
        let (one, other) = self.places(key);
        prefetch(&self.slots, one);
        prefetch(&self.slots, other);
        AskedTwice { key, one: one as u32, other: other as u32 }
    }

    #[inline]
    fn answer(&self, asked: AskedTwice) -> u32 {
        let AskedTwice { key, one, other } = asked;
        let (one, other) = (self.slots[one as usize], self.slots[other as usize]);
        // Left to itself the compiler makes a branch of this, and loads the second entry only where the first is another's.
        symbol_of(select_unpredictable(one >> BITS == key, one, other), key)
    }
}

#[inline]
fn get(pairs: &impl Pairs, left: u32, right: u32) -> u32 {
    if left < 256 && right < 256 {
        pairs.get_bytes(left as u8, right as u8)
    } else {
        pairs.answer(pairs.ask(left, right))
    }
}

/// The symbol of an entry, or [`NONE`] where it is that of another pair.
#[inline]
fn symbol_of(entry: u64, key: u64) -> u32 {
    select_unpredictable(entry >> BITS == key, (entry & SYMBOL) as u32, NONE)
}

#[inline]
fn grid_place(left: u8, right: u8) -> usize {
    usize::from(left) << 8 | usize::from(right)
}

#[inline]
fn hash(key: u64) -> u64 {
    fold(key ^ 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93)
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
        fn tables_answer_as_a_hash_map_does(
            pairs in prop::collection::hash_map((0u32..2000, 0u32..2000), 0u32..OUTSIDE, 0..300),
            n_expected in 0usize..300,
            asked in prop::collection::vec((0u32..2000, 0u32..2000), 0..300),
        ) {
            let mut table = PairTable::new(n_expected);
            for (&(left, right), &symbol) in &pairs {
                table.insert(left, right, symbol).unwrap();
            }
            let perfect = PerfectPairs::new(&table).unwrap();
            let expected: &HashMap<(u32, u32), u32> = &pairs;
            for (left, right) in asked.into_iter().chain(pairs.keys().copied()) {
                let expected = expected.get(&(left, right)).copied().unwrap_or(NONE);
                prop_assert_eq!(table.get(left, right), expected);
                prop_assert_eq!(get(&perfect, left, right), expected);
            }
        }
    }

    #[test]
    fn a_table_too_small_grows_and_loses_nothing() {
        fn check(pairs: &impl Pairs) {
            for symbol in 256..26_256 {
                assert_eq!(get(pairs, symbol, symbol % 300), symbol + 1);
                assert_eq!(get(pairs, symbol % 300, symbol), if symbol < 300 { symbol + 1 } else { NONE });
            }
        }
        let mut table = PairTable::new(0);
        for symbol in 256..26_256 {
            table.insert(symbol, symbol % 300, symbol + 1).unwrap();
        }
        check(&table);
        // 26,000 of 32,768 places are as full as it gets.
        check(&PerfectPairs::new(&table).unwrap());
    }

    #[test]
    fn pairs_chosen_to_share_a_bucket_get_places_too() {
        // Of one hash in 4,096: until the table has more buckets than that, one of them has all 100.
        let same = (256..).flat_map(|left| (0..256).map(move |right| (left, right)));
        let same: Vec<(u32, u32)> = same.filter(|&(left, right)| hash(key(left, right)) >> 52 == 0).take(100).collect();
        let mut table = PairTable::new(same.len());
        for &(left, right) in &same {
            table.insert(left, right, left + right).unwrap();
        }
        let perfect = PerfectPairs::new(&table).unwrap();
        for (left, right) in same {
            assert_eq!(get(&perfect, left, right), left + right);
        }
    }

    #[test]
    fn the_first_of_two_entries_stays() {
        let mut table = PairTable::new(2);
        for symbol in [700, 900] {
            table.insert(300, 5, symbol).unwrap();
            table.insert(5, 6, symbol).unwrap();
        }
        assert_eq!((table.get(300, 5), table.get(5, 6)), (700, 700));
    }

    #[test]
    fn the_largest_symbols_fit_and_larger_ones_are_refused() {
        let largest = OUTSIDE - 1;
        let mut table = PairTable::new(1);
        table.insert(largest, largest - 1, largest).unwrap();
        assert_eq!(table.get(largest, largest - 1), largest);
        assert_eq!(table.get(largest - 1, largest), NONE);
        assert_eq!(table.get(OUTSIDE, largest), NONE);
        assert!(table.insert(1, 2, OUTSIDE).is_err());
        let perfect = PerfectPairs::new(&table).unwrap();
        assert_eq!(get(&perfect, largest, largest - 1), largest);
        assert_eq!(get(&perfect, OUTSIDE, largest), NONE);
    }
}
