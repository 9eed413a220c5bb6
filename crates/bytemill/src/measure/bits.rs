//! A bit for each byte of a text.

use crate::{Error, Result};
use std::ops::Range;

/// A set of offsets in a text.
#[derive(Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// No offset of a text of `n_bytes`.
    pub(super) fn new(n_bytes: usize) -> Result<Self> {
        let n = n_bytes / 64 + 1;
        let mut words = Vec::new();
        words.try_reserve_exact(n).map_err(|_| Error::memory::<u64>(n))?;
        words.resize(n, 0);
        Ok(Self(words))
    }

    /// The offsets of the bytes that are chosen.
    pub(super) fn of(text: &[u8], is_chosen: impl Fn(u8) -> bool) -> Result<Self> {
        let mut bits = Self::new(text.len())?;
        for (word, bytes) in bits.0.iter_mut().zip(text.chunks(64)) {
            *word = bytes.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(is_chosen(byte)));
        }
        Ok(bits)
    }

    /// The number of offsets.
    pub fn n(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The number of offsets that are in `other` too.
    pub fn n_shared(&self, other: &Self) -> u64 {
        self.0.iter().zip(&other.0).map(|(own, word)| u64::from((own & word).count_ones())).sum()
    }

    pub(super) fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn set_all(&mut self, range: Range<usize>) {
        for (index, mask) in words_of(range) {
            self.0[index] |= mask;
        }
    }

    /// The number of runs of successive offsets within `range` that have one of those in `found`, which gives its words.
    ///
    /// A number added to a run of ones carries into the zero after it, once, whatever bits of the run the number has.
    pub(super) fn n_runs_with(&self, range: Range<usize>, found: impl Fn(usize) -> u64) -> i64 {
        let (mut n, mut carry) = (0, false);
        for (index, mask) in words_of(range) {
            let runs = self.0[index] & mask;
            let (sum, first) = runs.overflowing_add(found(index) & runs);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            carry = first || second;
            n += i64::from((sum & !runs).count_ones());
        }
        n + i64::from(carry)
    }

    pub(super) fn n_within(&self, range: Range<usize>) -> i64 {
        words_of(range).map(|(index, mask)| i64::from((self.0[index] & mask).count_ones())).sum()
    }

    pub(super) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }
}

/// The words that hold the bits of a range, and which of their bits do.
fn words_of(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range;
    (start / 64..end.div_ceil(64)).filter(move |_| start < end).map(move |index| {
        let head = if index == start / 64 { u64::MAX << (start % 64) } else { u64::MAX };
        let tail = if index == end / 64 { !(u64::MAX << (end % 64)) } else { u64::MAX };
        (index, head & tail)
    })
}
