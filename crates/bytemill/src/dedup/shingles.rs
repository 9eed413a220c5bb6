//! Sets of n-grams, and their Jaccard similarity.

use crate::error::Result;
use crate::sys::interrupt::Interrupt;

use super::words::for_each_word;

/// Longest n-grams.
pub const MAX_N: usize = 64;

/// Odd, so that every item of an n-gram counts with its position.
const BASE: u64 = 0xD134_2543_DE82_EF95;

/// Hashes of the n-grams of a sequence. The sequence is an n-gram itself if it is shorter.
struct Grams {
    /// The last n items.
    ring: [u64; MAX_N],
    n: usize,
    /// `BASE` to the power of n: the weight of the item that leaves.
    power: u64,
    sum: u64,
    n_items: usize,
}

impl Grams {
    fn new(n: usize) -> Self {
        debug_assert!((1..=MAX_N).contains(&n));
        let power = (0..n).fold(1_u64, |power, _| power.wrapping_mul(BASE));
        Self { ring: [0; MAX_N], n, power, sum: 0, n_items: 0 }
    }

    /// Appends an item; adds the n-gram that it completes to `grams`.
    #[inline]
    fn push(&mut self, item: u64, slot: &mut usize, grams: &mut Vec<u64>) {
        let left = std::mem::replace(&mut self.ring[*slot % MAX_N], item);
        *slot = if *slot + 1 == self.n { 0 } else { *slot + 1 };
        self.sum = self.sum.wrapping_mul(BASE).wrapping_add(item).wrapping_sub(left.wrapping_mul(self.power));
        self.n_items += 1;
        if self.n_items >= self.n {
            grams.push(mix(self.sum));
        }
    }

    fn finish(&self, grams: &mut Vec<u64>) {
        if 0 < self.n_items && self.n_items < self.n {
            grams.push(mix(self.sum ^ self.n_items as u64));
        }
    }
}

/// A bijection after which every bit depends on every bit (David Stafford's variant 13 of the finalizer of MurmurHash3).
#[inline]
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Puts the set of the word n-grams of `text` into `set`, ascending.
///
/// # Errors
/// As [`for_each_word`].
pub fn word_shingles(text: &str, n: usize, set: &mut Vec<u64>, interrupt: Interrupt) -> Result<()> {
    set.clear();
    let (mut grams, mut slot) = (Grams::new(n), 0);
    for_each_word(text, interrupt, |word| grams.push(word, &mut slot, set))?;
    grams.finish(set);
    sort(set);
    Ok(())
}

/// Puts the set of the n-grams of token ids into `set`, ascending.
pub fn id_shingles(ids: impl Iterator<Item = u32>, n: usize, set: &mut Vec<u64>) {
    set.clear();
    let (mut grams, mut slot) = (Grams::new(n), 0);
    for id in ids {
        grams.push(mix(u64::from(id) + 1), &mut slot, set);
    }
    grams.finish(set);
    sort(set);
}

fn sort(set: &mut Vec<u64>) {
    set.sort_unstable();
    set.dedup();
}

/// Number of common elements of two ascending sets.
pub fn n_common(a: &[u64], b: &[u64]) -> usize {
    let (mut i, mut j, mut n) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        // Without branches that depend on the sets: they would be mispredicted.
        n += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    n
}

/// The Jaccard similarity of two ascending sets: common elements / all elements; 0 if both are empty.
pub fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    let n = n_common(a, b);
    let n_all = a.len() + b.len() - n;
    if n_all == 0 { 0.0 } else { n as f64 / n_all as f64 }
}

#[cfg(test)]
#[path = "tests/shingles.rs"]
mod tests;
