//! Finding the frequent pairs and their places.

use super::budget::{Load, Room};
use super::pair_map::PairMap;
use super::parts::for_each_part;
use super::sieve::Sieve;
use super::slot::{Narrow, Slot};
use super::words::Words;
use crate::error::Result;
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

/// Finds all pairs that occur at least `threshold` times, with their places; tokens have one slot each. `None` where more pairs
/// may be frequent enough than there is room for.
///
/// What the sieve lets through is counted and put down; the places of the pairs that turn out to reach the threshold are
/// then taken from there.
pub fn find<S: Slot>(words: &Words, sieve: &Sieve, threshold: u64, room: Room, pulse: Pulse) -> Result<Option<Found>> {
    let least_sum = u32::try_from(threshold).unwrap_or(u32::MAX);
    let max_pairs = room.max_candidates();
    let n_threads = room.n_threads;
    let parts = for_each_part(words.parts::<S>(n_threads), n_threads, pulse, |_, part, pulse| {
        let mut passed = Passed::new(max_pairs);
        words.for_each_slot::<S>(part, pulse, |place, before, slot, count| {
            let (left, right) = (before.symbol(), slot.symbol());
            if sieve.may_reach(least_sum, left, right) && before != S::SEPARATOR && slot != S::SEPARATOR {
                passed.note(left, right, place - 1, count);
            }
        })?;
        Ok((!passed.is_full()).then_some(passed))
    })?;
    let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };

    let n_candidates: usize = parts.iter().map(|part| part.pairs.len()).sum();
    let mut pairs = Vec::with_capacity(if room.is_limited() { n_candidates.min(room.max_pairs()) } else { 0 });
    let mut pair_of = PairMap::with_capacity(0);
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
            if pairs.len() == room.max_pairs() {
                return Ok(None);
            }
            pairs.push(Pair { left, right, count, first, n_places: (n_places - first) as u32 });
        }
    }
    let places = room_for(n_places, parts.len());
    let parts = parts.into_iter().map(|part| part.places).zip(cursors).collect();
    for_each_part(parts, n_threads, pulse, |part, (passed, mut cursors): (Vec<Vec<(u32, u32)>>, _), pulse| {
        aim_untracked(&mut cursors, n_places, part);
        for passed in passed {
            pulse()?;
            for (number, place) in passed {
                store(&places, &mut cursors[number as usize], place);
            }
        }
        Ok(())
    })?;
    Ok(Some(Found { threshold, pairs, pair_of, places: without_spare(places, n_places) }))
}

/// Places in a piece of a list: lists of pieces grow without ever being there twice.
const PIECE: usize = if cfg!(test) { 1 << 3 } else { 1 << 14 };

/// What a part has of pairs that the sieve let through.
struct Passed {
    /// A number for each pair, in the order in which they were met with.
    numbers: PairMap<u32>,
    /// By number.
    pairs: Vec<((u32, u32), Tally)>,
    /// (number, place) of every occurrence, in pieces.
    places: Vec<Vec<(u32, u32)>>,
    max_pairs: usize,
}

impl Passed {
    fn new(max_pairs: usize) -> Self {
        Self {
            numbers: PairMap::with_capacity(0),
            pairs: Vec::new(),
            places: vec![Vec::with_capacity(PIECE)],
            max_pairs,
        }
    }

    /// True where there are more than `max_pairs`; then nothing is noted any more.
    fn is_full(&self) -> bool {
        self.pairs.len() > self.max_pairs
    }

    #[inline]
    fn note(&mut self, left: u32, right: u32, place: usize, count: u64) {
        let n_pairs = self.pairs.len();
        if n_pairs > self.max_pairs {
            return;
        }
        let number = *self.numbers.entry_or(left, right, n_pairs as u32);
        if number as usize == n_pairs {
            self.pairs.push(((left, right), Tally::default()));
        }
        let tally = &mut self.pairs[number as usize].1;
        tally.count += count;
        tally.n_places += 1;
        match self.places.last_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push((number, place as u32)),
            _ => self.add_piece((number, place as u32)),
        }
    }

    #[cold]
    fn add_piece(&mut self, first: (u32, u32)) {
        let mut piece = Vec::with_capacity(PIECE);
        piece.push(first);
        self.places.push(piece);
    }

    fn tally(&self, left: u32, right: u32) -> Option<Tally> {
        self.numbers.get(left, right).map(|number| self.pairs[number as usize].1)
    }
}

/// As [`find`] while all tokens are bytes, when pairs need no hash: the threshold is a share of the greatest count, or, where
/// there is no room for all pairs above it, higher.
pub fn find_in_bytes(words: &Words, threshold_from: impl Fn(u64) -> u64, room: Room, pulse: Pulse) -> Result<Found> {
    const SIDE: u32 = 257;
    // What is no byte, the ends of words, has one row and one column for all.
    let place_of = |left: u32, right: u32| (left.min(256) * SIDE + right.min(256)) as usize;
    let cell = |left: Narrow, right: Narrow| place_of(left.symbol(), right.symbol());
    let n_threads = room.n_threads;
    let parts = words.parts::<Narrow>(n_threads);
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
    let tally_of = |left, right| {
        let mut all = Tally::default();
        for tally in grids.iter().map(|grid| &grid[place_of(left, right)]) {
            all.count += tally.count;
            all.n_places += tally.n_places;
        }
        all
    };
    let mut tallies: Vec<Tally> = bytes().map(|(left, right)| tally_of(left, right)).collect();
    tallies.sort_unstable_by_key(|tally| std::cmp::Reverse(tally.count));
    let threshold = threshold_with_room(&tallies, threshold_from(tallies[0].count), room);
    drop(tallies);
    let mut pairs = Vec::new();
    let mut pair_of = PairMap::with_capacity(0);
    let mut n_places = 0;
    let mut cursors = vec![vec![UNTRACKED; (SIDE * SIDE) as usize]; parts.len()];
    for (left, right) in bytes() {
        let count = tally_of(left, right).count;
        if count > 0 && count >= threshold {
            *pair_of.entry(left, right) = pairs.len() as u32;
            let first = n_places;
            for (grid, cursors) in grids.iter().zip(&mut cursors) {
                cursors[place_of(left, right)] = cursor_at(n_places);
                n_places += grid[place_of(left, right)].n_places as usize;
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

/// The lowest threshold from `lowest` on with room for all that reach it; `tallies` fall by their counts.
fn threshold_with_room(tallies: &[Tally], lowest: u64, room: Room) -> u64 {
    let mut load = Load::default();
    for tally in tallies.iter().take_while(|tally| tally.count >= lowest.max(1)) {
        load.n_pairs += 1;
        load.n_places += u64::from(tally.n_places);
        load.most_places = load.most_places.max(u64::from(tally.n_places));
        if !room.fits(load) {
            return tally.count + 1;
        }
    }
    lowest
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
