//! Finding the frequent pairs and their positions.

use super::budget::Limits;
use super::pair_count_bound::PairCountBound;
use super::pair_map::PairMap;
use super::pretoken_slots::PretokenSlots;
use super::slot::Slot;
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use crate::train::parts::map_parts;
use std::sync::atomic::{AtomicU32, Ordering};

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
