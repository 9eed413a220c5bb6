//! Sums that pairs share by their hash.

use super::budget::{Load, Room};
use super::parts::for_each_part;
use super::slot::Slot;
use super::words::Words;
use crate::error::Result;
use crate::hash::{fold, hash_pair};
use crate::pulse::Pulse;

/// Sums have to fit into the cache.
pub const SIEVE_LOG2: u32 = if cfg!(test) { 12 } else { 18 };

/// Bytes of one number for each sum.
pub const fn sieve_bytes(sieve_log2: u32) -> u64 {
    4 << sieve_log2
}

/// Sums that pairs share by their hash: where a sum is below the threshold, so are all its pairs.
///
/// Sums stop at 2³² - 1.
pub struct Sieve {
    sums: Vec<u32>,
    /// The same by another hash: few pairs share a great sum twice. Empty where there is room for any number of pairs.
    others: Vec<u32>,
    /// How many places the pairs of each sum have; empty likewise.
    n_places: Vec<u32>,
    shift: u32,
}

impl Sieve {
    /// Adds up the pairs of all words.
    pub fn new<S: Slot>(words: &Words, room: Room, pulse: Pulse) -> Result<Self> {
        // Sums are of use while few pairs share one.
        let n_sums = (words.n_slots() / 16).next_power_of_two().clamp(1 << 12, 1 << room.sieve_log2);
        let shift = 64 - n_sums.trailing_zeros();
        let parts = words.parts::<S>(room.n_threads);
        let sieves = for_each_part(parts, room.n_threads, pulse, |_, part, pulse| {
            let mut sieve = Self { sums: vec![0u32; n_sums], others: Vec::new(), n_places: Vec::new(), shift };
            if room.is_limited() {
                (sieve.others, sieve.n_places) = (vec![0; n_sums], vec![0; n_sums]);
                words.for_each_slot::<S>(part, pulse, |_, left, right, count| {
                    if left != S::SEPARATOR && right != S::SEPARATOR {
                        let (left, right) = (left.symbol(), right.symbol());
                        let (at, other) = (sieve.place(left, right), sieve.other_place(left, right));
                        let count = u32::try_from(count).unwrap_or(u32::MAX);
                        sieve.sums[at] = sieve.sums[at].saturating_add(count);
                        sieve.others[other] = sieve.others[other].saturating_add(count);
                        sieve.n_places[at] += 1;
                    }
                })?;
            } else {
                words.for_each_slot::<S>(part, pulse, |_, left, right, count| {
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    let at = sieve.place(left.symbol(), right.symbol());
                    // Nothing is added at the ends of a word: cheaper than a branch.
                    let count = if left == S::SEPARATOR || right == S::SEPARATOR { 0 } else { count };
                    sieve.sums[at] = sieve.sums[at].saturating_add(count);
                })?;
            }
            Ok(sieve)
        })?;
        let add = |mut all: Self, part: Self| {
            for (sums, more) in [(&mut all.sums, part.sums), (&mut all.others, part.others)] {
                for (sum, more) in sums.iter_mut().zip(more) {
                    *sum = sum.saturating_add(more);
                }
            }
            for (n_places, more) in all.n_places.iter_mut().zip(part.n_places) {
                *n_places += more;
            }
            all
        };
        let zeros = || vec![0; n_sums];
        let none = || Self { sums: zeros(), others: zeros(), n_places: zeros(), shift };
        Ok(sieves.into_iter().reduce(add).unwrap_or_else(none))
    }

    #[inline]
    fn place(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }

    #[inline]
    fn other_place(&self, left: u32, right: u32) -> usize {
        (fold(u64::from(left) << 32 | u64::from(right), 0xD6E8_FEB8_6659_FD93) >> self.shift) as usize
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
            && (self.others.is_empty() || self.others[self.other_place(left, right)] >= threshold)
    }

    /// The lowest threshold from `lowest` on which lets through no more places than `max_places` and no more than there is room
    /// for; `None` where none does that lets anything through.
    pub fn threshold_with_room(&self, lowest: u64, max_places: u64, room: Room) -> Option<u64> {
        let fits = |threshold| {
            let load = self.load(threshold);
            load.n_places <= max_places && room.fits(load)
        };
        if !room.is_limited() || fits(lowest) {
            return Some(lowest);
        }
        let (mut too_low, mut high) = (lowest, self.greatest());
        if high <= too_low || !fits(high) {
            return None;
        }
        while high - too_low > 1 {
            let between = too_low.midpoint(high);
            if fits(between) {
                high = between;
            } else {
                too_low = between;
            }
        }
        Some(high)
    }

    /// What a threshold lets through, at most. Of the pairs, only as many as have different sums are known.
    pub fn load(&self, threshold: u64) -> Load {
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
