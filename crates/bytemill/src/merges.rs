//! Learning merges from counted pre-tokens.
//!
//! # The words
//!
//! All unique pre-tokens lie in one array of slots, a slot a byte, with a separator before each. A token takes the
//! slots of its bytes: the first holds its symbol, the last (where it has more than one) its symbol with a flag, those
//! between hold a filler. So the next token is found by the length of this one, the previous one by the slot before,
//! and a merge writes three slots: no links, and nothing moves.
//!
//! # The occurrences
//!
//! Joining a and b to c touches, for each occurrence `x a b y`, the pairs (x, a) and (b, y), which lose it, and (x, c)
//! and (c, y), which gain it. c is new, so *all* occurrences of a pair with c arise here or, for (c, y), vanish here:
//! the count of a pair is complete when it first appears and only falls afterwards. From this follow
//!
//! - the queue need not be corrected when a count falls: an entry that says too much is put back when it comes up;
//! - a pair below a threshold can be forgotten altogether, as long as the threshold is: when no pair at or above it is
//!   left, it is lowered and the pairs are counted afresh. All but a few thousand pairs are never kept this way;
//! - changes of a merge are added up by neighbour, in an array, and reach the table of pairs once for each neighbour.
//!
//! Occurrences are visited in the order of their places, so `a a a` becomes `c a` and never `a c`, and a list may name
//! places that have changed since: a glance at the slots tells.

use crate::count::Counts;
use crate::error::{Error, Result};
use crate::hash::{PairBuild, hash_pair};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Which of two equally frequent pairs is merged first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// The lexicographically greatest pair of byte strings.
    Bytes,
    /// The pair of the smallest ids, as Hugging Face's trainer numbers tokens: the bytes by the code point of their
    /// GPT-2 character, then the merges in order.
    HuggingFace,
}

/// A merge that was learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Symbol of the left part: a byte, or 256 + the number of an earlier merge.
    pub left: u32,
    /// Symbol of the right part.
    pub right: u32,
    /// How often the pair stood in the corpus when it was merged.
    pub count: u64,
}

/// Learns up to `n_merges` merges; fewer where no pair is left that occurs `min_count` times.
///
/// `pulse` is asked with the number of merges so far.
///
/// # Errors
/// [`Error::Invalid`] where the unique pre-tokens are 4 GiB or more together; what `pulse` gives.
pub fn learn(
    counts: &Counts,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    mut pulse: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<Merge>> {
    let min_count = min_count.max(1);
    let mut learner = Learner::new(counts, ties)?;
    let threshold = learner.first_threshold(min_count, &mut || pulse(0))?;
    learner.track(threshold, &mut || pulse(0))?;
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        pulse(merges.len())?;
        let Some(pair) = learner.take_most_frequent() else {
            if learner.threshold == min_count {
                break;
            }
            let n_merges = merges.len();
            learner.track((learner.threshold / THRESHOLD_STEP).max(min_count), &mut || pulse(n_merges))?;
            continue;
        };
        let Pair { left, right, count, .. } = learner.pairs[pair];
        merges.push(Merge { left, right, count });
        learner.merge(pair);
    }
    Ok(merges)
}

/// By how much the threshold falls when no pair is left above it: each time costs a pass over all words, and each
/// pass finds this many times more pairs, or fewer, to keep track of.
const THRESHOLD_STEP: u64 = 8;

/// Below this many slots everything is tracked from the start: a pass costs less than thinking about it.
const SMALL: usize = 1 << 14;

/// Slots of a pass between two questions to the caller whether to go on.
const SLOTS_A_PULSE: usize = 1 << 20;

const SEPARATOR: u32 = u32::MAX;
const FILLER: u32 = u32::MAX - 1;
/// Marks the last slot of a token of two bytes or more; separator and filler have it too.
const LAST: u32 = 1 << 31;

/// A pair that is being tracked.
#[derive(Clone, Copy)]
struct Pair {
    left: u32,
    right: u32,
    count: u64,
    /// Where its occurrences are in `Learner::places`.
    first: usize,
    n_places: usize,
}

/// A pair waiting for its turn, with the count it had when it was queued.
#[derive(Clone, Copy)]
struct Waiting {
    count: u64,
    pair: u32,
}

/// What one merge changes for one neighbouring symbol.
#[derive(Clone, Copy, Default)]
struct Neighbour {
    /// Occurrences, weighted by how often their words occur.
    count: u64,
    /// Occurrences as places.
    n_places: usize,
    /// Where the next place goes, once room for them is made.
    next_place: usize,
    /// The new pair is tracked.
    tracked: bool,
}

struct Learner {
    slots: Vec<u32>,
    /// Where the words of each count begin, ascending; the counts fall.
    count_starts: Vec<u32>,
    counts: Vec<u64>,
    /// For each run of 256 slots, the place in `count_starts` of its first slot.
    count_hints: Vec<u32>,
    /// Bytes of every symbol, one after the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    ties: Ties,
    byte_order: [u32; 256],

    threshold: u64,
    pairs: Vec<Pair>,
    pair_of: HashMap<u64, u32, PairBuild>,
    queue: Vec<Waiting>,
    places: Vec<u32>,

    /// By symbol: what the merge under way changes to its left and to its right.
    left: Vec<Neighbour>,
    right: Vec<Neighbour>,
    left_seen: Vec<u32>,
    right_seen: Vec<u32>,
    /// (neighbour, place of the new pair), in the order of the places.
    left_places: Vec<(u32, u32)>,
    right_places: Vec<(u32, u32)>,
}

#[inline]
fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Learner {
    fn new(counts: &Counts, ties: Ties) -> Result<Self> {
        let n_slots = counts.n_unique_bytes() + counts.n_unique() + 1;
        if n_slots > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "the unique pre-tokens are {} bytes together; at most 4 GiB are supported: give special tokens that \
                 separate the documents, or another pattern",
                counts.n_unique_bytes()
            )));
        }
        let mut slots = Vec::with_capacity(n_slots);
        let (mut count_starts, mut distinct_counts) = (Vec::new(), Vec::new());
        for (word, count) in counts.iter() {
            if distinct_counts.last() != Some(&count) {
                count_starts.push(slots.len() as u32);
                distinct_counts.push(count);
            }
            slots.push(SEPARATOR);
            slots.extend(word.iter().map(|&byte| u32::from(byte)));
        }
        slots.push(SEPARATOR);
        let mut count_hints = Vec::with_capacity(n_slots / 256 + 1);
        let mut hint = 0;
        for start in (0..slots.len()).step_by(256) {
            while hint + 1 < count_starts.len() && count_starts[hint + 1] as usize <= start {
                hint += 1;
            }
            count_hints.push(hint as u32);
        }
        Ok(Self {
            slots,
            count_starts,
            counts: distinct_counts,
            count_hints,
            bytes: (0..=255).collect(),
            ends: (1..=256).collect(),
            ties,
            byte_order: huggingface_byte_order(),
            threshold: 0,
            pairs: Vec::new(),
            pair_of: HashMap::default(),
            queue: Vec::new(),
            places: Vec::new(),
            left: vec![Neighbour::default(); 256],
            right: vec![Neighbour::default(); 256],
            left_seen: Vec::new(),
            right_seen: Vec::new(),
            left_places: Vec::new(),
            right_places: Vec::new(),
        })
    }

    #[inline]
    fn symbol_bytes(&self, symbol: u32) -> &[u8] {
        let symbol = symbol as usize;
        let start = if symbol == 0 { 0 } else { self.ends[symbol - 1] };
        &self.bytes[start..self.ends[symbol]]
    }

    #[inline]
    fn n_bytes(&self, symbol: u32) -> usize {
        self.symbol_bytes(symbol).len()
    }

    /// How often the word at a place occurs.
    #[inline]
    fn count_at(&self, place: usize) -> u64 {
        let mut group = self.count_hints[place >> 8] as usize;
        while group + 1 < self.count_starts.len() && self.count_starts[group + 1] as usize <= place {
            group += 1;
        }
        self.counts[group]
    }

    /// Calls `each` with the place, the symbols and the count of every pair of neighbours.
    fn for_each_pair(
        &self,
        pulse: &mut impl FnMut() -> Result<()>,
        mut each: impl FnMut(usize, u32, u32, u64),
    ) -> Result<()> {
        let mut next_pulse = SLOTS_A_PULSE;
        for (group, &start) in self.count_starts.iter().enumerate() {
            let end = self.count_starts.get(group + 1).map_or(self.slots.len() - 1, |&next| next as usize);
            let mut before = SEPARATOR;
            let mut place_before = 0;
            let mut place = start as usize;
            while place < end {
                if place >= next_pulse {
                    pulse()?;
                    next_pulse = place + SLOTS_A_PULSE;
                }
                let symbol = self.slots[place];
                if symbol == SEPARATOR {
                    (before, place) = (SEPARATOR, place + 1);
                    continue;
                }
                if before != SEPARATOR {
                    each(place_before, before, symbol, self.counts[group]);
                }
                (before, place_before) = (symbol, place);
                place += if symbol < 256 { 1 } else { self.n_bytes(symbol) };
            }
        }
        Ok(())
    }

    /// The threshold to begin with: such that pairs of bytes in the thousands, not all of them, are tracked.
    fn first_threshold(&self, min_count: u64, pulse: &mut impl FnMut() -> Result<()>) -> Result<u64> {
        if self.slots.len() < SMALL {
            return Ok(min_count);
        }
        let mut grid = vec![0u64; 1 << 16];
        self.for_each_pair(pulse, |_, left, right, count| grid[(left << 8 | right) as usize] += count)?;
        let most = grid.into_iter().max().unwrap_or(0);
        Ok((most / (THRESHOLD_STEP * THRESHOLD_STEP)).max(min_count))
    }

    /// Finds all pairs that occur at least `threshold` times, with their places, and queues them.
    ///
    /// In two passes, so that memory goes to such pairs alone: the first adds up counts in a table of sums that pairs
    /// share by their hash, where a sum below the threshold rules out all its pairs.
    fn track(&mut self, threshold: u64, pulse: &mut impl FnMut() -> Result<()>) -> Result<()> {
        const SUMS_LOG2: u32 = 18;
        self.threshold = threshold;
        self.pairs.clear();
        self.pair_of.clear();
        self.queue.clear();
        self.places.clear();

        let sum_of = |left, right| (hash_pair(left, right) >> (64 - SUMS_LOG2)) as usize;
        let mut sums = vec![0u64; 1 << SUMS_LOG2];
        if threshold > 1 {
            self.for_each_pair(pulse, |_, left, right, count| sums[sum_of(left, right)] += count)?;
        } else {
            sums.fill(1);
        }
        let mut found: HashMap<u64, (u64, u32), PairBuild> = HashMap::default();
        self.for_each_pair(pulse, |_, left, right, count| {
            if sums[sum_of(left, right)] >= threshold {
                let entry = found.entry(key(left, right)).or_insert((0, 0));
                entry.0 += count;
                entry.1 += 1;
            }
        })?;
        drop(sums);
        let mut n_places = 0;
        for (&key, &(count, n)) in found.iter().filter(|(_, (count, _))| *count >= threshold) {
            self.pair_of.insert(key, self.pairs.len() as u32);
            let (left, right) = ((key >> 32) as u32, key as u32);
            self.pairs.push(Pair { left, right, count, first: n_places, n_places: 0 });
            n_places += n as usize;
        }
        drop(found);
        self.places.resize(n_places, 0);
        let (mut pairs, mut places) = (std::mem::take(&mut self.pairs), std::mem::take(&mut self.places));
        let placed = self.for_each_pair(pulse, |place, left, right, _| {
            if let Some(&pair) = self.pair_of.get(&key(left, right)) {
                let pair = &mut pairs[pair as usize];
                places[pair.first + pair.n_places] = place as u32;
                pair.n_places += 1;
            }
        });
        (self.pairs, self.places) = (pairs, places);
        placed?;
        for pair in 0..self.pairs.len() {
            self.push_waiting(pair as u32);
        }
        Ok(())
    }

    /// The most frequent pair, taken from the queue; `None` where none at or above the threshold is left.
    fn take_most_frequent(&mut self) -> Option<usize> {
        loop {
            let Waiting { count, pair } = self.pop_waiting()?;
            let now = self.pairs[pair as usize].count;
            if now == count {
                return Some(pair as usize);
            }
            if now >= self.threshold {
                self.push_waiting(pair);
            }
        }
    }

    /// Joins every occurrence of a pair to the next symbol.
    fn merge(&mut self, pair: usize) {
        let Pair { left: a, right: b, first, n_places, .. } = self.pairs[pair];
        self.pairs[pair].count = 0;
        let c = self.ends.len() as u32;
        let (a_start, b_start) = (self.ends[a as usize] - self.n_bytes(a), self.ends[b as usize] - self.n_bytes(b));
        self.bytes.extend_from_within(a_start..self.ends[a as usize]);
        let a_bytes = self.ends[a as usize] - a_start;
        self.bytes.extend_from_within(b_start..self.ends[b as usize]);
        let b_bytes = self.ends[b as usize] - b_start;
        self.ends.push(self.bytes.len());
        self.left.push(Neighbour::default());
        self.right.push(Neighbour::default());

        for occurrence in first..first + n_places {
            let place = self.places[occurrence] as usize;
            let b_place = place + a_bytes;
            if self.slots[place] != a || self.slots[b_place] != b {
                continue;
            }
            let count = self.count_at(place);
            let next_place = b_place + b_bytes;
            self.slots[b_place] = FILLER;
            self.slots[next_place - 1] = c | LAST;
            self.slots[place] = c;

            let before = self.slots[place - 1];
            if before != SEPARATOR {
                let x = before & !LAST;
                let x_place = place - self.n_bytes(x);
                note(&mut self.left, &mut self.left_seen, &mut self.left_places, x, x_place, count);
            }
            let y = self.slots[next_place];
            if y != SEPARATOR {
                note(&mut self.right, &mut self.right_seen, &mut self.right_places, y, place, count);
            }
        }
        self.settle(a, b, c);
    }

    /// Brings the table of pairs up to date with what a merge has noted.
    fn settle(&mut self, a: u32, b: u32, c: u32) {
        // In `a b a b` the first merge notes the pair (c, a), which the second one, to whose left stands c, ends.
        let ended = self.left[c as usize].count;
        if ended > 0 && self.right[a as usize].count >= ended {
            self.right[a as usize].count -= ended;
        }
        let (left_seen, right_seen) = (std::mem::take(&mut self.left_seen), std::mem::take(&mut self.right_seen));
        for &x in &left_seen {
            let Neighbour { count, n_places, .. } = self.left[x as usize];
            if x != c {
                self.lose(x, a, count);
            }
            let next_place = self.gain(x, c, count, n_places);
            self.left[x as usize].tracked = next_place.is_some();
            self.left[x as usize].next_place = next_place.unwrap_or(0);
        }
        for &y in &right_seen {
            let Neighbour { count, n_places, .. } = self.right[y as usize];
            // (b, y) loses what it lost, also where (c, y) was ended again.
            self.lose(b, y, if y == a { count + ended } else { count });
            let next_place = self.gain(c, y, count, n_places);
            self.right[y as usize].tracked = next_place.is_some();
            self.right[y as usize].next_place = next_place.unwrap_or(0);
        }
        for (neighbours, noted) in [(&mut self.left, &mut self.left_places), (&mut self.right, &mut self.right_places)]
        {
            for (symbol, place) in noted.drain(..) {
                let neighbour = &mut neighbours[symbol as usize];
                if neighbour.tracked {
                    self.places[neighbour.next_place] = place;
                    neighbour.next_place += 1;
                }
            }
        }
        for (neighbours, seen) in [(&mut self.left, &left_seen), (&mut self.right, &right_seen)] {
            for &symbol in seen {
                neighbours[symbol as usize] = Neighbour::default();
            }
        }
        (self.left_seen, self.right_seen) = (left_seen, right_seen);
        self.left_seen.clear();
        self.right_seen.clear();
    }

    /// A pair occurs `count` times less; nothing happens to one that is not tracked.
    fn lose(&mut self, left: u32, right: u32, count: u64) {
        if let Some(&pair) = self.pair_of.get(&key(left, right)) {
            let pair = &mut self.pairs[pair as usize];
            pair.count = pair.count.saturating_sub(count);
        }
    }

    /// Tracks a new pair if it is frequent enough; gives where its places go.
    fn gain(&mut self, left: u32, right: u32, count: u64, n_places: usize) -> Option<usize> {
        if count < self.threshold {
            return None;
        }
        let first = self.places.len();
        self.places.resize(first + n_places, 0);
        let pair = self.pairs.len() as u32;
        self.pair_of.insert(key(left, right), pair);
        self.pairs.push(Pair { left, right, count, first, n_places });
        self.push_waiting(pair);
        Some(first)
    }

    /// The order in which pairs are merged.
    fn compare(&self, one: Waiting, other: Waiting) -> Ordering {
        one.count.cmp(&other.count).then_with(|| {
            let (one, other) = (&self.pairs[one.pair as usize], &self.pairs[other.pair as usize]);
            match self.ties {
                Ties::Bytes => {
                    let of = |pair: &Pair| (self.symbol_bytes(pair.left), self.symbol_bytes(pair.right));
                    of(one).cmp(&of(other))
                }
                Ties::HuggingFace => {
                    let order = |symbol: u32| self.byte_order.get(symbol as usize).copied().unwrap_or(symbol);
                    let of = |pair: &Pair| (order(pair.left), order(pair.right));
                    of(other).cmp(&of(one))
                }
            }
        })
    }

    /// Adds a pair to the queue, a binary heap with the next pair to merge first. (The standard library's cannot
    /// look into the table of pairs to compare.)
    fn push_waiting(&mut self, pair: u32) {
        let waiting = Waiting { count: self.pairs[pair as usize].count, pair };
        let mut at = self.queue.len();
        self.queue.push(waiting);
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.compare(self.queue[parent], waiting) != Ordering::Less {
                break;
            }
            self.queue[at] = self.queue[parent];
            at = parent;
        }
        self.queue[at] = waiting;
    }

    fn pop_waiting(&mut self) -> Option<Waiting> {
        let last = self.queue.pop()?;
        let Some(&first) = self.queue.first() else { return Some(last) };
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.queue.len() {
                break;
            }
            if child + 1 < self.queue.len()
                && self.compare(self.queue[child + 1], self.queue[child]) == Ordering::Greater
            {
                child += 1;
            }
            if self.compare(last, self.queue[child]) != Ordering::Less {
                break;
            }
            self.queue[at] = self.queue[child];
            at = child;
        }
        self.queue[at] = last;
        Some(first)
    }
}

/// Adds one occurrence to what a merge changes beside a symbol.
#[inline]
fn note(
    neighbours: &mut [Neighbour],
    seen: &mut Vec<u32>,
    places: &mut Vec<(u32, u32)>,
    symbol: u32,
    place: usize,
    count: u64,
) {
    let neighbour = &mut neighbours[symbol as usize];
    if neighbour.n_places == 0 {
        seen.push(symbol);
    }
    neighbour.count += count;
    neighbour.n_places += 1;
    places.push((symbol, place as u32));
}

/// The place of each byte when bytes are sorted by the character that GPT-2 shows them as: printable Latin-1
/// characters stand for themselves, the others are moved to U+0100 and up in their order.
fn huggingface_byte_order() -> [u32; 256] {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut order = [0; 256];
    let by_character = (0..256).filter(|&byte| printable(byte)).chain((0..256).filter(|&byte| !printable(byte)));
    for (place, byte) in (0..).zip(by_character) {
        order[byte as usize] = place;
    }
    order
}

#[cfg(test)]
mod tests;
