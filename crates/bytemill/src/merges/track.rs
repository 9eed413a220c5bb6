//! Finding the frequent pairs and their places.

use super::pair_map::PairMap;
use super::parts::for_each_part;
use super::words::{SEPARATOR, SLOTS_A_PULSE, Words};
use crate::error::Result;
use crate::hash::hash_pair;
use crate::pulse::Pulse;
use std::sync::atomic::{AtomicU32, Ordering};

/// A pair that is being tracked.
#[derive(Clone, Copy)]
pub struct Pair {
    pub left: u32,
    pub right: u32,
    pub count: u64,
    /// Where its places are in the list of all places.
    pub first: usize,
    pub n_places: u32,
}

/// The pairs at or above a threshold.
pub struct Found {
    pub threshold: u64,
    pub pairs: Vec<Pair>,
    pub pair_of: PairMap<u32>,
    /// Where they are: for each pair in ascending order. Atomic since several threads fill it, each in places of its
    /// own.
    pub places: Vec<AtomicU32>,
}

/// Occurrences of a pair in a part of the words.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Weighted by how often their words occur.
    count: u64,
    n_places: u32,
}

/// Sums that pairs share by their hash: where a sum is below the threshold, so are all its pairs.
///
/// Sums stop at 2³² - 1.
pub struct Sieve {
    sums: Vec<u32>,
    shift: u32,
}

impl Sieve {
    /// Adds up the pairs of all words.
    pub fn new(words: &Words, n_threads: usize, pulse: Pulse) -> Result<Self> {
        // Sums are of use while few pairs share one; but they have to fit into the cache.
        let n_sums = (words.slots.len() / 16).next_power_of_two().clamp(1 << 12, 1 << SIEVE_LOG2);
        let shift = 64 - n_sums.trailing_zeros();
        let sums = for_each_part(words.parts(n_threads), n_threads, pulse, |_, part, pulse| {
            let mut sums = vec![0u32; n_sums];
            words.for_each_slot(part, pulse, |_, left, right, count| {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let sum = &mut sums[(hash_pair(left, right) >> shift) as usize];
                // Nothing is added at the ends of a word: cheaper than a branch.
                *sum = sum.saturating_add(if left == SEPARATOR || right == SEPARATOR { 0 } else { count });
            })?;
            Ok(sums)
        })?;
        let add = |mut all: Vec<u32>, part: Vec<u32>| {
            for (sum, more) in all.iter_mut().zip(part) {
                *sum = sum.saturating_add(more);
            }
            all
        };
        Ok(Self { sums: sums.into_iter().reduce(add).unwrap_or_else(|| vec![0; n_sums]), shift })
    }

    /// The sum that is the n-th from the greatest down, 0 where there are not so many.
    pub fn nth_greatest(&self, n: usize) -> u64 {
        let mut sums: Vec<u32> = self.sums.iter().copied().filter(|&sum| sum > 0).collect();
        match sums.len().checked_sub(n.max(1)) {
            Some(index) => u64::from(*sums.select_nth_unstable(index).1),
            None => 0,
        }
    }

    /// False where the pair occurs less than `threshold` times.
    #[inline]
    fn may_reach(&self, threshold: u32, left: u32, right: u32) -> bool {
        self.sums[(hash_pair(left, right) >> self.shift) as usize] >= threshold
    }
}

const SIEVE_LOG2: u32 = 18;

/// Finds all pairs that occur at least `threshold` times, with their places; tokens have one slot each.
///
/// What the sieve lets through is counted and put down; the places of the pairs that turn out to reach the threshold are
/// then taken from there.
pub fn find(words: &Words, sieve: &Sieve, threshold: u64, n_threads: usize, pulse: Pulse) -> Result<Found> {
    let least_sum = u32::try_from(threshold).unwrap_or(u32::MAX);
    let parts = for_each_part(words.parts(n_threads), n_threads, pulse, |_, part, pulse| {
        let mut passed = Passed { numbers: PairMap::with_capacity(1 << 12), pairs: Vec::new(), places: Vec::new() };
        words.for_each_slot(part, pulse, |place, left, right, count| {
            if sieve.may_reach(least_sum, left, right) && left != SEPARATOR && right != SEPARATOR {
                passed.note(left, right, place - 1, count);
            }
        })?;
        Ok(passed)
    })?;

    let mut pairs = Vec::new();
    let mut pair_of = PairMap::with_capacity(1 << 12);
    let mut n_places = 0;
    let mut cursors: Vec<Vec<u64>> = parts.iter().map(|part| vec![UNTRACKED; part.pairs.len()]).collect();
    for (index, part) in parts.iter().enumerate() {
        for &((left, right), tally) in &part.pairs {
            // A pair is added up where the first part has it.
            if parts[..index].iter().any(|earlier| earlier.numbers.get(left, right).is_some()) {
                continue;
            }
            let later = parts[index + 1..].iter().filter_map(|part| part.tally(left, right));
            let count = tally.count + later.map(|tally| tally.count).sum::<u64>();
            if count < threshold {
                continue;
            }
            *pair_of.entry(left, right) = pairs.len() as u32;
            let first = n_places;
            for (part, cursors) in parts.iter().zip(&mut cursors).skip(index) {
                if let Some(number) = part.numbers.get(left, right) {
                    cursors[number as usize] = cursor_at(n_places);
                    n_places += part.pairs[number as usize].1.n_places as usize;
                }
            }
            pairs.push(Pair { left, right, count, first, n_places: (n_places - first) as u32 });
        }
    }
    let places = room_for(n_places, parts.len());
    let parts = parts.into_iter().map(|part| part.places).zip(cursors).collect();
    for_each_part(parts, n_threads, pulse, |part, (passed, mut cursors): (Vec<(u32, u32)>, _), pulse| {
        aim_untracked(&mut cursors, n_places, part);
        for passed in passed.chunks(SLOTS_A_PULSE) {
            pulse()?;
            for &(number, place) in passed {
                store(&places, &mut cursors[number as usize], place);
            }
        }
        Ok(())
    })?;
    Ok(Found { threshold, pairs, pair_of, places: without_spare(places, n_places) })
}

/// What a part has of pairs that the sieve let through.
struct Passed {
    /// A number for each pair, in the order in which they were met with.
    numbers: PairMap<u32>,
    /// By number.
    pairs: Vec<((u32, u32), Tally)>,
    /// (number, place) of every occurrence.
    places: Vec<(u32, u32)>,
}

impl Passed {
    #[inline]
    fn note(&mut self, left: u32, right: u32, place: usize, count: u64) {
        let n_pairs = self.pairs.len();
        let number = *self.numbers.entry_or(left, right, n_pairs as u32);
        if number as usize == n_pairs {
            self.pairs.push(((left, right), Tally::default()));
        }
        let tally = &mut self.pairs[number as usize].1;
        tally.count += count;
        tally.n_places += 1;
        self.places.push((number, place as u32));
    }

    fn tally(&self, left: u32, right: u32) -> Option<Tally> {
        self.numbers.get(left, right).map(|number| self.pairs[number as usize].1)
    }
}

/// As [`find`] while all tokens are bytes, when pairs need no hash: the threshold is a share of the greatest count.
pub fn find_in_bytes(
    words: &Words,
    threshold_from: impl Fn(u64) -> u64,
    n_threads: usize,
    pulse: Pulse,
) -> Result<Found> {
    const SIDE: u32 = 257;
    // What is no byte, the ends of words, has one row and one column for all.
    let cell = |left: u32, right: u32| (left.min(256) * SIDE + right.min(256)) as usize;
    let parts = words.parts(n_threads);
    let grids = for_each_part(parts.clone(), n_threads, pulse, |_, part, pulse| {
        let mut grid = vec![Tally::default(); (SIDE * SIDE) as usize];
        words.for_each_slot(part, pulse, |_, left, right, count| {
            let tally = &mut grid[cell(left, right)];
            tally.count += count;
            tally.n_places += 1;
        })?;
        Ok(grid)
    })?;

    let bytes = || (0..256).flat_map(|left| (0..256).map(move |right| (left, right)));
    let count_of = |left, right| grids.iter().map(|grid| grid[cell(left, right)].count).sum::<u64>();
    let threshold = threshold_from(bytes().map(|(left, right)| count_of(left, right)).max().unwrap_or(0));
    let mut pairs = Vec::new();
    let mut pair_of = PairMap::with_capacity(1 << 12);
    let mut n_places = 0;
    let mut cursors = vec![vec![UNTRACKED; (SIDE * SIDE) as usize]; parts.len()];
    for (left, right) in bytes() {
        let count = count_of(left, right);
        if count > 0 && count >= threshold {
            *pair_of.entry(left, right) = pairs.len() as u32;
            let first = n_places;
            for (grid, cursors) in grids.iter().zip(&mut cursors) {
                cursors[cell(left, right)] = cursor_at(n_places);
                n_places += grid[cell(left, right)].n_places as usize;
            }
            pairs.push(Pair { left, right, count, first, n_places: (n_places - first) as u32 });
        }
    }
    drop(grids);
    let places = room_for(n_places, parts.len());
    let parts = parts.into_iter().zip(cursors).collect();
    for_each_part(parts, n_threads, pulse, |part, (slots, mut cursors): (_, Vec<u64>), pulse| {
        aim_untracked(&mut cursors, n_places, part);
        words.for_each_slot(slots, pulse, |place, left, right, _| {
            // The first slot of all has none before it, and goes to the row of ends.
            store(&places, &mut cursors[cell(left, right)], place.wrapping_sub(1) as u32);
        })
    })?;
    Ok(Found { threshold, pairs, pair_of, places: without_spare(places, n_places) })
}

// A cursor says where the next place of a pair goes, times two, plus one if the cursor then moves on. Those of pairs
// that are not tracked stand still, on a spare place: to store in vain is cheaper than a branch that nobody foresees.

const UNTRACKED: u64 = 0;

/// Spare places for each part, so many that parts do not write to each other's cache lines.
const SPARE: usize = 64;

fn cursor_at(place: usize) -> u64 {
    (place as u64) << 1 | 1
}

fn room_for(n_places: usize, n_parts: usize) -> Vec<AtomicU32> {
    std::iter::repeat_with(AtomicU32::default).take(n_places + n_parts * SPARE + SPARE).collect()
}

fn without_spare(mut places: Vec<AtomicU32>, n_places: usize) -> Vec<AtomicU32> {
    places.truncate(n_places);
    places
}

/// Aims the cursors of untracked pairs at a part's spare places.
fn aim_untracked(cursors: &mut [u64], n_places: usize, part: usize) {
    let spare = ((n_places + SPARE / 2 + part * SPARE) as u64) << 1;
    for cursor in cursors.iter_mut().filter(|cursor| **cursor == UNTRACKED) {
        *cursor = spare;
    }
}

#[inline]
fn store(places: &[AtomicU32], cursor: &mut u64, place: u32) {
    places[(*cursor >> 1) as usize].store(place, Ordering::Relaxed);
    *cursor += (*cursor & 1) << 1;
}
