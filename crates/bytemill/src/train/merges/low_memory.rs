//! Low-memory mode: finding the most frequent pair without its positions, which would not fit into memory.

use super::budget::Limits;
use super::pair_count_bound::PairCountBound;
use super::pair_map::PairMap;
use super::pretoken_slots::PretokenSlots;
use super::slot::Slot;
use crate::error::Result;
use crate::sys::hash::fold;
use crate::sys::interrupt::Interrupt;
use crate::train::parts::map_parts;

/// A pair and its count.
pub type CountedPair = ((u32, u32), u64);

/// The pair to merge next, `None` if no pair occurs `min_count` times. Tokens take one slot each.
///
/// Counts the pairs whose upper bound reaches a threshold, which starts at the greatest bound. If the best of them
/// reaches the threshold, no other pair precedes it. Otherwise the threshold falls and the pairs are counted again.
/// If there are too many pairs to count at once, they are counted in shares by hash.
pub fn most_frequent<S: Slot>(
    slots: &PretokenSlots,
    bound: &PairCountBound,
    min_count: u64,
    limits: Limits,
    precedes: impl Fn(CountedPair, CountedPair) -> bool,
    interrupt: Interrupt,
) -> Result<Option<CountedPair>> {
    let mut threshold = bound.greatest();
    let mut n_shares = 1;
    loop {
        let mut best: Option<CountedPair> = None;
        let mut share = 0;
        while share < n_shares {
            let best_count = best.map_or(0, |(_, count)| count);
            let threshold = threshold.max(min_count).max(best_count);
            let Some(counts) = count_share::<S>(slots, bound, threshold, (share, n_shares), limits, interrupt)? else {
                (share, n_shares) = (0, 2 * n_shares);
                continue;
            };
            best = best_of(best, &counts, &precedes);
            share += 1;
        }
        let best_count = best.map_or(0, |(_, count)| count);
        if best_count >= threshold.max(min_count) || threshold <= min_count {
            return Ok(best.filter(|_| best_count >= min_count));
        }
        threshold = best_count.max(threshold / 2).max(min_count);
    }
}

/// The best of `best` and of the pairs in `parts`, whose counts add up.
fn best_of(
    mut best: Option<CountedPair>,
    parts: &[PairMap<u64>],
    precedes: &impl Fn(CountedPair, CountedPair) -> bool,
) -> Option<CountedPair> {
    for (index, part) in parts.iter().enumerate() {
        for ((left, right), _) in part.iter() {
            if parts[..index].iter().any(|earlier| earlier.get(left, right).is_some()) {
                continue;
            }
            let count = parts[index..].iter().filter_map(|part| part.get(left, right)).sum();
            let counted = ((left, right), count);
            if best.is_none_or(|best| precedes(counted, best)) {
                best = Some(counted);
            }
        }
    }
    best
}

/// Counts the pairs of one share whose bound reaches the threshold, one table per part of the pre-tokens. `None` if
/// there are too many pairs.
fn count_share<S: Slot>(
    slots: &PretokenSlots,
    bound: &PairCountBound,
    threshold: u64,
    (share, n_shares): (u64, u64),
    limits: Limits,
    interrupt: Interrupt,
) -> Result<Option<Vec<PairMap<u64>>>> {
    let least_sum = u32::try_from(threshold).unwrap_or(u32::MAX);
    let is_in_share = |left, right| {
        n_shares == 1 || fold(u64::from(left) << 32 | u64::from(right), 0xD6E8_FEB8_6659_FD93) % n_shares == share
    };
    let parts = map_parts(slots.parts::<S>(limits.n_threads), limits.n_threads, interrupt, |_, part, interrupt| {
        let mut counts = PairMap::with_capacity(0);
        let mut is_full = false;
        slots.for_each_slot::<S>(part, interrupt, |_, left, right, count| {
            let is_pair = left != S::SEPARATOR && right != S::SEPARATOR;
            let (left, right) = (left.symbol(), right.symbol());
            if is_pair && !is_full && bound.may_reach(least_sum, left, right) && is_in_share(left, right) {
                *counts.entry(left, right) += count;
                is_full = counts.n_pairs() > limits.max_candidates;
            }
        })?;
        Ok((!is_full).then_some(counts))
    })?;
    Ok(parts.into_iter().collect())
}
