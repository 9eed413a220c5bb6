//! Sets of characters that are asked for one character at a time.

use std::ops::RangeInclusive;

/// Characters in the basic multilingual plane, each of which has a bit.
const N_BITS: usize = 0x1_0000;

/// A set of characters: a bit for each of the basic multilingual plane, ranges beyond it.
#[derive(Clone, PartialEq, Eq)]
pub struct CharSet {
    bits: Box<[u64; N_BITS / 64]>,
    beyond: Vec<RangeInclusive<u32>>,
}

impl CharSet {
    /// The set of the code points in some ranges.
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        let mut set = Self { bits: Box::new([0; _]), beyond: Vec::new() };
        for range in ranges {
            let last = *range.end();
            for code_point in range.clone().take_while(|&code_point| (code_point as usize) < N_BITS) {
                set.bits[code_point as usize / 64] |= 1 << (code_point % 64);
            }
            if last as usize >= N_BITS {
                set.beyond.push(range);
            }
        }
        set
    }

    /// Whether a code point is in the set.
    #[inline]
    #[must_use]
    pub fn has(&self, code_point: u32) -> bool {
        match self.bits.get(code_point as usize / 64) {
            Some(word) => word >> (code_point % 64) & 1 == 1,
            None => self.beyond.iter().any(|range| range.contains(&code_point)),
        }
    }
}

impl std::fmt::Debug for CharSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n_bits: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
        formatter.debug_struct("CharSet").field("n_bits", &n_bits).field("beyond", &self.beyond).finish()
    }
}

#[cfg(test)]
#[path = "tests/set.rs"]
mod tests;
