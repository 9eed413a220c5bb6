//! Where the places of the most frequent pair take more memory than there is: finding it by its count alone.

use super::budget::Room;
use super::pair_map::PairMap;
use super::parts::for_each_part;
use super::sieve::Sieve;
use super::slot::Slot;
use super::words::Words;
use crate::error::Result;
use crate::hash::fold;
use crate::pulse::Pulse;

/// A pair and how often it occurs.
pub type Counted = ((u32, u32), u64);

/// The pair that is merged next, `None` where none occurs `min_count` times; tokens have one slot each.
///
/// Pairs are counted whose sums in the sieve reach a threshold, at first that of the greatest sum. If one of them reaches it
/// too, no pair that was passed over comes before it. Else the threshold is lowered. Where these are too many to be counted
/// together, they are counted in shares, by a hash.
pub fn most_frequent<S: Slot>(
    words: &Words,
    sieve: &Sieve,
    min_count: u64,
    room: Room,
    is_first: impl Fn(Counted, Counted) -> bool,
    pulse: Pulse,
) -> Result<Option<Counted>> {
    let mut threshold = sieve.greatest();
    let mut n_shares = 1;
    loop {
        let mut best: Option<Counted> = None;
        let mut share = 0;
        while share < n_shares {
            let threshold = threshold.max(min_count).max(best.map_or(0, |(_, count)| count));
            let Some(counted) = count_share::<S>(words, sieve, threshold, (share, n_shares), room, pulse)? else {
                (share, n_shares) = (0, 2 * n_shares);
                continue;
            };
            best = best_of(best, &counted, &is_first);
            share += 1;
        }
        match best.filter(|&(_, count)| count >= min_count) {
            Some(best) if best.1 >= threshold => return Ok(Some(best)),
            best if threshold <= min_count => return Ok(best),
            // All that reach the count of the best one so far are counted next time.
            best => threshold = best.map_or(0, |(_, count)| count).max(threshold / 2).max(min_count),
        }
    }
}

/// The best of those in `parts`, a pair's counts in which add up, and of what was best before.
fn best_of(
    before: Option<Counted>,
    parts: &[PairMap<u64>],
    is_first: &impl Fn(Counted, Counted) -> bool,
) -> Option<Counted> {
    let mut best = before;
    for (index, part) in parts.iter().enumerate() {
        for ((left, right), _) in part.iter() {
            if parts[..index].iter().any(|earlier| earlier.get(left, right).is_some()) {
                continue;
            }
            let count = parts[index..].iter().filter_map(|part| part.get(left, right)).sum();
            let counted = ((left, right), count);
            if best.is_none_or(|best| is_first(counted, best)) {
                best = Some(counted);
            }
        }
    }
    best
}

/// Counts of the pairs of one share whose sums reach the threshold, by parts of the words; `None` where they are too many.
fn count_share<S: Slot>(
    words: &Words,
    sieve: &Sieve,
    threshold: u64,
    (share, n_shares): (u64, u64),
    room: Room,
    pulse: Pulse,
) -> Result<Option<Vec<PairMap<u64>>>> {
    let least_sum = u32::try_from(threshold).unwrap_or(u32::MAX);
    let max_pairs = room.max_candidates();
    let is_in_share = |left, right| {
        n_shares == 1 || fold(u64::from(left) << 32 | u64::from(right), 0xD6E8_FEB8_6659_FD93) % n_shares == share
    };
    let parts = for_each_part(words.parts::<S>(room.n_threads), room.n_threads, pulse, |_, part, pulse| {
        let mut counts = PairMap::with_capacity(0);
        let mut is_full = false;
        words.for_each_slot::<S>(part, pulse, |_, left, right, count| {
            let (left, right, is_pair) = (left.symbol(), right.symbol(), left != S::SEPARATOR && right != S::SEPARATOR);
            if is_pair && !is_full && sieve.may_reach(least_sum, left, right) && is_in_share(left, right) {
                *counts.entry(left, right) += count;
                is_full = counts.n_pairs() > max_pairs;
            }
        })?;
        Ok((!is_full).then_some(counts))
    })?;
    Ok(parts.into_iter().collect())
}
