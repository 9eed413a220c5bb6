//! The state of learning, and one merge.
//!
//! Merging a and b into c changes the counts of neighbouring pairs: for every occurrence `x a b y`, the pairs (x, a)
//! and (b, y) are decremented and the pairs (x, c) and (c, y) are incremented. Because c is new, all occurrences of a pair
//! with c appear in this merge. So the count of a pair is complete when the pair first appears, and only falls later.
//! It follows that
//!
//! - the queue is not updated when a count falls: a stale entry is queued again when it comes up;
//! - a pair below the threshold is never needed as long as the threshold stays. When no pair above the threshold is
//!   left, the threshold falls and the frequent pairs are found again. All but a few thousand pairs are never tracked;
//! - the changes of a merge are first added up by neighbour, so each affected pair is looked up once.
//!
//! Occurrences are visited in order, so `a a a` becomes `c a` and never `a c`. A list may contain positions that no
//! longer hold the pair; comparing the slots detects them.

use super::base::Base;
use super::budget::{Budget, Limits};
use super::pairs::{PairMap, Queue, QueuedPair};
use super::pretoken_slots::{Narrow, PretokenSlots, Slot, Wide};
use super::symbols::{Symbols, Ties};
use super::track::{CountedPair, Frequent, Pair, PairCountBound, find_frequent, most_frequent};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::sys::prefetch::prefetch;

/// Largest factor by which the threshold falls when no pair above it is left. Each fall costs two passes over all
/// pre-tokens; a larger factor tracks more pairs that are never merged.
const THRESHOLD_FACTOR: u64 = 8;

/// Below this many slots, all pairs are tracked from the start.
pub const SMALL_SLOTS: usize = if cfg!(test) { 1 << 7 } else { 1 << 14 };

/// How many occurrences ahead memory is prefetched.
const PREFETCH_DISTANCE: usize = 16;

/// A learned merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Left symbol: a byte, or 256 plus the index of an earlier merge.
    pub left: u32,
    /// Right symbol.
    pub right: u32,
    /// Count of the pair in the corpus when it was merged.
    pub count: u64,
}

/// Parameters of learning that do not depend on the source.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub n_merges: usize,
    pub ties: Ties,
    pub min_count: u64,
    pub n_threads: usize,
}

pub struct Learner<'b> {
    /// The vocabulary that learning continues.
    base: Option<&'b dyn Base>,
    n_base_symbols: usize,
    slots: PretokenSlots,
    symbols: Symbols,
    /// Slots that each symbol takes. Symbols from before the last compaction take one.
    widths: Vec<u32>,
    settings: Settings,
    budget: Budget,

    /// Pairs that occur less often are not tracked; 0 before the first tracking.
    threshold: u64,
    /// True if the pairs have to be found again before the next merge.
    must_track: bool,
    /// Number of symbols when pairs were tracked last.
    n_when_tracked: usize,
    limits: Limits,
    pairs: Vec<Pair>,
    pair_of: PairMap<u32>,
    positions: Vec<u32>,
    queue: Queue,

    left: Neighbours,
    right: Neighbours,
}

/// The changes of a merge on one side.
#[derive(Default)]
struct Neighbours {
    /// By neighbouring symbol.
    changes: Vec<Change>,
    /// The symbols with a change.
    changed: Vec<u32>,
    /// (neighbour, position of the new pair), ascending by position.
    positions: Vec<(u32, u32)>,
}

const NOT_TRACKED: u32 = u32::MAX;

/// The change of a merge for one neighbouring symbol.
#[derive(Clone, Copy, Default)]
struct Change {
    /// Occurrences in the corpus.
    count: u64,
    /// Occurrences in the slots.
    n_positions: u32,
    /// The new pair, or [`NOT_TRACKED`].
    pair: u32,
}

impl Neighbours {
    fn new(n_symbols: usize, n_merges: usize) -> Self {
        let mut changes = Vec::with_capacity(n_symbols + n_merges);
        changes.resize(n_symbols, Change::default());
        Self { changes, ..Self::default() }
    }

    /// Adds an occurrence next to `symbol`.
    #[inline]
    fn add(&mut self, symbol: u32, position: usize, count: u64) {
        let change = &mut self.changes[symbol as usize];
        if change.n_positions == 0 {
            self.changed.push(symbol);
        }
        change.count += count;
        change.n_positions += 1;
        self.positions.push((symbol, position as u32));
    }
}

impl<'b> Learner<'b> {
    /// Pre-tokens start as bytes, or as the symbols of `base`.
    pub fn new(
        mut slots: PretokenSlots,
        settings: Settings,
        budget: Budget,
        base: Option<&'b dyn Base>,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let n_symbols = base.map_or(256, Base::n_symbols);
        let n_merges = settings.n_merges.min(slots.n_slots());
        check_n_merges(n_symbols - 256 + n_merges)?;
        let mut symbols = Symbols::new();
        symbols.reserve(n_symbols - 256 + n_merges);
        if let Some(base) = base {
            (256..n_symbols as u32).for_each(|symbol| symbols.push(base.symbol(symbol)));
            slots.segment(base, settings.n_threads, interrupt)?;
        }
        let mut widths = Vec::with_capacity(n_symbols + n_merges);
        widths.resize(n_symbols, 1);
        Ok(Self {
            base,
            n_base_symbols: n_symbols,
            slots,
            symbols,
            widths,
            settings: Settings { min_count: settings.min_count.max(1), ..settings },
            budget,
            threshold: 0,
            must_track: true,
            n_when_tracked: 0,
            limits: Limits::none(settings.n_threads),
            pairs: Vec::new(),
            pair_of: PairMap::with_capacity(0),
            positions: Vec::new(),
            queue: Queue::default(),
            left: Neighbours::new(n_symbols, n_merges),
            right: Neighbours::new(n_symbols, n_merges),
        })
    }

    /// Performs and returns the next of `n_merges` merges; `None` if no remaining pair is frequent enough.
    pub fn next_merge(&mut self, n_merges: usize, interrupt: Interrupt) -> Result<Option<Merge>> {
        loop {
            self.must_track |= !self.slots.is_wide() && self.symbols.len() == Narrow::MAX_SYMBOLS;
            if !self.must_track {
                if let Some(pair) = self.take_most_frequent() {
                    return Ok(Some(self.merge(pair)));
                }
                if self.threshold == self.settings.min_count {
                    return Ok(None);
                }
            }
            if let Some(merge) = self.track_more(n_merges, interrupt)? {
                return Ok(Some(merge));
            }
        }
    }

    /// Finds the frequent pairs again, at a lower threshold unless tracking ended early. Returns a merge if memory
    /// suffices for no pair.
    fn track_more(&mut self, n_merges: usize, interrupt: Interrupt) -> Result<Option<Merge>> {
        let (min_count, last, must_track) = (self.settings.min_count, self.threshold, self.must_track);
        let is_small = self.slots.n_slots() < SMALL_SLOTS;
        self.track(interrupt, |bound| {
            let wanted = if is_small {
                0
            } else if last == 0 {
                bound.greatest() / (THRESHOLD_FACTOR * THRESHOLD_FACTOR)
            } else {
                // Enough pairs for the remaining merges, and some more because pairs share a bound.
                let enough = bound.nth_greatest(n_merges.saturating_mul(3) / 2 + 1000);
                let highest = if must_track { last } else { last / 2 };
                (last / THRESHOLD_FACTOR).max(enough.min(highest))
            };
            wanted.max(min_count)
        })
    }

    /// Compacts the pre-tokens and tracks the pairs that reach a threshold chosen from the upper bounds.
    fn track(&mut self, interrupt: Interrupt, lowest: impl Fn(&PairCountBound) -> u64) -> Result<Option<Merge>> {
        self.forget_pairs();
        let n_threads = self.settings.n_threads;
        let was_merged = self.symbols.len() > self.n_base_symbols;
        if self.slots.is_wide() {
            self.slots.compact::<Wide>(None, n_threads, interrupt)?;
        } else if was_merged {
            self.slots.compact::<Narrow>(None, n_threads, interrupt)?;
        }
        if !self.slots.is_wide() && self.symbols.len() == Narrow::MAX_SYMBOLS {
            self.slots.widen();
        }
        self.widths.fill(1);
        if self.slots.is_wide() {
            self.track_in::<Wide>(interrupt, lowest)
        } else {
            self.track_in::<Narrow>(interrupt, lowest)
        }
    }

    fn track_in<S: Slot>(
        &mut self,
        interrupt: Interrupt,
        lowest: impl Fn(&PairCountBound) -> u64,
    ) -> Result<Option<Merge>> {
        self.limits = self.budget.limits(&self.slots, &self.symbols, self.settings.n_threads);
        let bound = PairCountBound::new::<S>(&self.slots, self.limits, interrupt)?;
        let lowest = lowest(&bound);
        // Without a merge since, the pairs above that threshold make tokens that exist.
        let is_futile = |threshold: u64| self.n_when_tracked == self.symbols.len() && threshold >= self.threshold;
        // Merges may add as many positions again.
        let mut max_positions = self.limits.max_positions / 2;
        while let Some((threshold, n_positions)) = bound.lowest_threshold(lowest, max_positions) {
            match find_frequent::<S>(&self.slots, &bound, threshold, self.limits, interrupt)? {
                // Memory does not suffice for the most frequent pair.
                Some(frequent) if frequent.pairs.is_empty() && threshold > lowest => break,
                Some(_) if is_futile(threshold) => break,
                Some(frequent) => {
                    self.start_tracking(frequent);
                    return Ok(None);
                }
                // Too many pairs.
                None => max_positions = n_positions / 2,
            }
        }
        self.merge_untracked::<S>(&bound, interrupt)
    }

    fn forget_pairs(&mut self) {
        (self.pairs, self.positions, self.queue) = (Vec::new(), Vec::new(), Queue::default());
        self.pair_of = PairMap::with_capacity(0);
        for side in [&mut self.left, &mut self.right] {
            side.positions = Vec::new();
        }
    }

    /// Low-memory mode: merges the most frequent pair in a pass over all pre-tokens.
    fn merge_untracked<S: Slot>(&mut self, bound: &PairCountBound, interrupt: Interrupt) -> Result<Option<Merge>> {
        let Settings { ties, min_count, n_threads, .. } = self.settings;
        let (symbols, base) = (&self.symbols, self.base);
        let is_new = |(left, right)| is_new_token(base, symbols, left, right);
        let precedes = |one: CountedPair, other: CountedPair| {
            one.1.cmp(&other.1).then_with(|| symbols.compare(ties, one.0, other.0)).is_gt()
        };
        let best = most_frequent::<S>(&self.slots, bound, min_count, self.limits, is_new, precedes, interrupt)?;
        let Some(((left, right), count)) = best else {
            (self.threshold, self.must_track) = (min_count, false);
            return Ok(None);
        };
        let merged = self.add_symbol(left, right, 1);
        self.slots.compact::<S>(Some([left, right, merged]), n_threads, interrupt)?;
        (self.threshold, self.must_track) = (count, true);
        Ok(Some(Merge { left, right, count }))
    }

    /// Queues the pairs that were found. With a memory limit, reserves what merges may add: growing lists would be in
    /// memory twice.
    fn start_tracking(&mut self, frequent: Frequent) {
        Frequent { threshold: self.threshold, pairs: self.pairs, pair_of: self.pair_of, positions: self.positions } =
            frequent;
        self.must_track = false;
        self.n_when_tracked = self.symbols.len();
        if self.limits.is_limited() {
            self.pairs.reserve_exact(self.limits.max_pairs.saturating_sub(self.pairs.len()));
            self.positions.reserve_exact(self.limits.max_positions.saturating_sub(self.positions.len()));
            self.queue.reserve(self.limits.max_pairs);
            let n_most = self.pairs.iter().map(|pair| pair.n_positions).max().unwrap_or(0);
            for side in [&mut self.left, &mut self.right] {
                side.positions.reserve_exact(n_most as usize);
            }
        }
        for pair in 0..self.pairs.len() {
            self.enqueue(pair as u32);
        }
    }

    /// Finds all pairs that occur `threshold` times.
    #[cfg(test)]
    pub fn track_from(&mut self, threshold: u64, interrupt: Interrupt) -> Result<()> {
        self.track(interrupt, |_| threshold).map(drop)
    }

    /// Takes the most frequent pair from the queue; `None` if no pair reaches the threshold.
    pub fn take_most_frequent(&mut self) -> Option<usize> {
        loop {
            let (pairs, symbols, ties) = (&self.pairs, &self.symbols, self.settings.ties);
            let QueuedPair { count, pair } = self.queue.pop(|one, other| compare(pairs, symbols, ties, one, other))?;
            let current = self.pairs[pair as usize].count;
            if current == count {
                let Pair { left, right, .. } = self.pairs[pair as usize];
                if is_new_token(self.base, &self.symbols, left, right) {
                    return Some(pair as usize);
                }
            } else if current >= self.threshold {
                self.enqueue(pair);
            }
        }
    }

    fn enqueue(&mut self, pair: u32) {
        let queued = QueuedPair { count: self.pairs[pair as usize].count, pair };
        let (pairs, symbols, ties) = (&self.pairs, &self.symbols, self.settings.ties);
        self.queue.push(queued, |one, other| compare(pairs, symbols, ties, one, other));
    }

    /// Merges every occurrence of a tracked pair.
    pub fn merge(&mut self, pair: usize) -> Merge {
        if self.slots.is_wide() { self.merge_in::<Wide>(pair) } else { self.merge_in::<Narrow>(pair) }
    }

    /// Adds the symbol that `left` and `right` merge into. It takes `width` slots.
    fn add_symbol(&mut self, left: u32, right: u32, width: u32) -> u32 {
        self.widths.push(width);
        self.left.changes.push(Change::default());
        self.right.changes.push(Change::default());
        self.symbols.add(left, right)
    }

    fn merge_in<S: Slot>(&mut self, pair: usize) -> Merge {
        let Pair { left: a, right: b, count, first, n_positions } = self.pairs[pair];
        self.pairs[pair].count = 0;
        let (a_width, b_width) = (self.widths[a as usize], self.widths[b as usize]);
        let c = self.add_symbol(a, b, a_width + b_width);
        let (a_width, b_width) = (a_width as usize, b_width as usize);

        let positions = &self.positions[first..first + n_positions as usize];
        let (slots, groups) = self.slots.slots_mut::<S>();
        let (a_slot, b_slot, c_slot, c_last) = (S::first(a), S::first(b), S::first(c), S::last(c));
        let (mut pretoken_count, mut group_end) = (0, 0);
        for (occurrence, &position) in positions.iter().enumerate() {
            if let Some(&later) = positions.get(occurrence + PREFETCH_DISTANCE) {
                prefetch(slots, later as usize);
            }
            let position = position as usize;
            let b_position = position + a_width;
            if slots[position] != a_slot || slots[b_position] != b_slot {
                continue;
            }
            // Positions ascend, so the count is looked up once per group.
            if position >= group_end {
                (pretoken_count, group_end) = groups.at(position);
            }
            let next_position = b_position + b_width;
            slots[b_position] = S::FILLER;
            slots[next_position - 1] = c_last;
            slots[position] = c_slot;

            let before = slots[position - 1];
            if before != S::SEPARATOR {
                let x = before.symbol();
                let x_position = position - self.widths[x as usize] as usize;
                self.left.add(x, x_position, pretoken_count);
            }
            let next = slots[next_position];
            if next != S::SEPARATOR {
                self.right.add(next.symbol(), position, pretoken_count);
            }
        }
        self.apply_deltas(a, b, c);
        Merge { left: a, right: b, count }
    }

    /// Applies the changes of merging a and b into c to the tracked pairs.
    fn apply_deltas(&mut self, a: u32, b: u32, c: u32) {
        // In `a b a b`, the first merge adds the pair (c, a); the second one, whose left neighbour is c, removes it.
        let removed = self.left.changes[c as usize].count;
        if removed > 0 && self.right.changes[a as usize].count >= removed {
            self.right.changes[a as usize].count -= removed;
        }
        let (mut left, mut right) = (std::mem::take(&mut self.left), std::mem::take(&mut self.right));
        for index in 0..left.changed.len() {
            if let Some(&later) = left.changed.get(index + PREFETCH_DISTANCE) {
                self.pair_of.prefetch(later, a);
            }
            let x = left.changed[index];
            let Change { count, n_positions, .. } = left.changes[x as usize];
            if x != c {
                self.decrement(x, a, count);
            }
            left.changes[x as usize].pair = self.increment(x, c, count, n_positions);
        }
        for index in 0..right.changed.len() {
            if let Some(&later) = right.changed.get(index + PREFETCH_DISTANCE) {
                self.pair_of.prefetch(b, later);
            }
            let y = right.changed[index];
            let Change { count, n_positions, .. } = right.changes[y as usize];
            // Every occurrence of (b, y) is gone, including those whose (c, y) was removed again.
            self.decrement(b, y, if y == a { count + removed } else { count });
            right.changes[y as usize].pair = self.increment(c, y, count, n_positions);
        }
        for side in [&mut left, &mut right] {
            for (symbol, position) in side.positions.drain(..) {
                let pair = side.changes[symbol as usize].pair;
                if pair != NOT_TRACKED {
                    let pair = &mut self.pairs[pair as usize];
                    self.positions[pair.first + pair.n_positions as usize] = position;
                    pair.n_positions += 1;
                }
            }
            for symbol in side.changed.drain(..) {
                side.changes[symbol as usize] = Change::default();
            }
        }
        (self.left, self.right) = (left, right);
    }

    /// Decrements the count of a pair if it is tracked.
    fn decrement(&mut self, left: u32, right: u32, count: u64) {
        if let Some(pair) = self.pair_of.get(left, right) {
            let pair = &mut self.pairs[pair as usize];
            pair.count = pair.count.saturating_sub(count);
        }
    }

    /// Tracks a new pair if it reaches the threshold and memory suffices, and reserves its positions.
    fn increment(&mut self, left: u32, right: u32, count: u64, n_positions: u32) -> u32 {
        if count < self.threshold {
            return NOT_TRACKED;
        }
        let first = self.positions.len();
        if self.pairs.len() >= self.limits.max_pairs || first + n_positions as usize > self.limits.max_positions {
            self.must_track = true;
            return NOT_TRACKED;
        }
        self.positions.resize(first + n_positions as usize, 0);
        let pair = self.pairs.len() as u32;
        *self.pair_of.entry(left, right) = pair;
        self.pairs.push(Pair { left, right, count, first, n_positions: 0 });
        self.enqueue(pair);
        pair
    }
}

/// False for a pair that makes a token which the vocabulary that learning continues has already.
fn is_new_token(base: Option<&dyn Base>, symbols: &Symbols, left: u32, right: u32) -> bool {
    base.is_none_or(|base| !base.excludes(&symbols.joined(left, right)))
}

/// Symbols are 32-bit numbers, of which a slot reserves some.
pub fn check_n_merges(n_merges: usize) -> Result<usize> {
    let max_merges = Wide::MAX_SYMBOLS - 256;
    if n_merges > max_merges {
        return Err(Error::Invalid(format!("{n_merges} merges are too many: at most {max_merges} can be learned")));
    }
    Ok(n_merges)
}

/// The order in which pairs are merged; the greater one comes first.
fn compare(pairs: &[Pair], symbols: &Symbols, ties: Ties, one: QueuedPair, other: QueuedPair) -> std::cmp::Ordering {
    one.count.cmp(&other.count).then_with(|| {
        let symbols_of = |queued: QueuedPair| (pairs[queued.pair as usize].left, pairs[queued.pair as usize].right);
        symbols.compare(ties, symbols_of(one), symbols_of(other))
    })
}
