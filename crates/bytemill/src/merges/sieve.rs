//! Sums that pairs share by their hash.

use super::budget::{Load, Room};
use super::parts::for_each_part;
use super::slot::Slot;
use super::words::Words;
use crate::error::Result;
use crate::hash::hash_pair;
use crate::pulse::Pulse;

const SIEVE_LOG2: u32 = if cfg!(test) { 12 } else { 18 };

/// Bytes of one number for each sum.
pub const SIEVE_BYTES: u64 = 4 << SIEVE_LOG2;

/// Sums that pairs share by their hash: where a sum is below the threshold, so are all its pairs.
///
/// Sums stop at 2³² - 1.
pub struct Sieve {
    sums: Vec<u32>,
    /// How many places the pairs of each sum have; empty where there is room for any number.
    n_places: Vec<u32>,
    shift: u32,
}

impl Sieve {
    /// Adds up the pairs of all words.
    pub fn new<S: Slot>(words: &Words, room: Room, pulse: Pulse) -> Result<Self> {
        // Sums are of use while few pairs share one; but they have to fit into the cache.
        let n_sums = (words.n_slots() / 16).next_power_of_two().clamp(1 << 12, 1 << SIEVE_LOG2);
        let shift = 64 - n_sums.trailing_zeros();
        let parts = words.parts::<S>(room.n_threads);
        let sieves = for_each_part(parts, room.n_threads, pulse, |_, part, pulse| {
            let mut sieve = Self { sums: vec![0u32; n_sums], n_places: Vec::new(), shift };
            if room.is_limited() {
                sieve.n_places = vec![0; n_sums];
                words.for_each_slot(part, pulse, |_, left, right, count| {
                    let at = sieve.add::<S>(left, right, count);
                    sieve.n_places[at] += u32::from(left != S::SEPARATOR && right != S::SEPARATOR);
                })?;
            } else {
                words.for_each_slot(part, pulse, |_, left, right, count| {
                    sieve.add::<S>(left, right, count);
                })?;
            }
            Ok(sieve)
        })?;
        let add = |mut all: Self, part: Self| {
            for (sum, more) in all.sums.iter_mut().zip(part.sums) {
                *sum = sum.saturating_add(more);
            }
            for (n_places, more) in all.n_places.iter_mut().zip(part.n_places) {
                *n_places += more;
            }
            all
        };
        let none = || Self { sums: vec![0; n_sums], n_places: vec![0; n_sums], shift };
        Ok(sieves.into_iter().reduce(add).unwrap_or_else(none))
    }

    #[inline]
    fn place(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }

    #[inline]
    fn add<S: Slot>(&mut self, left: S, right: S, count: u64) -> usize {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let at = self.place(left.symbol(), right.symbol());
        let sum = &mut self.sums[at];
        // Nothing is added at the ends of a word: cheaper than a branch.
        *sum = sum.saturating_add(if left == S::SEPARATOR || right == S::SEPARATOR { 0 } else { count });
        at
    }

    /// The sum that is the n-th from the greatest down, 0 where there are not so many.
    pub fn nth_greatest(&self, n: usize) -> u64 {
        let mut sums: Vec<u32> = Vec::with_capacity(self.sums.len());
        sums.extend(self.sums.iter().filter(|&&sum| sum > 0));
        match sums.len().checked_sub(n.max(1)) {
            Some(index) => u64::from(*sums.select_nth_unstable(index).1),
            None => 0,
        }
    }

    pub fn greatest(&self) -> u64 {
        self.sums.iter().copied().max().map_or(0, u64::from)
    }

    /// False where the pair occurs less than `threshold` times.
    #[inline]
    pub fn may_reach(&self, threshold: u32, left: u32, right: u32) -> bool {
        self.sums[self.place(left, right)] >= threshold
    }

    /// The lowest threshold from `lowest` on of which all that the sieve lets through has room; `None` where none has that lets
    /// anything through.
    pub fn threshold_with_room(&self, lowest: u64, room: Room) -> Option<u64> {
        if !room.is_limited() || room.fits(self.load(lowest)) {
            return Some(lowest);
        }
        let (mut too_low, mut high) = (lowest, self.greatest());
        if high <= too_low || !room.fits(self.load(high)) {
            return None;
        }
        while high - too_low > 1 {
            let between = too_low.midpoint(high);
            if room.fits(self.load(between)) {
                high = between;
            } else {
                too_low = between;
            }
        }
        Some(high)
    }

    /// What a threshold lets through. Of the pairs, only as many as have different sums are known.
    fn load(&self, threshold: u64) -> Load {
        let threshold = u32::try_from(threshold).unwrap_or(u32::MAX);
        let mut load = Load::default();
        for (_, &n_places) in self.sums.iter().zip(&self.n_places).filter(|&(&sum, _)| sum >= threshold.max(1)) {
            load.n_pairs += 1;
            load.n_places += u64::from(n_places);
            load.most_places = load.most_places.max(u64::from(n_places));
        }
        load
    }
}
