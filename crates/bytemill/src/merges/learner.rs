//! The state of learning, and one merge.

use super::pair_map::PairMap;
use super::queue::{Queue, Waiting};
use super::symbols::Symbols;
use super::track::{Found, Pair, Sieve, find, find_in_bytes};
use super::words::{FILLER, LAST, SEPARATOR, Words};
use super::{Merge, Ties};
use crate::count::Counts;
use crate::error::Result;
use crate::prefetch::prefetch;
use crate::pulse::Pulse;
use std::sync::atomic::{AtomicU32, Ordering};

/// By how much the threshold falls at most when no pair is left above it: each time costs passes over all words, and
/// finds this many times more pairs, or fewer, to keep track of.
const THRESHOLD_STEP: u64 = 8;

/// Below this many slots everything is tracked from the start: a pass costs less than thinking about it.
pub const SMALL: usize = if cfg!(test) { 1 << 7 } else { 1 << 14 };

/// How many occurrences ahead of the one at hand memory is asked for.
const AHEAD: usize = 16;

/// What is known when a threshold is chosen.
enum Seen<'s> {
    /// The count of the most frequent pair.
    Greatest(u64),
    Sieve(&'s Sieve),
}

pub struct Learner {
    words: Words,
    symbols: Symbols,
    /// Slots that each symbol takes: one, if it was made before tokens were last given one slot each.
    widths: Vec<u32>,
    ties: Ties,
    min_count: u64,
    n_threads: usize,

    /// Pairs that occur less often are not tracked; 0 where none is yet.
    threshold: u64,
    pairs: Vec<Pair>,
    pair_of: PairMap<u32>,
    places: Vec<AtomicU32>,
    queue: Queue,

    left: Side,
    right: Side,
}

/// What the merge under way changes on one side.
#[derive(Default)]
struct Side {
    /// By neighbouring symbol.
    neighbours: Vec<Neighbour>,
    /// The symbols met with.
    seen: Vec<u32>,
    /// (neighbour, place of the new pair), in the order of the places.
    places: Vec<(u32, u32)>,
}

const NO_PAIR: u32 = u32::MAX;

/// What one merge changes for one neighbouring symbol.
#[derive(Clone, Copy, Default)]
struct Neighbour {
    /// Occurrences, weighted by how often their words occur.
    count: u64,
    /// Occurrences as places.
    n_places: u32,
    /// The new pair, once it is tracked, else [`NO_PAIR`].
    pair: u32,
}

impl Side {
    /// Adds one occurrence beside a symbol.
    #[inline]
    fn note(&mut self, symbol: u32, place: usize, count: u64) {
        let neighbour = &mut self.neighbours[symbol as usize];
        if neighbour.n_places == 0 {
            self.seen.push(symbol);
        }
        neighbour.count += count;
        neighbour.n_places += 1;
        self.places.push((symbol, place as u32));
    }
}

impl Learner {
    pub fn new(counts: &Counts, ties: Ties, min_count: u64, n_threads: usize, pulse: Pulse) -> Result<Self> {
        Ok(Self {
            words: Words::new(counts, n_threads, pulse)?,
            symbols: Symbols::new(),
            widths: vec![1; 256],
            ties,
            min_count,
            n_threads,
            threshold: 0,
            pairs: Vec::new(),
            pair_of: PairMap::with_capacity(0),
            places: Vec::new(),
            queue: Queue::default(),
            left: Side { neighbours: vec![Neighbour::default(); 256], ..Side::default() },
            right: Side { neighbours: vec![Neighbour::default(); 256], ..Side::default() },
        })
    }

    /// Lowers the threshold and finds the pairs above it, of which `n_merges` are wanted; false where it is as low as
    /// may be.
    pub fn track_more(&mut self, n_merges: usize, pulse: Pulse) -> Result<bool> {
        if self.threshold == self.min_count {
            return Ok(false);
        }
        let (min_count, threshold) = (self.min_count, self.threshold);
        let is_small = self.words.slots.len() < SMALL;
        self.track(pulse, |sieve| {
            if is_small {
                return min_count;
            }
            match sieve {
                Seen::Greatest(count) => count / (THRESHOLD_STEP * THRESHOLD_STEP),
                // Not more pairs than are wanted, and some to spare; a sum that many share may mislead in that.
                Seen::Sieve(sieve) => {
                    let enough = sieve.nth_greatest(n_merges.saturating_mul(3) / 2 + 1000);
                    (threshold / THRESHOLD_STEP).max(enough.min(threshold / 2))
                }
            }
            .max(min_count)
        })?;
        Ok(true)
    }

    /// Finds all pairs that occur as often as `threshold_from` says, with their places, and queues them.
    fn track(&mut self, pulse: Pulse, threshold_from: impl Fn(Seen) -> u64) -> Result<()> {
        (self.pairs, self.places) = (Vec::new(), Vec::new());
        self.pair_of = PairMap::with_capacity(0);
        self.queue.clear();
        let n_threads = self.n_threads;
        let found = if self.threshold == 0 {
            find_in_bytes(&self.words, |count| threshold_from(Seen::Greatest(count)), n_threads, pulse)?
        } else {
            self.words.compact(n_threads, pulse)?;
            self.widths.fill(1);
            let sieve = Sieve::new(&self.words, n_threads, pulse)?;
            find(&self.words, &sieve, threshold_from(Seen::Sieve(&sieve)), n_threads, pulse)?
        };
        Found { threshold: self.threshold, pairs: self.pairs, pair_of: self.pair_of, places: self.places } = found;
        for pair in 0..self.pairs.len() {
            self.push_waiting(pair as u32);
        }
        Ok(())
    }

    /// Finds all pairs that occur `threshold` times.
    #[cfg(test)]
    pub fn track_from(&mut self, threshold: u64, pulse: Pulse) -> Result<()> {
        self.track(pulse, |_| threshold)
    }

    /// The most frequent pair, taken from the queue; `None` where none at or above the threshold is left.
    pub fn take_most_frequent(&mut self) -> Option<usize> {
        loop {
            let (pairs, symbols, ties) = (&self.pairs, &self.symbols, self.ties);
            let Waiting { count, pair } = self.queue.pop(|one, other| compare(pairs, symbols, ties, one, other))?;
            let now = self.pairs[pair as usize].count;
            if now == count {
                return Some(pair as usize);
            }
            if now >= self.threshold {
                self.push_waiting(pair);
            }
        }
    }

    fn push_waiting(&mut self, pair: u32) {
        let waiting = Waiting { count: self.pairs[pair as usize].count, pair };
        let (pairs, symbols, ties) = (&self.pairs, &self.symbols, self.ties);
        self.queue.push(waiting, |one, other| compare(pairs, symbols, ties, one, other));
    }

    /// Joins every occurrence of a pair to the next symbol.
    pub fn merge(&mut self, pair: usize) -> Merge {
        let Pair { left: a, right: b, count, first, n_places } = self.pairs[pair];
        self.pairs[pair].count = 0;
        let c = self.symbols.join(a, b);
        let (a_width, b_width) = (self.widths[a as usize] as usize, self.widths[b as usize] as usize);
        self.widths.push((a_width + b_width) as u32);
        self.left.neighbours.push(Neighbour::default());
        self.right.neighbours.push(Neighbour::default());

        let places = &self.places[first..first + n_places as usize];
        let slots = &mut self.words.slots[..];
        let (mut word_count, mut same_until) = (0, 0);
        for (occurrence, place) in places.iter().enumerate() {
            if let Some(later) = places.get(occurrence + AHEAD) {
                prefetch(slots, later.load(Ordering::Relaxed) as usize);
            }
            let place = place.load(Ordering::Relaxed) as usize;
            let b_place = place + a_width;
            if slots[place] != a || slots[b_place] != b {
                continue;
            }
            // Places ascend, so the count found last holds until the words of the next one begin.
            if place >= same_until {
                (word_count, same_until) = self.words.groups.at(place);
            }
            let next_place = b_place + b_width;
            slots[b_place] = FILLER;
            slots[next_place - 1] = c | LAST;
            slots[place] = c;

            let before = slots[place - 1];
            if before != SEPARATOR {
                let x = before & !LAST;
                let x_place = place - self.widths[x as usize] as usize;
                self.left.note(x, x_place, word_count);
            }
            let y = slots[next_place];
            if y != SEPARATOR {
                self.right.note(y, place, word_count);
            }
        }
        self.settle(a, b, c);
        Merge { left: a, right: b, count }
    }

    /// Brings the table of pairs up to date with what a merge has noted.
    fn settle(&mut self, a: u32, b: u32, c: u32) {
        // In `a b a b` the first merge notes the pair (c, a), which the second one, to whose left stands c, ends.
        let ended = self.left.neighbours[c as usize].count;
        if ended > 0 && self.right.neighbours[a as usize].count >= ended {
            self.right.neighbours[a as usize].count -= ended;
        }
        let (mut left, mut right) = (std::mem::take(&mut self.left), std::mem::take(&mut self.right));
        for index in 0..left.seen.len() {
            if let Some(&later) = left.seen.get(index + AHEAD) {
                self.pair_of.prefetch(later, a);
            }
            let x = left.seen[index];
            let Neighbour { count, n_places, .. } = left.neighbours[x as usize];
            if x != c {
                self.lose(x, a, count);
            }
            left.neighbours[x as usize].pair = self.gain(x, c, count, n_places);
        }
        for index in 0..right.seen.len() {
            if let Some(&later) = right.seen.get(index + AHEAD) {
                self.pair_of.prefetch(b, later);
            }
            let y = right.seen[index];
            let Neighbour { count, n_places, .. } = right.neighbours[y as usize];
            // (b, y) loses what it lost, also where (c, y) was ended again.
            self.lose(b, y, if y == a { count + ended } else { count });
            right.neighbours[y as usize].pair = self.gain(c, y, count, n_places);
        }
        for side in [&mut left, &mut right] {
            for (symbol, place) in side.places.drain(..) {
                let pair = side.neighbours[symbol as usize].pair;
                if pair != NO_PAIR {
                    let pair = &mut self.pairs[pair as usize];
                    self.places[pair.first + pair.n_places as usize].store(place, Ordering::Relaxed);
                    pair.n_places += 1;
                }
            }
            for symbol in side.seen.drain(..) {
                side.neighbours[symbol as usize] = Neighbour::default();
            }
        }
        (self.left, self.right) = (left, right);
    }

    /// A pair occurs `count` times less; nothing happens to one that is not tracked.
    fn lose(&mut self, left: u32, right: u32, count: u64) {
        if let Some(pair) = self.pair_of.get(left, right) {
            let pair = &mut self.pairs[pair as usize];
            pair.count = pair.count.saturating_sub(count);
        }
    }

    /// Tracks a new pair if it is frequent enough, and makes room for its places.
    fn gain(&mut self, left: u32, right: u32, count: u64, n_places: u32) -> u32 {
        if count < self.threshold {
            return NO_PAIR;
        }
        let first = self.places.len();
        self.places.resize_with(first + n_places as usize, AtomicU32::default);
        let pair = self.pairs.len() as u32;
        *self.pair_of.entry(left, right) = pair;
        self.pairs.push(Pair { left, right, count, first, n_places: 0 });
        self.push_waiting(pair);
        pair
    }
}

/// The order in which pairs are merged.
fn compare(pairs: &[Pair], symbols: &Symbols, ties: Ties, one: Waiting, other: Waiting) -> std::cmp::Ordering {
    one.count.cmp(&other.count).then_with(|| {
        let of = |waiting: Waiting| (pairs[waiting.pair as usize].left, pairs[waiting.pair as usize].right);
        symbols.compare(ties, of(one), of(other))
    })
}
