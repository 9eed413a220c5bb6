//! Finding the frequent pairs: upper bounds on the counts of all pairs, then the positions of those that may be frequent; in
//! low-memory mode, the most frequent pair alone.

use super::budget::Limits;
use super::pairs::PairMap;
use super::pretoken_slots::{PretokenSlots, Slot};
use crate::batch::parallel::map_parts;
use crate::error::Result;
use crate::sys::hash::{fold, hash_pair};
use crate::sys::interrupt::Interrupt;
use std::sync::atomic::{AtomicU32, Ordering};

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

// Finding the frequent pairs and their positions.

/// A tracked pair.
#[derive(Clone, Copy)]
pub struct Pair {
    pub left: u32,
    pub right: u32,
    pub count: u64,
    /// Index of its first position in the list of all positions.
    pub first: usize,
    pub n_positions: u32,
}

/// All pairs that reach a threshold.
pub struct Frequent {
    pub threshold: u64,
    pub pairs: Vec<Pair>,
    /// Index of each pair in `pairs`.
    pub pair_of: PairMap<u32>,
    /// The positions of each pair, ascending.
    pub positions: Vec<u32>,
}

/// Finds all pairs that occur at least `threshold` times, with their positions. Tokens take one slot each. `None` if
/// there are more pairs or candidates than allowed.
///
/// Every part of the pre-tokens collects the pairs whose upper bound reaches the threshold. The positions of those that
/// turn out to be frequent are then copied to one list, grouped by pair and in order.
pub fn find_frequent<S: Slot>(
    slots: &PretokenSlots,
    bound: &PairCountBound,
    threshold: u64,
    limits: Limits,
    interrupt: Interrupt,
) -> Result<Option<Frequent>> {
    let least_sum = u32::try_from(threshold).unwrap_or(u32::MAX);
    let n_threads = limits.n_threads;
    let parts = map_parts(slots.parts::<S>(n_threads), n_threads, interrupt, |_, part, interrupt| {
        let mut candidates = Candidates::new(limits.max_candidates);
        slots.for_each_slot::<S>(part, interrupt, |position, before, slot, count| {
            let (left, right) = (before.symbol(), slot.symbol());
            if bound.may_reach(least_sum, left, right) && before != S::SEPARATOR && slot != S::SEPARATOR {
                // A position is less than the number of slots, which fits into 32 bits.
                candidates.add(left, right, (position - 1) as u32, count);
            }
        })?;
        Ok((!candidates.is_full()).then_some(candidates))
    })?;
    let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let Some((pairs, pair_of, cursors)) = select(&parts, threshold, limits) else { return Ok(None) };
    let n_positions = pairs.last().map_or(0, |pair| pair.first + pair.n_positions as usize);
    let positions: Vec<AtomicU32> = std::iter::repeat_with(AtomicU32::default).take(n_positions).collect();
    let lists: Vec<_> = parts.into_iter().map(Candidates::into_positions).zip(cursors).collect();
    map_parts(lists, n_threads, interrupt, |_, (chunks, mut cursors), interrupt| {
        let (positions, cursors) = (&positions[..], &mut cursors[..]);
        for chunk in chunks {
            interrupt()?;
            for (number, position) in chunk {
                let cursor = &mut cursors[number as usize];
                if *cursor != NOT_TRACKED {
                    positions[*cursor as usize].store(position, Ordering::Relaxed);
                    *cursor += 1;
                }
            }
        }
        Ok(())
    })?;
    let positions = positions.into_iter().map(AtomicU32::into_inner).collect();
    Ok(Some(Frequent { threshold, pairs, pair_of, positions }))
}

/// Number of a pair that is not a candidate.
const NO_NUMBER: u32 = u32::MAX;

/// Cursor of a candidate that is not frequent.
const NOT_TRACKED: u32 = u32::MAX;

/// The frequent pairs, their table, and for every part and candidate the index where its positions go.
type Selection = (Vec<Pair>, PairMap<u32>, Vec<Vec<u32>>);

/// Selects the candidates that reach the threshold in all parts together. `None` if they are too many.
fn select(parts: &[Candidates], threshold: u64, limits: Limits) -> Option<Selection> {
    let mut pairs = Vec::new();
    if limits.is_limited() {
        let n_candidates: usize = parts.iter().map(|part| part.pairs.len()).sum();
        pairs.reserve_exact(n_candidates.min(limits.max_pairs));
    }
    let mut pair_of = PairMap::with_capacity(0);
    let mut cursors: Vec<Vec<u32>> = parts.iter().map(|part| vec![NOT_TRACKED; part.pairs.len()]).collect();
    let mut n_positions = 0;
    for (index, part) in parts.iter().enumerate() {
        for candidate in &part.pairs {
            let (left, right) = (candidate.left, candidate.right);
            // The first part that has a pair adds it up.
            if parts[..index].iter().any(|earlier| earlier.get(left, right).is_some()) {
                continue;
            }
            let count_in = |part: &Candidates| Some(part.pairs[part.get(left, right)? as usize].count);
            if candidate.count + parts[index + 1..].iter().filter_map(count_in).sum::<u64>() < threshold {
                continue;
            }
            if pairs.len() == limits.max_pairs {
                return None;
            }
            let (first, mut count) = (n_positions, 0);
            for (part, cursors) in parts.iter().zip(&mut cursors).skip(index) {
                if let Some(number) = part.get(left, right) {
                    let in_part = &part.pairs[number as usize];
                    // All parts together have less than 2³² slots.
                    cursors[number as usize] = n_positions as u32;
                    n_positions += in_part.n_positions as usize;
                    count += in_part.count;
                }
            }
            *pair_of.entry(left, right) = pairs.len() as u32;
            pairs.push(Pair { left, right, count, first, n_positions: (n_positions - first) as u32 });
        }
    }
    Some((pairs, pair_of, cursors))
}

/// Positions per chunk. A list of chunks grows without being copied.
const CHUNK_POSITIONS: usize = if cfg!(test) { 1 << 3 } else { 1 << 14 };

/// Pairs of one part that may reach the threshold.
struct Candidates {
    /// Index of each pair in `pairs`. Pairs of bytes, the most frequent ones, have a table without hashing.
    numbers: PairMap<u32>,
    byte_numbers: Box<[u32; 1 << 16]>,
    pairs: Vec<Candidate>,
    /// (number of the pair, position) of every occurrence, in chunks; the last one is not full.
    positions: Vec<Vec<(u32, u32)>>,
    chunk: Vec<(u32, u32)>,
    max_pairs: usize,
}

/// A pair with its occurrences in one part.
struct Candidate {
    left: u32,
    right: u32,
    count: u64,
    n_positions: u32,
}

impl Candidates {
    fn new(max_pairs: usize) -> Self {
        Self {
            numbers: PairMap::with_capacity(0),
            byte_numbers: Box::new([NO_NUMBER; 1 << 16]),
            pairs: Vec::new(),
            positions: Vec::new(),
            chunk: Vec::with_capacity(CHUNK_POSITIONS),
            max_pairs,
        }
    }

    /// True if there are more than `max_pairs`. Later occurrences are then ignored.
    fn is_full(&self) -> bool {
        self.pairs.len() > self.max_pairs
    }

    fn get(&self, left: u32, right: u32) -> Option<u32> {
        match byte_pair(left, right) {
            Some(index) => Some(self.byte_numbers[index]).filter(|&number| number != NO_NUMBER),
            None => self.numbers.get(left, right),
        }
    }

    #[inline]
    fn add(&mut self, left: u32, right: u32, position: u32, count: u64) {
        let n_pairs = self.pairs.len();
        if n_pairs > self.max_pairs {
            return;
        }
        let number = match byte_pair(left, right) {
            Some(index) => &mut self.byte_numbers[index],
            None => self.numbers.entry_or(left, right, NO_NUMBER),
        };
        if *number == NO_NUMBER {
            *number = n_pairs as u32;
            self.pairs.push(Candidate { left, right, count: 0, n_positions: 0 });
        }
        let number = *number;
        let candidate = &mut self.pairs[number as usize];
        candidate.count += count;
        candidate.n_positions += 1;
        self.chunk.push((number, position));
        if self.chunk.len() == CHUNK_POSITIONS {
            self.end_chunk();
        }
    }

    #[cold]
    fn end_chunk(&mut self) {
        self.positions.push(std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_POSITIONS)));
    }

    /// The chunks of positions.
    fn into_positions(mut self) -> Vec<Vec<(u32, u32)>> {
        self.positions.push(self.chunk);
        self.positions
    }
}

/// Index of a pair of bytes in a table of all of them.
#[inline]
fn byte_pair(left: u32, right: u32) -> Option<usize> {
    ((left | right) < 256).then_some(usize::from(left as u8) << 8 | usize::from(right as u8))
}

// Low-memory mode: finding the most frequent pair without its positions, which would not fit into memory.

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
    is_allowed: impl Fn((u32, u32)) -> bool,
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
            best = best_of(best, &counts, &is_allowed, &precedes);
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
    is_allowed: &impl Fn((u32, u32)) -> bool,
    precedes: &impl Fn(CountedPair, CountedPair) -> bool,
) -> Option<CountedPair> {
    for (index, part) in parts.iter().enumerate() {
        for ((left, right), _) in part.iter() {
            if parts[..index].iter().any(|earlier| earlier.get(left, right).is_some()) {
                continue;
            }
            let count = parts[index..].iter().filter_map(|part| part.get(left, right)).sum();
            let counted = ((left, right), count);
            if best.is_none_or(|best| precedes(counted, best)) && is_allowed((left, right)) {
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
