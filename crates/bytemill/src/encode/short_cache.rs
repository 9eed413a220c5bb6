//! Ids of recently seen short pre-tokens: 1–15 bytes, 0–4 ids.
//!
//! Most pre-tokens of a text were seen before, and most of those recently. Entries of frequent pre-tokens stay in the
//! processor's cache whatever the size of the table; the others are prefetched. A new entry replaces an old one, so the
//! cache may forget anything at any time.
//!
//! The table starts small and doubles as it fills, up to a fixed size: short texts touch little memory, long ones get a table
//! large enough for most of their pre-tokens. A line of two entries is selected by the low bits of the hash, so that an entry
//! stays in place or moves to a line that gets entries from nowhere else when one more bit counts.

use super::key_hash::{self, KeyHash};
use crate::error::Result;
use crate::sys::cpu::Kernel;
use crate::sys::hash::Packed;
use crate::sys::memory::{AnyBits, ZeroedArray};
use crate::sys::prefetch::prefetch_at;
use std::hint::select_unpredictable;

/// Most ids of an entry.
pub const SHORT_IDS: usize = 4;

/// Lines of a new cache.
const INITIAL_LINES: usize = 1 << 10;

/// 2¹⁸ lines of two entries, 16 MB. With 8 MB, text seen before takes 9–17 % longer.
const MAX_LINES: usize = 1 << 18;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, four bits up, the number of ids.
const COUNT_SHIFT: u32 = 60;

/// The bits of the number of ids, 0 to 4.
const COUNT_MASK: u64 = 0x7 << COUNT_SHIFT;

/// Set instead of a number of ids when the entry holds a placeholder. A lookup of ids finds no such entry, without a
/// check of this bit.
const PLACEHOLDER_BIT: u64 = 0x8 << COUNT_SHIFT;

/// A pre-token with its ids, or with the placeholder that stands for them.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Entry {
    low: u64,
    high: u64,
    ids: [u32; SHORT_IDS],
}

impl Entry {
    /// Whether it holds the ids of `key`.
    #[inline]
    fn has_ids_of(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high) & !COUNT_MASK == 0
    }

    /// Whether it holds the placeholder of `key`.
    #[inline]
    fn has_placeholder_of(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high ^ PLACEHOLDER_BIT) == 0
    }

    /// Its ids, and how many of them count.
    #[inline]
    fn ids(&self) -> (&[u32; SHORT_IDS], usize) {
        (&self.ids, (self.high >> COUNT_SHIFT) as usize)
    }

    #[inline]
    fn key(&self) -> Packed {
        Packed { low: self.low, high: self.high & !(0xF << COUNT_SHIFT) }
    }
}

/// Two entries, in one line of the processor's cache; the one looked up last comes first.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([Entry; 2]);

// SAFETY: integers, for which any bits are a value.
unsafe impl AnyBits for Line {}

impl Line {
    /// The entry that a new pre-token replaces: the second one, as most new pre-tokens are seldom seen again.
    #[inline]
    fn entry_for_new(&mut self) -> &mut Entry {
        &mut self.0[usize::from(self.0[0].high != 0)]
    }
}

pub struct ShortCache {
    /// Address space for the largest size.
    lines: ZeroedArray<Line>,
    /// Lines in use, a power of two.
    n_lines: usize,
    n_inserted: usize,
}

/// What the cache holds for a pre-token.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup<'c> {
    /// Its ids, and how many of them count.
    Ids(&'c [u32; SHORT_IDS], usize),
    /// The placeholder that stands for its ids until they are known.
    Placeholder(u32),
}

/// The lines in use, for many lookups while nothing changes.
#[derive(Clone, Copy)]
pub struct Lines<'c>(&'c [Line]);

impl<'c> Lines<'c> {
    #[inline]
    fn index(self, hash: u32) -> usize {
        hash as usize & (self.0.len() - 1)
    }

    /// The ids of a pre-token if it is the one looked up last in its line, and how many of them count. It is in 97 of 100
    /// lookups, so the processor predicts the branch.
    #[inline]
    pub fn get_first(self, key: Packed, hash: u32) -> Option<(&'c [u32; SHORT_IDS], usize)> {
        let entry = &self.0[self.index(hash)].0[0];
        entry.has_ids_of(key).then(|| entry.ids())
    }

    #[inline(always)]
    pub fn prefetch(self, hash: u32) {
        prefetch_at(self.0.as_ptr().wrapping_add(self.index(hash)));
    }
}

impl ShortCache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new() -> Result<Self> {
        Ok(Self { lines: ZeroedArray::new(MAX_LINES)?, n_lines: INITIAL_LINES, n_inserted: 0 })
    }

    /// Bytes of memory.
    pub fn n_bytes(&self) -> usize {
        size_of_val(self.lines().0)
    }

    #[inline]
    pub fn lines(&self) -> Lines<'_> {
        Lines(&self.lines[..self.n_lines])
    }

    #[inline]
    fn line(&mut self, hash: u32) -> &mut Line {
        let index = self.lines().index(hash);
        &mut self.lines[index]
    }

    /// Looks up a pre-token that [`Lines::get_first`] does not find.
    pub fn get_other(&mut self, key: Packed, hash: u32) -> Option<Lookup<'_>> {
        let Line(entries) = self.line(hash);
        if entries[1].has_ids_of(key) {
            entries.swap(0, 1);
            let (ids, n_ids) = entries[0].ids();
            return Some(Lookup::Ids(ids, n_ids));
        }
        entries.iter().find(|entry| entry.has_placeholder_of(key)).map(|entry| Lookup::Placeholder(entry.ids[0]))
    }

    /// Inserts the placeholder of a pre-token that the cache does not hold.
    pub fn insert_placeholder(&mut self, key: Packed, hash: u32, placeholder: u32) {
        self.n_inserted += 1;
        let ids = [placeholder, 0, 0, 0];
        *self.line(hash).entry_for_new() = Entry { low: key.low, high: key.high | PLACEHOLDER_BIT, ids };
    }

    /// Inserts the first `n_ids` of `ids` for a pre-token, in place of its placeholder if that is still there.
    #[inline]
    pub fn insert(&mut self, key: Packed, hash: u32, ids: &[u32; SHORT_IDS], n_ids: usize) {
        debug_assert!(n_ids <= SHORT_IDS);
        let new = Entry { low: key.low, high: key.high | (n_ids as u64) << COUNT_SHIFT, ids: *ids };
        let line = self.line(hash);
        let (is_first, is_second) = (line.0[0].has_placeholder_of(key), line.0[1].has_placeholder_of(key));
        if is_first | is_second {
            // Which of the two is unpredictable; neither is rare.
            line.0[select_unpredictable(is_first, 0, 1)] = new;
        } else {
            *line.entry_for_new() = new;
            self.n_inserted += 1;
        }
    }

    /// Removes the placeholder of a pre-token.
    pub fn remove_placeholder(&mut self, key: Packed, hash: u32) {
        for entry in self.line(hash).0.iter_mut().filter(|entry| entry.has_placeholder_of(key)) {
            *entry = Entry::default();
        }
    }

    /// Doubles the table if entries were inserted for half of its lines, as often as that is so. To be called while the cache
    /// holds no placeholders.
    #[inline]
    pub fn grow(&mut self) {
        while self.n_inserted >= self.n_lines / 2 && self.n_lines < MAX_LINES {
            key_hash::run(Double(self));
        }
    }
}

/// Doubles the table.
struct Double<'c>(&'c mut ShortCache);

impl<H: KeyHash> Kernel<H> for Double<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, hasher: H) {
        let ShortCache { lines, n_lines, .. } = self.0;
        let n_before = *n_lines;
        *n_lines *= 2;
        lines.prepare(n_before..*n_lines);
        let lines = &mut lines[..*n_lines];
        for index in 0..n_before {
            let Line(entries) = std::mem::take(&mut lines[index]);
            for entry in &entries {
                if entry.high != 0 {
                    // In order, so that first entries stay first: what moves to a line comes from one line.
                    let index = hasher.hash(entry.key()) as usize & (lines.len() - 1);
                    *lines[index].entry_for_new() = *entry;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/short_cache.rs"]
mod tests;
