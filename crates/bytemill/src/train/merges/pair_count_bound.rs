//! Upper bounds on the counts of all pairs.

use super::budget::Limits;
use super::pretoken_slots::PretokenSlots;
use super::slot::Slot;
use crate::error::Result;
use crate::sys::hash::hash_pair;
use crate::sys::interrupt::Interrupt;
use crate::train::parts::map_parts;

/// Logarithm of the largest number of sums. They must fit into a core's cache.
const MAX_SUMS_LOG2: u32 = if cfg!(test) { 12 } else { 18 };

/// Sums of pair counts by hash bucket: an upper bound on the count of each pair in the bucket.
///
/// A pair whose sum is below the threshold cannot reach the threshold itself. Sums saturate at 2³² - 1.
pub struct PairCountBound {
    sums: Vec<u32>,
    /// Number of positions of the pairs in each bucket; empty without a memory limit.
    n_positions: Vec<u32>,
    shift: u32,
}

impl PairCountBound {
    /// Adds up the pairs of all pre-tokens, whose tokens take one slot each.
    pub fn new<S: Slot>(slots: &PretokenSlots, limits: Limits, interrupt: Interrupt) -> Result<Self> {
        // The bound is tight as long as few pairs share a sum.
        let n_sums = (slots.n_slots() / 16).next_power_of_two().clamp(1 << 12, 1 << MAX_SUMS_LOG2);
        let n_counted = if limits.is_limited() { n_sums } else { 0 };
        let zeros =
            || Self { sums: vec![0; n_sums], n_positions: vec![0; n_counted], shift: 64 - n_sums.trailing_zeros() };
        let parts =
            map_parts(slots.parts::<S>(limits.n_threads), limits.n_threads, interrupt, |_, part, interrupt| {
                let mut bound = zeros();
                slots.for_each_slot::<S>(part.clone(), interrupt, |_, left, right, count| {
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    let bucket = bound.bucket(left.symbol(), right.symbol());
                    // Adding zero at the ends of pre-tokens is cheaper than a branch.
                    let count = if left == S::SEPARATOR || right == S::SEPARATOR { 0 } else { count };
                    bound.sums[bucket] = bound.sums[bucket].saturating_add(count);
                })?;
                if limits.is_limited() {
                    slots.for_each_slot::<S>(part, interrupt, |_, left, right, _| {
                        let is_pair = left != S::SEPARATOR && right != S::SEPARATOR;
                        let bucket = bound.bucket(left.symbol(), right.symbol());
                        bound.n_positions[bucket] += u32::from(is_pair);
                    })?;
                }
                Ok(bound)
            })?;
        let add = |mut total: Self, part: Self| {
            for (sum, more) in total.sums.iter_mut().zip(part.sums) {
                *sum = sum.saturating_add(more);
            }
            for (n_positions, more) in total.n_positions.iter_mut().zip(part.n_positions) {
                *n_positions += more;
            }
            total
        };
        Ok(parts.into_iter().reduce(add).unwrap_or_else(zeros))
    }

    #[inline]
    fn bucket(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }

    /// The `n`-th greatest sum, 0 if there are fewer.
    pub fn nth_greatest(&self, n: usize) -> u64 {
        let mut sums: Vec<u32> = Vec::with_capacity(self.sums.len());
        sums.extend(self.sums.iter().filter(|&&sum| sum > 0));
        match sums.len().checked_sub(n.max(1)) {
            Some(index) => u64::from(*sums.select_nth_unstable(index).1),
            None => 0,
        }
    }

    /// The greatest sum.
    pub fn greatest(&self) -> u64 {
        self.sums.iter().copied().max().map_or(0, u64::from)
    }

    /// False if the pair occurs less than `threshold` times.
    #[inline]
    pub fn may_reach(&self, threshold: u32, left: u32, right: u32) -> bool {
        self.sums[self.bucket(left, right)] >= threshold
    }

    /// The lowest threshold from `lowest` on that at most `max_positions` positions may reach, and their number. `None`
    /// if the most frequent pairs alone exceed `max_positions`. Without a memory limit, `lowest`.
    pub fn lowest_threshold(&self, lowest: u64, max_positions: usize) -> Option<(u64, usize)> {
        let buckets = self.sums.iter().copied().zip(self.n_positions.iter().copied());
        let mut buckets: Vec<(u32, u32)> = buckets.filter(|&(sum, _)| u64::from(sum) >= lowest.max(1)).collect();
        buckets.sort_unstable_by_key(|&(sum, _)| std::cmp::Reverse(sum));
        let mut n_positions = 0;
        for (sum, n_more) in buckets {
            if n_positions + n_more as usize > max_positions {
                // No threshold excludes saturated sums.
                let has_threshold = n_positions > 0 && sum < u32::MAX;
                return has_threshold.then(|| (u64::from(sum) + 1, n_positions));
            }
            n_positions += n_more as usize;
        }
        Some((lowest, n_positions))
    }
}
