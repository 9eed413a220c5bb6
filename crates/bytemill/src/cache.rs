//! Ids of pre-tokens seen lately: tables of fixed size, where what is new takes the place of what is old.
//!
//! Most pre-tokens of a text were seen before, and those mostly lately. The frequent ones keep their entries in the
//! processor's cache whatever the size of the table; the others are asked for ahead of time.

#[cfg(test)]
mod tests;

use crate::hash::{Packed, fold, long_hash};
use crate::huge::{HugeArray, Plain};
use crate::mix::Mixing;
use crate::prefetch::{prefetch, prefetch_at};
use std::hint::select_unpredictable;

/// Most ids of an entry for short pre-tokens.
pub const SHORT_IDS: usize = 4;

/// Most ids of an entry for short pre-tokens of more.
const MANY_IDS: usize = 12;

/// Most bytes of a pre-token that the table of longer ones takes.
const LONG_BYTES: usize = 63;

/// Most ids of an entry for longer pre-tokens.
const LONG_IDS: usize = 15;

/// Most bytes of a pre-token that the table of the longest takes: lines drawn with dashes and such, which return again and
/// again, not words.
pub const LONGEST_BYTES: usize = 248;

/// Most ids of an entry for the longest pre-tokens.
const LONGEST_IDS: usize = 16;

/// 2¹⁸ sets of two entries of 32 bytes, 16 MB, taken before the first text of some length.
const SHORT_LOG2: u32 = 18;

/// 2¹⁶ entries of 64 bytes, 4 MB. A third of what is new in text of many languages has more ids than an entry for short
/// pre-tokens takes, and comes back.
const MANY_LOG2: u32 = 16;

/// 2¹⁴ entries of 128 bytes, 2 MB.
const LONG_LOG2: u32 = 14;

/// 2¹⁰ entries of 320 bytes.
const LONGEST_LOG2: u32 = 10;

/// So much text has some fifteen pre-tokens, with places in seven of the eight large pages for short ones: their memory may as well be
/// taken before.
const ENOUGH_BYTES: usize = 64;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, 4 bits up, the number of ids.
const COUNT_SHIFT: u32 = 60;

/// The bits of the number of ids in an entry of few, 1 to 4.
const FEW_MASK: u64 = 0x7 << COUNT_SHIFT;

/// In place of the number of ids: there is a question in the place of ids. What is known is found without looking at this bit.
const QUESTION_MARK: u64 = 0x8 << COUNT_SHIFT;

/// The bits of the number of ids in an entry of many.
const MANY_MASK: u64 = 0xF << COUNT_SHIFT;

#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Short {
    low: u64,
    high: u64,
    ids: [u32; SHORT_IDS],
}

impl Short {
    /// Whether it holds ids of the key.
    #[inline]
    fn is_of(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high) & !FEW_MASK == 0
    }

    /// Whether it holds the question for ids of the key.
    #[inline]
    fn asks_for(&self, key: Packed) -> bool {
        (self.low ^ key.low) | (self.high ^ key.high ^ QUESTION_MARK) == 0
    }

    /// The ids, and how many of them count.
    #[inline]
    fn ids(&self) -> (&[u32; SHORT_IDS], usize) {
        (&self.ids, (self.high >> COUNT_SHIFT) as usize)
    }

    #[inline]
    fn set(&mut self, key: Packed, ids: &[u32; SHORT_IDS], n_ids: usize) {
        debug_assert!((1..=SHORT_IDS).contains(&n_ids));
        *self = Self { low: key.low, high: key.high | (n_ids as u64) << COUNT_SHIFT, ids: *ids };
    }
}

/// A short pre-token with up to 12 ids, in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Many {
    low: u64,
    high: u64,
    ids: [u32; MANY_IDS],
}

/// Two entries in one cache line, the one last asked for first.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set([Short; 2]);

impl Set {
    /// The entry for something new.
    #[inline]
    fn for_new(&mut self) -> &mut Short {
        // Not that of what has been asked for again: most of what is new is seldom seen twice.
        let entry = usize::from(self.0[0].high != 0);
        &mut self.0[entry]
    }
}

/// A pre-token of up to 63 bytes: its bytes and their number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
struct LongKey {
    words: [u64; 8],
}

impl LongKey {
    /// The key of up to [`LONG_BYTES`] bytes; `None` for more.
    #[inline]
    fn new(pretoken: &[u8]) -> Option<Self> {
        if pretoken.len() > LONG_BYTES {
            return None;
        }
        let mut bytes = [0; 64];
        bytes[..pretoken.len()].copy_from_slice(pretoken);
        bytes[LONG_BYTES] = pretoken.len() as u8;
        let mut words = [0; 8];
        for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
        }
        Some(Self { words })
    }

    /// Its place in the table of longer pre-tokens.
    #[inline]
    fn place(&self) -> usize {
        let [a, b, c, d, e, f, g, h] = self.words;
        let hash = fold(a ^ 0x9E37_79B9_7F4A_7C15, b ^ 0xD6E8_FEB8_6659_FD93)
            ^ fold(c ^ 0xA076_1D64_78BD_642F, d ^ 0xE703_7ED1_A0B4_28DB).rotate_left(32)
            ^ fold(e ^ 0x8EBC_6AF0_9C88_C6E3, f ^ 0x5899_65CC_7537_4CC3).rotate_left(16)
            ^ fold(g ^ 0x1D8E_4E27_C47D_124F, h ^ 0xEB44_ACCA_B455_D165).rotate_left(48);
        (hash >> (64 - LONG_LOG2)) as usize
    }
}

// SAFETY: numbers, of which any bits are some.
unsafe impl Plain for Set {}
// SAFETY: as above.
unsafe impl Plain for Many {}

/// The 1 to 15 ids of a longer pre-token, in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct LongIds {
    ids: [u32; LONG_IDS],
    n_ids: u32,
}

/// One of the longest pre-tokens and its 1 to 16 ids.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Longest {
    bytes: [u8; LONGEST_BYTES],
    n_bytes: u32,
    n_ids: u32,
    ids: [u32; LONGEST_IDS],
}

/// Pre-tokens of up to 15 bytes that make up to 12 ids, of up to 63 bytes that make up to 15, and of up to 248 bytes
/// that make up to 16.
pub struct Cache {
    mixing: Mixing,
    short: HugeArray<Set, { 1 << SHORT_LOG2 }>,
    many: HugeArray<Many, { 1 << MANY_LOG2 }>,
    /// Bytes of text so far, until the memory of `short` is taken.
    n_bytes_so_far: usize,
    /// Whether the memory of these two has been taken, and whether large pages were quick to come.
    short_is_ready: bool,
    many_is_ready: bool,
    in_large_pages: bool,
    /// A bit for each place of `many` that holds something: 8 KB, which in most languages keep the processor from fetching
    /// lines of it for nothing.
    many_filled: Box<[u64]>,
    long_keys: Box<[LongKey]>,
    long_ids: Box<[LongIds]>,
    longest: Box<[Longest]>,
}

/// What the cache knows of a short pre-token.
#[derive(Debug, PartialEq, Eq)]
pub enum Known<'c> {
    /// Its ids, and how many of them count.
    Ids(&'c [u32; SHORT_IDS], usize),
    /// The question for them.
    Question(u32),
}

/// Asks for the entries of short pre-tokens ahead of time. It may outlive the cache, and then does nothing useful.
#[derive(Clone, Copy)]
pub struct Prefetcher(*const Set);

impl Prefetcher {
    /// Asks for the entries of a mixed key.
    #[inline(always)]
    pub fn prefetch(self, mixed: u32) {
        prefetch_at(self.0.wrapping_add(Cache::place(mixed)));
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            mixing: Mixing::best(),
            short: HugeArray::zeroed(),
            many: HugeArray::zeroed(),
            n_bytes_so_far: 0,
            short_is_ready: false,
            many_is_ready: false,
            in_large_pages: true,
            many_filled: vec![0; 1 << (MANY_LOG2 - 6)].into_boxed_slice(),
            long_keys: vec![LongKey::default(); 1 << LONG_LOG2].into_boxed_slice(),
            long_ids: vec![LongIds::default(); 1 << LONG_LOG2].into_boxed_slice(),
            longest: vec![
                Longest { bytes: [0; LONGEST_BYTES], n_bytes: 0, n_ids: 0, ids: [0; LONGEST_IDS] };
                1 << LONGEST_LOG2
            ]
            .into_boxed_slice(),
        }
    }
}

impl Cache {
    /// To be called before a text of so many bytes is encoded. When there are enough for pages all over the table of short
    /// pre-tokens, takes its memory all at once; false where large pages are found to be slow to come.
    #[inline]
    pub fn prepare(&mut self, n_bytes: usize) -> bool {
        self.short_is_ready || self.prepare_more(n_bytes)
    }

    #[cold]
    fn prepare_more(&mut self, n_bytes: usize) -> bool {
        self.n_bytes_so_far += n_bytes;
        if self.n_bytes_so_far < ENOUGH_BYTES {
            return true;
        }
        self.in_large_pages = self.short.take_memory(self.in_large_pages);
        self.short_is_ready = true;
        self.in_large_pages
    }

    /// What a short pre-token has to be mixed with for its place.
    #[inline]
    #[must_use]
    pub fn mixing(&self) -> Mixing {
        self.mixing
    }

    #[inline]
    fn place(mixed: u32) -> usize {
        (mixed >> (32 - SHORT_LOG2)) as usize
    }

    /// What asks for entries ahead of time.
    #[inline]
    #[must_use]
    pub fn prefetcher(&self) -> Prefetcher {
        Prefetcher(self.short.as_ptr())
    }

    /// The ids of a short pre-token, if it is the one last asked for in its place, and how many of them count.
    ///
    /// It is 97 times of a hundred, so that the processor need not wait for the answer to go on.
    #[inline]
    #[must_use]
    pub fn get_first(&self, key: Packed, mixed: u32) -> Option<(&[u32; SHORT_IDS], usize)> {
        let entry = &self.short[Self::place(mixed)].0[0];
        entry.is_of(key).then(|| entry.ids())
    }

    /// What is known of any other short pre-token.
    #[must_use]
    pub fn get_other(&mut self, key: Packed, mixed: u32) -> Option<Known<'_>> {
        let Set(entries) = &mut self.short[Self::place(mixed)];
        if entries[1].is_of(key) {
            entries.swap(0, 1);
            let (ids, n_ids) = entries[0].ids();
            return Some(Known::Ids(ids, n_ids));
        }
        entries.iter().find(|entry| entry.asks_for(key)).map(|entry| Known::Question(entry.ids[0]))
    }

    /// Has a question stand in the place of ids for a short pre-token of which nothing is known.
    pub fn insert_question(&mut self, key: Packed, mixed: u32, question: u32) {
        let entry = self.short[Self::place(mixed)].for_new();
        *entry = Short { low: key.low, high: key.high | QUESTION_MARK, ids: [question, 0, 0, 0] };
    }

    /// Remembers that the first `n_ids` of `ids` are those of a short pre-token, in the place of the question for them if it is
    /// still there.
    #[inline]
    pub fn insert(&mut self, key: Packed, mixed: u32, ids: &[u32; SHORT_IDS], n_ids: usize) {
        let set = &mut self.short[Self::place(mixed)];
        let (is_first, is_second) = (set.0[0].asks_for(key), set.0[1].asks_for(key));
        // Nobody foresees which; that it is none of them is rare.
        let entry = select_unpredictable(is_first, 0, 1);
        if is_first | is_second {
            set.0[entry].set(key, ids, n_ids);
        } else {
            set.for_new().set(key, ids, n_ids);
        }
    }

    /// Forgets the question for a short pre-token's ids.
    pub fn remove_question(&mut self, key: Packed, mixed: u32) {
        let Set(entries) = &mut self.short[Self::place(mixed)];
        for entry in entries.iter_mut().filter(|entry| entry.asks_for(key)) {
            *entry = Short::default();
        }
    }

    /// Remembers the ids of a short pre-token that are more than an entry takes, if they are not too many for another table.
    pub fn insert_many(&mut self, key: Packed, hash: u64, ids: &[u32]) {
        if ids.len() <= MANY_IDS {
            if !self.many_is_ready {
                self.in_large_pages = self.many.take_memory(self.in_large_pages);
                self.many_is_ready = true;
            }
            let place = Self::place_of_many(hash);
            self.many_filled[place >> 6] |= 1 << (place & 63);
            let entry = &mut self.many[place];
            (entry.low, entry.high) = (key.low, key.high | (ids.len() as u64) << COUNT_SHIFT);
            entry.ids[..ids.len()].copy_from_slice(ids);
        }
    }

    /// Whether [`Cache::get_many`] may know a pre-token with this hash.
    #[inline]
    #[must_use]
    pub fn may_be_of_many(&self, hash: u64) -> bool {
        self.is_filled(Self::place_of_many(hash))
    }

    #[inline]
    fn place_of_many(hash: u64) -> usize {
        (hash >> (64 - MANY_LOG2)) as usize
    }

    #[inline]
    fn is_filled(&self, place: usize) -> bool {
        self.many_filled[place >> 6] >> (place & 63) & 1 != 0
    }

    /// Asks for the entry of a short pre-token of many ids ahead of time.
    #[inline]
    pub fn prefetch_many(&self, hash: u64) {
        let place = Self::place_of_many(hash);
        if self.is_filled(place) {
            prefetch(&*self.many, place);
        }
    }

    /// The ids of a short pre-token that has more than [`SHORT_IDS`].
    #[inline]
    #[must_use]
    pub fn get_many(&self, key: Packed, hash: u64) -> Option<&[u32]> {
        let place = Self::place_of_many(hash);
        if !self.is_filled(place) {
            return None;
        }
        let entry = &self.many[place];
        let n_ids = (entry.high >> COUNT_SHIFT) as usize;
        if entry.low == key.low && entry.high & !MANY_MASK == key.high { entry.ids.get(..n_ids) } else { None }
    }

    /// Asks for the entry of a longer pre-token ahead of time and gives its place.
    #[inline]
    pub fn prefetch_long(&self, pretoken: &[u8]) -> usize {
        if let Some(key) = LongKey::new(pretoken) {
            let place = key.place();
            prefetch(&self.long_keys, place);
            prefetch(&self.long_ids, place);
            place
        } else {
            let first = &pretoken[..pretoken.len().min(LONGEST_BYTES)];
            (long_hash(first, 0) >> (64 - LONGEST_LOG2)) as usize
        }
    }

    /// The ids of a longer pre-token; `place` is what [`Cache::prefetch_long`] gave for it.
    #[inline]
    #[must_use]
    pub fn get_long(&self, pretoken: &[u8], place: usize) -> Option<&[u32]> {
        if let Some(key) = LongKey::new(pretoken) {
            let entry = &self.long_ids[place];
            return (self.long_keys[place] == key).then(|| &entry.ids[..entry.n_ids as usize]);
        }
        let entry = &self.longest[place];
        (entry.n_bytes as usize == pretoken.len() && entry.bytes.starts_with(pretoken))
            .then(|| &entry.ids[..entry.n_ids as usize])
    }

    /// Remembers the ids of a longer pre-token, if neither they nor its bytes are too many; `place` is what
    /// [`Cache::prefetch_long`] gave for it.
    #[inline]
    pub fn insert_long(&mut self, pretoken: &[u8], place: usize, ids: &[u32]) {
        if let Some(key) = LongKey::new(pretoken) {
            if ids.len() <= LONG_IDS {
                self.long_keys[place] = key;
                let entry = &mut self.long_ids[place];
                entry.ids[..ids.len()].copy_from_slice(ids);
                entry.n_ids = ids.len() as u32;
            }
        } else if pretoken.len() <= LONGEST_BYTES && ids.len() <= LONGEST_IDS {
            let entry = &mut self.longest[place];
            entry.bytes[..pretoken.len()].copy_from_slice(pretoken);
            entry.ids[..ids.len()].copy_from_slice(ids);
            (entry.n_bytes, entry.n_ids) = (pretoken.len() as u32, ids.len() as u32);
        }
    }
}
