//! Ids of recently seen pre-tokens.
//!
//! Most pre-tokens of a text were seen before, and most of those recently. Entries of frequent pre-tokens stay in the
//! processor's cache whatever the size of the table; the others are prefetched. A new entry replaces an old one, so the
//! cache may forget anything at any time.
//!
//! Four tables, by the bytes and ids of a pre-token: 1–15 bytes with 1–4 ids, 1–15 bytes with 5–12 ids, 16–63 bytes, and
//! 64–248 bytes (drawn lines and the like).

use super::growing_cache::{GrowingCache, View};
use super::key_hash::{KeyHash, KeyHashWork, KeyHasher};
use super::long_cache::{LongEntry, LongKey, MAX_LONG_IDS, MAX_RUN_IDS, RunEntry};
use crate::bpe::limits::MAX_CACHED_BYTES;
use crate::error::Result;
use crate::sys::hash::{Packed, long_hash};
use crate::sys::huge_pages::{AnyBits, ZeroedArray};
use crate::sys::prefetch::prefetch_at;
use std::hint::select_unpredictable;
use std::ops::Range;

/// Most ids of a [`ShortEntry`].
pub const SHORT_IDS: usize = 4;

/// Most ids of a [`ManyEntry`].
const MANY_IDS: usize = 12;

/// 2¹⁸ sets of two entries, 16 MB. With 8 MB, text seen before takes 9–17 % longer.
const MAX_SHORT_SETS: usize = 1 << 18;

/// 2¹⁶ entries, 4 MB. A third of the new pre-tokens of multilingual text have more than [`SHORT_IDS`] ids.
const MAX_MANY_ENTRIES: usize = 1 << 16;

/// 2¹⁴ entries, 2 MB.
const MAX_LONG_ENTRIES: usize = 1 << 14;

/// 2¹⁰ entries, 0.3 MB.
const RUN_ENTRIES_LOG2: u32 = 10;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, four bits up, the number of ids.
const COUNT_SHIFT: u32 = 60;

/// The bits of the number of ids in a [`ShortEntry`], 1 to 4.
const SHORT_COUNT_MASK: u64 = 0x7 << COUNT_SHIFT;

/// Set instead of a number of ids when the entry holds a placeholder. A lookup of ids finds no such entry, without a
/// check of this bit.
const PLACEHOLDER_BIT: u64 = 0x8 << COUNT_SHIFT;

/// The bits of the number of ids in a [`ManyEntry`].
const MANY_COUNT_MASK: u64 = 0xF << COUNT_SHIFT;

/// A short pre-token with up to [`SHORT_IDS`] ids, or with the placeholder that stands for them.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct ShortEntry {
    low: u64,
    high: u64,
    ids: [u32; SHORT_IDS],
}

impl ShortEntry {
    #[inline]
    fn new(key: Packed, ids: &[u32; SHORT_IDS], n_ids: usize) -> Self {
        debug_assert!((1..=SHORT_IDS).contains(&n_ids));
        Self { low: key.low, high: key.high | (n_ids as u64) << COUNT_SHIFT, ids: *ids }
    }

    /// Whether it holds the ids of `key`.
    #[inline]
    fn has_ids_of(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high) & !SHORT_COUNT_MASK == 0
    }

    /// Whether it holds the placeholder of `key`.
    #[inline]
    fn has_placeholder_of(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high ^ PLACEHOLDER_BIT) == 0
    }

    #[inline]
    fn n_ids(&self) -> usize {
        (self.high >> COUNT_SHIFT) as usize
    }

    #[inline]
    fn key(&self) -> Packed {
        Packed { low: self.low, high: self.high & !(0xF << COUNT_SHIFT) }
    }
}

/// A short pre-token with 5 to 12 ids, in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct ManyEntry {
    low: u64,
    high: u64,
    ids: [u32; MANY_IDS],
}

/// Two entries in one cache line; the one looked up last comes first.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct ShortSet([ShortEntry; 2]);

impl ShortSet {
    /// The entry that a new pre-token replaces: the second one, as most new pre-tokens are seldom seen again.
    #[inline]
    fn entry_for_new(&mut self) -> &mut ShortEntry {
        &mut self.0[usize::from(self.0[0].high != 0)]
    }
}

// SAFETY: integers, for which any bits are a value.
unsafe impl AnyBits for ShortSet {}
// SAFETY: as above.
unsafe impl AnyBits for ManyEntry {}

/// The tables of one workspace.
pub struct Cache {
    hasher: KeyHasher,
    short: GrowingCache<ShortSet>,
    many: GrowingCache<ManyEntry>,
    /// A bit per index of `many` at its largest, set if an entry was inserted there. It saves fetching cache lines in vain.
    many_filter: Box<[u64]>,
    long: GrowingCache<LongEntry>,
    /// Allocated with the first entry.
    runs: Option<ZeroedArray<RunEntry>>,
}

/// What the cache holds for a short pre-token.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup<'c> {
    /// Its ids, and how many of them count.
    Ids(&'c [u32; SHORT_IDS], usize),
    /// The placeholder that stands for its ids until they are known.
    Placeholder(u32),
}

/// The first entries of all sets, for many lookups while nothing changes.
#[derive(Clone, Copy)]
pub struct FirstEntries<'c>(View<'c, ShortSet>);

impl<'c> FirstEntries<'c> {
    /// The ids of a short pre-token if it is the one looked up last in its set, and how many of them count. It is in 97 of
    /// 100 lookups, so the processor predicts the branch.
    #[inline]
    #[must_use]
    pub fn get(self, key: Packed, hash: u32) -> Option<(&'c [u32; SHORT_IDS], usize)> {
        let entry = &self.0.get(hash).0[0];
        entry.has_ids_of(key).then(|| (&entry.ids, entry.n_ids()))
    }
}

/// Prefetches the sets of short pre-tokens. It may outlive the cache; then it has no useful effect.
#[derive(Clone, Copy)]
pub struct Prefetcher {
    start: *const ShortSet,
    mask: usize,
}

impl Prefetcher {
    #[inline(always)]
    pub fn prefetch(self, hash: u32) {
        prefetch_at(self.start.wrapping_add(hash as usize & self.mask));
    }
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new() -> Result<Self> {
        Ok(Self {
            hasher: KeyHasher::best(),
            short: GrowingCache::new(MAX_SHORT_SETS)?,
            many: GrowingCache::new(MAX_MANY_ENTRIES)?,
            many_filter: vec![0; MAX_MANY_ENTRIES / 64].into_boxed_slice(),
            long: GrowingCache::new(MAX_LONG_ENTRIES)?,
            runs: None,
        })
    }

    /// Bytes of memory.
    pub fn n_bytes(&self) -> usize {
        self.short.n_bytes()
            + self.many.n_bytes()
            + size_of_val(&*self.many_filter)
            + self.long.n_bytes()
            + self.runs.as_deref().map_or(0, size_of_val)
    }

    /// Grows the tables that are full. To be called while the cache holds no placeholders.
    #[inline]
    pub fn grow(&mut self) {
        while self.short.is_full() {
            self.hasher.run(GrowShort(&mut self.short));
        }
        while self.many.is_full() {
            self.many.grow(|entries, index| {
                let entry = entries[index];
                let key = Packed { low: entry.low, high: entry.high & !MANY_COUNT_MASK };
                let new_index = Self::many_hash(key.hash()) as usize & (entries.len() - 1);
                if entry.high != 0 && new_index != index {
                    entries[new_index] = std::mem::take(&mut entries[index]);
                }
            });
        }
        while self.long.is_full() {
            self.long.grow(|entries, index| {
                let new_index = entries[index].key.hash() as usize & (entries.len() - 1);
                if entries[index].n_ids != 0 && new_index != index {
                    entries[new_index] = std::mem::take(&mut entries[index]);
                }
            });
        }
    }

    /// The hash function for keys of this cache.
    #[inline]
    #[must_use]
    pub fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    #[inline]
    #[must_use]
    pub fn prefetcher(&self) -> Prefetcher {
        Prefetcher { start: self.short.view().address(0), mask: self.short.len() - 1 }
    }

    #[inline]
    #[must_use]
    pub fn first_entries(&self) -> FirstEntries<'_> {
        FirstEntries(self.short.view())
    }

    /// Looks up a short pre-token that is not among [`Cache::first_entries`].
    #[must_use]
    pub fn get_other(&mut self, key: Packed, hash: u32) -> Option<Lookup<'_>> {
        let ShortSet(entries) = self.short.get_mut(hash);
        if entries[1].has_ids_of(key) {
            entries.swap(0, 1);
            return Some(Lookup::Ids(&entries[0].ids, entries[0].n_ids()));
        }
        entries.iter().find(|entry| entry.has_placeholder_of(key)).map(|entry| Lookup::Placeholder(entry.ids[0]))
    }

    /// Inserts the placeholder of a short pre-token that the cache does not hold.
    pub fn insert_placeholder(&mut self, key: Packed, hash: u32, placeholder: u32) {
        let entry = self.short.get_for_insert(hash).entry_for_new();
        *entry = ShortEntry { low: key.low, high: key.high | PLACEHOLDER_BIT, ids: [placeholder, 0, 0, 0] };
    }

    /// Inserts the first `n_ids` of `ids` for a short pre-token, in place of its placeholder if that is still there.
    #[inline]
    pub fn insert(&mut self, key: Packed, hash: u32, ids: &[u32; SHORT_IDS], n_ids: usize) {
        let set = self.short.get_mut(hash);
        let (is_first, is_second) = (set.0[0].has_placeholder_of(key), set.0[1].has_placeholder_of(key));
        // Which of the two is unpredictable; neither is rare.
        let index = select_unpredictable(is_first, 0, 1);
        if is_first | is_second {
            set.0[index] = ShortEntry::new(key, ids, n_ids);
        } else {
            *self.short.get_for_insert(hash).entry_for_new() = ShortEntry::new(key, ids, n_ids);
        }
    }

    /// Removes the placeholder of a short pre-token.
    pub fn remove_placeholder(&mut self, key: Packed, hash: u32) {
        let ShortSet(entries) = self.short.get_mut(hash);
        for entry in entries.iter_mut().filter(|entry| entry.has_placeholder_of(key)) {
            *entry = ShortEntry::default();
        }
    }

    #[inline]
    fn many_hash(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    #[inline]
    fn many_bit(hash: u64) -> usize {
        Self::many_hash(hash) as usize & (MAX_MANY_ENTRIES - 1)
    }

    /// Inserts the ids of a short pre-token with more than [`SHORT_IDS`] ids, unless there are too many.
    pub fn insert_many(&mut self, key: Packed, hash: u64, ids: &[u32]) {
        if ids.len() <= MANY_IDS {
            let bit = Self::many_bit(hash);
            self.many_filter[bit >> 6] |= 1 << (bit & 63);
            let entry = self.many.get_for_insert(Self::many_hash(hash));
            (entry.low, entry.high) = (key.low, key.high | (ids.len() as u64) << COUNT_SHIFT);
            entry.ids[..ids.len()].copy_from_slice(ids);
        }
    }

    /// False if [`Cache::get_many`] holds no pre-token with this hash.
    #[inline]
    #[must_use]
    pub fn may_have_many(&self, hash: u64) -> bool {
        let bit = Self::many_bit(hash);
        self.many_filter[bit >> 6] >> (bit & 63) & 1 != 0
    }

    #[inline]
    pub fn prefetch_many(&self, hash: u64) {
        prefetch_at(self.many.view().address(Self::many_hash(hash)));
    }

    /// The ids of a short pre-token that has more than [`SHORT_IDS`] ids.
    #[inline]
    #[must_use]
    pub fn get_many(&self, key: Packed, hash: u64) -> Option<&[u32]> {
        let entry = self.many.get(Self::many_hash(hash));
        let n_ids = (entry.high >> COUNT_SHIFT) as usize;
        if entry.low == key.low && entry.high & !MANY_COUNT_MASK == key.high { entry.ids.get(..n_ids) } else { None }
    }

    /// Prefetches the entry of a pre-token of 16 bytes or more and returns the hash for the other methods.
    #[inline]
    pub fn prefetch_long(&self, text: &[u8], range: &Range<usize>) -> u32 {
        if let Some(key) = LongKey::new(text, range) {
            let hash = key.hash();
            let entry = self.long.view().address(hash);
            // An entry has two cache lines.
            prefetch_at(entry);
            prefetch_at(entry.cast::<LongKey>().wrapping_add(1));
            hash
        } else if range.len() <= MAX_CACHED_BYTES {
            (long_hash(&text[range.clone()], 0) >> (64 - RUN_ENTRIES_LOG2)) as u32
        } else {
            0
        }
    }

    /// The ids of a pre-token of 16 bytes or more; `hash` comes from [`Cache::prefetch_long`].
    #[inline]
    #[must_use]
    pub fn get_long(&self, text: &[u8], range: &Range<usize>, hash: u32) -> Option<&[u32]> {
        if let Some(key) = LongKey::new(text, range) {
            let entry = self.long.get(hash);
            return entry.key.is_equal(&key).then(|| &entry.ids[..entry.n_ids as usize]);
        }
        let entry = &self.runs.as_ref()?[hash as usize];
        (entry.n_bytes as usize == range.len() && entry.bytes.starts_with(&text[range.clone()]))
            .then(|| &entry.ids[..entry.n_ids as usize])
    }

    /// Inserts the ids of a pre-token of 16 bytes or more, unless it has too many bytes or ids; `hash` comes from
    /// [`Cache::prefetch_long`].
    pub fn insert_long(&mut self, text: &[u8], range: &Range<usize>, hash: u32, ids: &[u32]) {
        if let Some(key) = LongKey::new(text, range) {
            if ids.len() <= MAX_LONG_IDS {
                let entry = self.long.get_for_insert(hash);
                entry.key = key;
                entry.ids[..ids.len()].copy_from_slice(ids);
                entry.n_ids = ids.len() as u32;
            }
        } else if range.len() <= MAX_CACHED_BYTES && ids.len() <= MAX_RUN_IDS {
            if self.runs.is_none() {
                self.runs = ZeroedArray::new(1 << RUN_ENTRIES_LOG2).ok();
            }
            let Some(runs) = &mut self.runs else { return };
            let entry = &mut runs[hash as usize];
            entry.bytes[..range.len()].copy_from_slice(&text[range.clone()]);
            entry.ids[..ids.len()].copy_from_slice(ids);
            (entry.n_bytes, entry.n_ids) = (range.len() as u32, ids.len() as u32);
        }
    }
}

/// Grows the table of short pre-tokens, compiled for the processor's hash instructions.
struct GrowShort<'c>(&'c mut GrowingCache<ShortSet>);

impl KeyHashWork for GrowShort<'_> {
    #[inline(always)]
    fn run(self, hasher: impl KeyHash) {
        self.0.grow(|sets, index| {
            let ShortSet(entries) = std::mem::take(&mut sets[index]);
            for entry in entries {
                if entry.high != 0 {
                    // In order, so that first entries stay first: what moves to a set comes from one set.
                    let index = hasher.hash(entry.key()) as usize & (sets.len() - 1);
                    *sets[index].entry_for_new() = entry;
                }
            }
        });
    }
}

#[cfg(test)]
#[path = "tests/cache.rs"]
mod tests;
