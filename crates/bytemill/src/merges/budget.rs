//! What learning may take of memory, and what it takes.
//!
//! Some of it depends on the words alone: the slots, the counts, and what is known of each symbol. The rest, the *room*,
//! depends on the threshold above which pairs are tracked, so the threshold is chosen by it. A quarter of the room is for
//! pairs. While pairs are looked for, another quarter is for those that may turn out too rare, and half for their places;
//! afterwards three quarters are for places and for what a merge notes down.

use super::groups::{GROUP_BYTES, HINT_BYTES, SLOTS_A_HINT};
use super::sieve::SIEVE_BYTES;
use super::slot::{Narrow, Slot, Wide};
use super::symbols::Symbols;
use super::words::Words;
use crate::error::{Error, Result};

/// Bytes of all that is known of a symbol: its own bytes and their end, its width, what merges note for it on either side,
/// and the merge that made it. Of its own bytes it is as many as most have.
const SYMBOL_BYTES: u64 = 128;

/// Bytes of a symbol's own among [`SYMBOL_BYTES`], with room for growing.
const SPELLING_BYTES: u64 = 48;

/// Bytes of a pair that is tracked: itself, its entry in the table, and in the queue. The table is between a quarter and half
/// full, and there twice while it grows.
const PAIR_BYTES: u64 = 32 + 6 * 12 + 16;

/// Bytes of a pair that may be frequent enough, for each part of the words: as above, its tally, and where its places go.
const CANDIDATE_BYTES: u64 = 6 * 12 + 3 * 24 + 8;

/// As many candidates as there is always room for.
const MIN_CANDIDATES: usize = if cfg!(test) { 8 } else { 1 << 12 };

/// Bytes of a place while pairs are looked for: as part of a list of all, and where it stays.
const FOUND_PLACE_BYTES: u64 = 8 + 4;
/// Bytes of a place, and as much again for those that merges add.
const PLACE_BYTES: u64 = 2 * 4;
/// Bytes of what a merge notes down for a place of its pair: a place and a symbol, on either side.
const NOTE_BYTES: u64 = 2 * 8;

/// Bytes of sums, lists and counts that each part of the words has of its own, however few the words are.
const PART_BYTES: u64 =
    if cfg!(test) { 1 << 8 } else { 2 * SIEVE_BYTES + MIN_CANDIDATES as u64 * CANDIDATE_BYTES + (1 << 19) };

/// Bytes of all that is small.
const OTHER_BYTES: u64 = if cfg!(test) { 1 << 8 } else { SIEVE_BYTES + (1 << 20) };

/// Fewest bytes in which words of so many slots and different counts can be learnt from, beside which `held` bytes are taken
/// until there are slots.
pub fn least_bytes(n_slots: u64, n_groups: u64, n_merges: usize, held: u64) -> u64 {
    let n_merges = n_slots.min(n_merges as u64);
    let hints = HINT_BYTES * (n_slots / SLOTS_A_HINT as u64 + 2);
    let slots = n_slots * size_of::<Narrow>() as u64 + hints + GROUP_BYTES * n_groups;
    // With counts known, groups are three times there: by thread, together, and as a table before that.
    let building = held + slots + 4 * GROUP_BYTES * n_groups;
    let widening = if n_merges + 256 > Narrow::SYMBOLS as u64 {
        n_slots * (size_of::<Wide>() - size_of::<Narrow>()) as u64
    } else {
        0
    };
    let learning = slots + 2 * GROUP_BYTES * n_groups + hints + widening + symbols(n_merges) + PART_BYTES;
    building.max(learning) + OTHER_BYTES
}

fn symbols(n_merges: u64) -> u64 {
    SYMBOL_BYTES * (256 + n_merges)
}

/// The bytes that learning may take, `None` for any number.
pub struct Budget {
    max_bytes: Option<u64>,
    n_merges: u64,
}

impl Budget {
    /// Of `max_bytes`, if they are not fewer than `least`, for words of so many slots.
    pub fn new(max_bytes: Option<u64>, least: u64, n_slots: u64, n_merges: usize) -> Result<Self> {
        if let Some(max_bytes) = max_bytes.filter(|&max_bytes| max_bytes < least) {
            return Err(Error::Invalid(format!(
                "learning the merges takes {least} bytes of memory at least, and {max_bytes} are left for it"
            )));
        }
        Ok(Self { max_bytes, n_merges: n_slots.min(n_merges as u64) })
    }

    /// The room that the words and symbols leave, on up to `n_threads` threads.
    pub fn room(&self, words: &Words, symbols: &Symbols, n_threads: usize) -> Room {
        let Some(max_bytes) = self.max_bytes else { return Room { bytes: None, n_threads } };
        let (n_slots, n_groups) = (words.n_slots() as u64, words.groups.n_groups() as u64);
        let spelt = symbols.n_bytes() as u64 * 3;
        let taken = n_slots * words.slot_bytes() as u64
            + 2 * HINT_BYTES * (n_slots / SLOTS_A_HINT as u64 + 2)
            + 3 * GROUP_BYTES * n_groups
            + self::symbols(self.n_merges)
            + spelt.saturating_sub(SPELLING_BYTES * (256 + self.n_merges))
            + PART_BYTES
            + OTHER_BYTES;
        let bytes = max_bytes.saturating_sub(taken);
        // Parts of the words have tables of their own, for which a quarter is enough.
        let n_more = n_threads.saturating_sub(1).min((bytes / 4 / PART_BYTES) as usize);
        Room { bytes: Some(bytes - n_more as u64 * PART_BYTES), n_threads: 1 + n_more }
    }
}

/// What is left for pairs and places.
#[derive(Clone, Copy)]
pub struct Room {
    bytes: Option<u64>,
    pub n_threads: usize,
}

/// What a threshold lets through, or more.
#[derive(Clone, Copy, Default, Debug)]
pub struct Load {
    pub n_pairs: u64,
    pub n_places: u64,
    /// Most places of one pair.
    pub most_places: u64,
}

impl Room {
    pub fn is_limited(&self) -> bool {
        self.bytes.is_some()
    }

    pub fn fits(&self, load: Load) -> bool {
        self.bytes.is_none_or(|bytes| {
            load.n_pairs <= self.max_pairs() as u64
                && FOUND_PLACE_BYTES * load.n_places <= bytes / 2
                && PLACE_BYTES * load.n_places + NOTE_BYTES * load.most_places <= bytes / 4 * 3
        })
    }

    /// Most pairs that can be tracked.
    pub fn max_pairs(&self) -> usize {
        self.bytes.map_or(usize::MAX, |bytes| (bytes / 4 / PAIR_BYTES) as usize)
    }

    /// Most candidates in each part of the words.
    pub fn max_candidates(&self) -> usize {
        self.bytes
            .map_or(usize::MAX, |bytes| ((bytes / 4 / CANDIDATE_BYTES) as usize / self.n_threads).max(MIN_CANDIDATES))
    }

    /// Most places, with as much room beside them as merging a pair of `most_places` needs.
    pub fn max_places(&self, most_places: u64) -> usize {
        self.bytes.map_or(usize::MAX, |bytes| ((bytes / 4 * 3).saturating_sub(NOTE_BYTES * most_places) / 4) as usize)
    }
}
