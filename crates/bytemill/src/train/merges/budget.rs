//! The memory limit of learning.
//!
//! A fixed part of the limit depends on the pre-tokens and on the number of merges. The rest is split: a quarter for
//! tracked pairs, a quarter for candidates while frequent pairs are counted, and half for the positions of pairs.
//! These [`Limits`] raise the threshold above which pairs are tracked; they never change the learned merges.

use super::pretoken_slots::{GROUP_BYTES, HINT_BYTES, Narrow, PretokenSlots, SLOTS_PER_HINT, Sizes, Slot, Wide};
use super::symbols::Symbols;
use crate::error::{Error, Result};

/// Bytes per symbol: its spelling of up to 48 bytes, its width, its merge and its neighbour counts on both sides.
const SYMBOL_BYTES: u64 = 128;

/// Bytes per tracked pair: the pair (32), its table entry (12, at most 6 entries per pair while the table grows) and
/// its queue entry (16).
const PAIR_BYTES: u64 = 32 + 6 * 12 + 16;

/// Bytes per candidate and thread: its table entry as above, its count (24, three times while the list grows) and its
/// cursor.
const CANDIDATE_BYTES: u64 = 6 * 12 + 3 * 24 + 8;

/// Bytes per position when tracking starts: two entries in the list of positions, which merges extend to twice its
/// size, and two notes of 8 bytes while its pair is merged. Finding positions takes less: 8 bytes as a candidate and 4
/// in the list.
const POSITION_BYTES: u64 = 2 * 4 + 2 * 8;

/// Bytes per group of equally frequent pre-tokens while slots are built: three hash tables and lists.
const BUILD_GROUP_BYTES: u64 = 10 * GROUP_BYTES;

/// Bytes of each thread: its part of the pair count bound, and small buffers.
const THREAD_BYTES: u64 = if cfg!(test) { 1 << 8 } else { 3 << 20 };

/// Bytes of everything else.
const OTHER_BYTES: u64 = if cfg!(test) { 1 << 8 } else { 4 << 20 };

/// Candidates per thread that are always allowed, so that counting in shares ends.
const MIN_CANDIDATES: u64 = 8;

/// Pairs are numbered by a `u32`, and one number is reserved.
const MAX_PAIRS: usize = (u32::MAX - 1) as usize;

/// Bytes for pairs and positions below which too many merges take a pass over all pre-tokens each.
fn min_free_bytes(n_slots: u64) -> u64 {
    if cfg!(test) { 0 } else { n_slots + (8 << 20) }
}

/// Bytes that do not depend on the threshold. Compacting pre-tokens builds a second list of groups.
fn fixed_bytes(n_slots: u64, slot_bytes: usize, n_groups: u64, n_merges: u64) -> u64 {
    let hint_bytes = HINT_BYTES * (n_slots / SLOTS_PER_HINT as u64 + 2);
    n_slots * slot_bytes as u64
        + 2 * hint_bytes
        + 3 * GROUP_BYTES * n_groups
        + SYMBOL_BYTES * (256 + n_merges)
        + THREAD_BYTES
        + OTHER_BYTES
}

/// Smallest limit for pre-tokens with `n_slots` slots and `n_groups` different counts. While slots are built,
/// `counts_bytes` are in use as well. `n_base` is the number of merges that learning continues.
pub fn least_bytes(n_slots: u64, n_groups: u64, n_merges: usize, counts_bytes: u64, n_base: usize) -> u64 {
    let n_merges = n_slots.min(n_merges as u64) + n_base as u64;
    let building = counts_bytes + BUILD_GROUP_BYTES * n_groups;
    let becomes_wide = n_merges + 256 > Narrow::MAX_SYMBOLS as u64;
    let widening = u64::from(becomes_wide) * n_slots * (size_of::<Wide>() - size_of::<Narrow>()) as u64;
    fixed_bytes(n_slots, size_of::<Narrow>(), n_groups, n_merges) + building.max(widening).max(min_free_bytes(n_slots))
}

/// The memory limit, or none.
pub struct Budget {
    max_bytes: Option<u64>,
    /// Merges to learn and those that learning continues.
    n_merges: u64,
    /// Bytes of the counts, which are part of the limit until the slots are built.
    counts_bytes: u64,
}

impl Budget {
    /// Checks that `max_bytes` are at least `least` bytes. `n_base` is the number of merges that learning continues.
    pub fn new(
        max_bytes: Option<u64>,
        least: u64,
        n_slots: u64,
        n_merges: usize,
        counts_bytes: u64,
        n_base: usize,
    ) -> Result<Self> {
        if let Some(max_bytes) = max_bytes.filter(|&max_bytes| max_bytes < least) {
            return Err(Error::Invalid(format!(
                "learning the merges takes {least} bytes of memory at least, but only {max_bytes} are available"
            )));
        }
        Ok(Self { max_bytes, n_merges: n_slots.min(n_merges as u64) + n_base as u64, counts_bytes })
    }

    /// Bytes that learning takes at most, roughly, beyond those in use once `sizes` are known: what the limit leaves if
    /// there is one, else those of tracking all positions.
    pub fn expected_bytes(&self, sizes: &Sizes, n_threads: usize) -> usize {
        let n_groups = sizes.n_groups() as u64;
        let building = BUILD_GROUP_BYTES * n_groups;
        let tracked = sizes.n_slots() * POSITION_BYTES + n_threads as u64 * THREAD_BYTES + building;
        let all = fixed_bytes(sizes.n_slots(), size_of::<Narrow>(), n_groups, self.n_merges) + tracked;
        let left = self.max_bytes.map_or(u64::MAX, |max_bytes| max_bytes.saturating_sub(self.counts_bytes + building));
        usize::try_from(left.min(all)).unwrap_or(usize::MAX)
    }

    /// The limits for finding frequent pairs next, on up to `n_threads` threads.
    pub fn limits(&self, slots: &PretokenSlots, symbols: &Symbols, n_threads: usize) -> Limits {
        let Some(max_bytes) = self.max_bytes else { return Limits::none(n_threads) };
        let n_groups = slots.groups.n_groups() as u64;
        // The spellings of all symbols are one vector, which takes three times its size while it grows.
        let fixed = fixed_bytes(slots.n_slots() as u64, slots.slot_bytes(), n_groups, self.n_merges)
            + 3 * symbols.n_bytes() as u64;
        let free = max_bytes.saturating_sub(fixed);
        // Additional threads get up to a quarter.
        let n_more = (free / 4 / THREAD_BYTES).min(n_threads.saturating_sub(1) as u64);
        let free = free - n_more * THREAD_BYTES;
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Limits {
            n_threads: to_usize(1 + n_more),
            max_candidates: to_usize((free / 4 / CANDIDATE_BYTES / (1 + n_more)).max(MIN_CANDIDATES)),
            max_pairs: to_usize(free / 4 / PAIR_BYTES).min(MAX_PAIRS),
            max_positions: to_usize(free / 2 / POSITION_BYTES * 2),
        }
    }
}

/// Limits on what is tracked at once.
#[derive(Clone, Copy)]
pub struct Limits {
    pub n_threads: usize,
    /// Candidates of each thread while frequent pairs are counted.
    pub max_candidates: usize,
    pub max_pairs: usize,
    /// Positions of all pairs. Tracking starts with at most half of them, and merges add the others.
    pub max_positions: usize,
}

impl Limits {
    pub fn none(n_threads: usize) -> Self {
        Self { n_threads, max_candidates: usize::MAX, max_pairs: MAX_PAIRS, max_positions: usize::MAX }
    }

    /// True if memory is limited.
    pub fn is_limited(&self) -> bool {
        self.max_positions < usize::MAX
    }
}
