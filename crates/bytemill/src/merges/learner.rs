//! The state of learning, and one merge.

use super::budget::{Budget, Room};
use super::pair_map::PairMap;
use super::queue::{Queue, Waiting};
use super::scarce::{Counted, most_frequent};
use super::sieve::Sieve;
use super::slot::{Narrow, Slot, Wide};
use super::symbols::Symbols;
use super::track::{Found, Pair, find, find_in_bytes};
use super::words::Words;
use super::{Merge, Ties};
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

pub struct Learner {
    words: Words,
    symbols: Symbols,
    /// Slots that each symbol takes: one, if it was made before tokens were last given one slot each.
    widths: Vec<u32>,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    budget: Budget,

    /// Pairs that occur less often are not tracked; 0 where none is yet.
    threshold: u64,
    /// True where a pair is not tracked though it occurs that often, or where no merge can be made, until pairs are counted
    /// afresh.
    must_track: bool,
    max_pairs: usize,
    max_places: usize,
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
    pub fn new(words: Words, n_merges: usize, ties: Ties, min_count: u64, n_threads: usize, budget: Budget) -> Self {
        let n_merges = n_merges.min(words.n_slots());
        let mut symbols = Symbols::new();
        symbols.reserve(n_merges);
        let mut widths = Vec::with_capacity(256 + n_merges);
        widths.resize(256, 1);
        let side = || {
            let mut neighbours = Vec::with_capacity(256 + n_merges);
            neighbours.resize(256, Neighbour::default());
            Side { neighbours, ..Side::default() }
        };
        Self {
            words,
            symbols,
            widths,
            ties,
            min_count,
            n_threads,
            budget,
            threshold: 0,
            must_track: true,
            max_pairs: usize::MAX,
            max_places: usize::MAX,
            pairs: Vec::new(),
            pair_of: PairMap::with_capacity(0),
            places: Vec::new(),
            queue: Queue::default(),
            left: side(),
            right: side(),
        }
    }

    /// The next merge, done; `None` where no pair is left that occurs often enough. Of as many, as far as is known, as
    /// `n_merges`.
    pub fn next(&mut self, n_merges: usize, pulse: Pulse) -> Result<Option<Merge>> {
        loop {
            self.must_track |= !self.words.is_wide() && self.symbols.len() == Narrow::SYMBOLS;
            if !self.must_track {
                if let Some(pair) = self.take_most_frequent() {
                    return Ok(Some(self.merge(pair)));
                }
                if self.threshold == self.min_count {
                    return Ok(None);
                }
            }
            if let Some(merge) = self.track_more(n_merges, pulse)? {
                return Ok(Some(merge));
            }
        }
    }

    /// Lowers the threshold, unless it was left too early, and finds the pairs above it, of which `n_merges` are wanted. Where
    /// there is no room for any, the next merge is done.
    fn track_more(&mut self, n_merges: usize, pulse: Pulse) -> Result<Option<Merge>> {
        let (min_count, is_small, last) = (self.min_count, self.words.n_slots() < SMALL, self.threshold);
        if last == 0 {
            let lowest = |greatest: u64| {
                if is_small { min_count } else { (greatest / (THRESHOLD_STEP * THRESHOLD_STEP)).max(min_count) }
            };
            return self.track_bytes(lowest, pulse);
        }
        // As high as before at least, where that was left too early.
        let highest = if self.must_track { last } else { last / 2 };
        self.track(pulse, |sieve| {
            if is_small {
                return min_count;
            }
            // Not more pairs than are wanted, and some to spare; a sum that many share may mislead in that.
            let enough = sieve.nth_greatest(n_merges.saturating_mul(3) / 2 + 1000);
            (last / THRESHOLD_STEP).max(enough.min(highest)).max(min_count)
        })
    }

    /// Forgets all pairs.
    fn forget(&mut self) {
        (self.pairs, self.places, self.queue) = (Vec::new(), Vec::new(), Queue::default());
        self.pair_of = PairMap::with_capacity(0);
        for side in [&mut self.left, &mut self.right] {
            side.places = Vec::new();
        }
    }

    /// Finds the pairs above a threshold while all tokens are bytes.
    fn track_bytes(&mut self, lowest: impl Fn(u64) -> u64, pulse: Pulse) -> Result<Option<Merge>> {
        let room = self.budget.room(&self.words, &self.symbols, self.n_threads);
        let found = find_in_bytes(&self.words, lowest, room, pulse)?;
        let is_none = found.pairs.is_empty() && found.threshold > self.min_count;
        self.take_over(found, room);
        // From here on pairs are looked for by their hash, and where there is no room, the next is merged without.
        self.must_track = is_none;
        Ok(None)
    }

    /// Finds the pairs above a threshold, with their places, and queues them.
    fn track(&mut self, pulse: Pulse, lowest: impl Fn(&Sieve) -> u64) -> Result<Option<Merge>> {
        self.forget();
        if self.words.is_wide() {
            self.words.compact::<Wide>(None, self.n_threads, pulse)?;
        } else {
            self.words.compact::<Narrow>(None, self.n_threads, pulse)?;
            if self.symbols.len() == Narrow::SYMBOLS {
                self.words.widen();
            }
        }
        self.widths.fill(1);
        if self.words.is_wide() { self.track_in::<Wide>(pulse, lowest) } else { self.track_in::<Narrow>(pulse, lowest) }
    }

    fn track_in<S: Slot>(&mut self, pulse: Pulse, lowest: impl Fn(&Sieve) -> u64) -> Result<Option<Merge>> {
        let room = self.budget.room(&self.words, &self.symbols, self.n_threads);
        let sieve = Sieve::new::<S>(&self.words, room, pulse)?;
        let lowest = lowest(&sieve);
        let mut threshold = sieve.threshold_with_room(lowest, room);
        while let Some(at) = threshold {
            if let Some(found) = find::<S>(&self.words, &sieve, at, room, pulse)? {
                // None at all may be for want of pairs or of room; in the second case a lower threshold is of no use.
                if at > lowest && found.pairs.is_empty() {
                    break;
                }
                self.take_over(found, room);
                return Ok(None);
            }
            threshold = sieve.threshold_with_room(at.saturating_mul(2), room);
        }
        self.merge_scarcely::<S>(&sieve, room, pulse)
    }

    /// Merges the most frequent pair in a pass over all words, without tracking any.
    fn merge_scarcely<S: Slot>(&mut self, sieve: &Sieve, room: Room, pulse: Pulse) -> Result<Option<Merge>> {
        let (symbols, ties) = (&self.symbols, self.ties);
        let is_first = |one: Counted, other: Counted| {
            one.1.cmp(&other.1).then_with(|| symbols.compare(ties, one.0, other.0)).is_gt()
        };
        let best = most_frequent::<S>(&self.words, sieve, self.min_count, room, is_first, pulse)?;
        let Some(((left, right), count)) = best else {
            self.threshold = self.min_count;
            self.must_track = false;
            return Ok(None);
        };
        let symbol = self.add_symbol(left, right, 1);
        self.words.compact::<S>(Some([left, right, symbol]), self.n_threads, pulse)?;
        self.threshold = count;
        self.must_track = true;
        Ok(Some(Merge { left, right, count }))
    }

    /// Tracks what was found, and makes room for what merges add.
    fn take_over(&mut self, found: Found, room: Room) {
        Found { threshold: self.threshold, pairs: self.pairs, pair_of: self.pair_of, places: self.places } = found;
        self.must_track = false;
        if room.is_limited() {
            let most_places = self.pairs.iter().map(|pair| pair.n_places).max().unwrap_or(0);
            self.max_pairs = room.max_pairs();
            self.max_places = room.max_places(u64::from(most_places));
            self.pairs.reserve_exact(self.max_pairs.saturating_sub(self.pairs.len()));
            self.places.reserve_exact(self.max_places.saturating_sub(self.places.len()));
            self.queue.reserve(self.max_pairs);
            for side in [&mut self.left, &mut self.right] {
                side.places.reserve_exact(most_places as usize);
            }
        }
        for pair in 0..self.pairs.len() {
            self.push_waiting(pair as u32);
        }
    }

    /// Finds all pairs that occur `threshold` times.
    #[cfg(test)]
    pub fn track_from(&mut self, threshold: u64, pulse: Pulse) -> Result<()> {
        if self.threshold == 0 { self.track_bytes(|_| threshold, pulse) } else { self.track(pulse, |_| threshold) }
            .map(drop)
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
        if self.words.is_wide() { self.merge_in::<Wide>(pair) } else { self.merge_in::<Narrow>(pair) }
    }

    /// The symbol that two become, of so many slots.
    fn add_symbol(&mut self, left: u32, right: u32, width: u32) -> u32 {
        self.widths.push(width);
        self.left.neighbours.push(Neighbour::default());
        self.right.neighbours.push(Neighbour::default());
        self.symbols.join(left, right)
    }

    fn merge_in<S: Slot>(&mut self, pair: usize) -> Merge {
        let Pair { left: a, right: b, count, first, n_places } = self.pairs[pair];
        self.pairs[pair].count = 0;
        let (a_width, b_width) = (self.widths[a as usize] as usize, self.widths[b as usize] as usize);
        let c = self.add_symbol(a, b, (a_width + b_width) as u32);

        let places = &self.places[first..first + n_places as usize];
        let (slots, groups) = self.words.slots_mut::<S>();
        let (a_slot, b_slot, c_slot, c_last) = (S::first(a), S::first(b), S::first(c), S::last(c));
        let (mut word_count, mut same_until) = (0, 0);
        for (occurrence, place) in places.iter().enumerate() {
            if let Some(later) = places.get(occurrence + AHEAD) {
                prefetch(slots, later.load(Ordering::Relaxed) as usize);
            }
            let place = place.load(Ordering::Relaxed) as usize;
            let b_place = place + a_width;
            if slots[place] != a_slot || slots[b_place] != b_slot {
                continue;
            }
            // Places ascend, so the count found last holds until the words of the next one begin.
            if place >= same_until {
                (word_count, same_until) = groups.at(place);
            }
            let next_place = b_place + b_width;
            slots[b_place] = S::FILLER;
            slots[next_place - 1] = c_last;
            slots[place] = c_slot;

            let before = slots[place - 1];
            if before != S::SEPARATOR {
                let x = before.symbol();
                let x_place = place - self.widths[x as usize] as usize;
                self.left.note(x, x_place, word_count);
            }
            let next = slots[next_place];
            if next != S::SEPARATOR {
                self.right.note(next.symbol(), place, word_count);
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
        if self.pairs.len() >= self.max_pairs || first + n_places as usize > self.max_places {
            self.must_track = true;
            return NO_PAIR;
        }
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
