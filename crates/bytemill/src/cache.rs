//! Ids of pre-tokens seen lately: tables that grow up to a fixed size, where what is new takes the place of what is old.
//!
//! Most pre-tokens of a text were seen before, and those mostly lately. The frequent ones keep their entries in the
//! processor's cache whatever the size of the table; the others are asked for ahead of time.

mod growing;
mod long;
#[cfg(test)]
mod tests;

use crate::hash::{Packed, long_hash};
use crate::huge::{HugeArray, Plain};
use crate::mix::{Mix, MixWork, Mixing};
use crate::prefetch::prefetch_at;
use growing::Growing;
use long::{LONG_IDS, Long, LongKey, Longest};
pub use long::{LONGEST_BYTES, LONGEST_IDS};
use std::hint::select_unpredictable;
use std::ops::Range;

/// Most ids of an entry for short pre-tokens.
pub const SHORT_IDS: usize = 4;

/// Most ids of an entry for short pre-tokens of more.
const MANY_IDS: usize = 12;

/// From 2¹⁰ sets of two entries of 32 bytes, 64 KB, to 2¹⁸, 16 MB.
const SHORT: usize = 1 << 18;

/// From 2¹⁰ entries of 64 bytes, 64 KB, to 2¹⁶, 4 MB. A third of what is new in text of many languages has more ids than an entry
/// for short pre-tokens takes, and comes back.
const MANY: usize = 1 << 16;

/// From 2¹⁰ entries of 128 bytes, 128 KB, to 2¹⁴, 2 MB.
const LONG: usize = 1 << 14;

/// Bytes of each table for a byte of text to come. 0.3 to 3 MB take 4 to 15 % less time than where tables only double, with one byte up
/// to 8 %, with four up to 19 %; but four are more than doubling comes to, and 16 MB in small pages take longer than that is worth.
const PER_BYTE: usize = 2;

/// 2¹⁰ entries of 320 bytes, of which memory is taken with the first.
const LONGEST_LOG2: u32 = 10;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, 4 bits up, the number of ids.
const COUNT_SHIFT: u32 = 60;

/// The bits of the number of ids in an entry of few, 1 to 4.
const FEW_MASK: u64 = 0x7 << COUNT_SHIFT;

/// In place of the number of ids: there is a question in the place of ids. What is known is found without looking at this bit.
const QUESTION_MARK: u64 = 0x8 << COUNT_SHIFT;

/// The bits of the number of ids in an entry of many.
const MANY_MASK: u64 = 0xF << COUNT_SHIFT;

/// A short pre-token with up to [`SHORT_IDS`] ids, or a question.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Short {
    low: u64,
    high: u64,
    ids: [u32; SHORT_IDS],
}

impl Short {
    /// The first `n_ids` of `ids` are those of the key.
    #[inline]
    #[must_use]
    pub fn new(key: Packed, ids: &[u32; SHORT_IDS], n_ids: usize) -> Self {
        debug_assert!((1..=SHORT_IDS).contains(&n_ids));
        Self { low: key.low, high: key.high | (n_ids as u64) << COUNT_SHIFT, ids: *ids }
    }

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

    /// The key of what it holds, or of the question.
    #[inline]
    fn key(&self) -> Packed {
        Packed { low: self.low, high: self.high & !(0xF << COUNT_SHIFT) }
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

// SAFETY: numbers, of which any bits are some.
unsafe impl Plain for Set {}
// SAFETY: as above.
unsafe impl Plain for Many {}

/// Pre-tokens of up to 15 bytes that make up to 12 ids, of up to 63 bytes that make up to 15, and of up to 248 bytes
/// that make up to 16.
pub struct Cache {
    mixing: Mixing,
    short: Growing<Set, SHORT>,
    many: Growing<Many, MANY>,
    /// A bit for each place that `many` has at its largest, where something was put there: 8 KB, which in most languages keep the
    /// processor from fetching lines of it for nothing.
    many_filled: Box<[u64]>,
    long: Growing<Long, LONG>,
    longest: HugeArray<Longest, { 1 << LONGEST_LOG2 }>,
    /// Whether there is anything in `longest`: so that its memory is not read before it is taken.
    knows_longest: bool,
    /// As many bytes of each table as may be needed for the text that is to come.
    n_bytes: usize,
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
pub struct Prefetcher {
    start: *const Set,
    mask: usize,
}

impl Prefetcher {
    /// Asks for the entries of a mixed key.
    #[inline(always)]
    pub fn prefetch(self, mixed: u32) {
        prefetch_at(self.start.wrapping_add(mixed as usize & self.mask));
    }
}

/// What is known of short pre-tokens, to be asked many times over while nothing changes.
#[derive(Clone, Copy)]
pub struct First<'c> {
    sets: &'c [Set; SHORT],
    mask: usize,
}

impl<'c> First<'c> {
    /// The ids of a short pre-token, if it is the one last asked for in its place, and how many of them count.
    ///
    /// It is 97 times of a hundred, so that the processor need not wait for the answer to go on.
    #[inline]
    #[must_use]
    pub fn get(self, key: Packed, mixed: u32) -> Option<(&'c [u32; SHORT_IDS], usize)> {
        // The second mask is for the compiler, which need not check an index then.
        let entry = &self.sets[mixed as usize & self.mask & (SHORT - 1)].0[0];
        entry.is_of(key).then(|| entry.ids())
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            mixing: Mixing::best(),
            short: Growing::new(),
            many: Growing::new(),
            many_filled: vec![0; MANY / 64].into_boxed_slice(),
            long: Growing::new(),
            longest: HugeArray::zeroed(),
            knows_longest: false,
            n_bytes: 0,
        }
    }
}

impl Cache {
    /// Tells it how many bytes of text are to come, so that a table that is full grows at once to what they need.
    #[inline]
    pub fn prepare_for(&mut self, n_bytes: usize) {
        self.n_bytes = n_bytes.saturating_mul(PER_BYTE);
    }

    /// Makes more room where much is new. To be called while there are no questions: places change.
    #[inline]
    pub fn grow(&mut self) {
        let n_bytes = self.n_bytes;
        while self.short.is_full() {
            self.mixing.run(GrowShort(&mut self.short, n_bytes));
        }
        while self.many.is_full() {
            self.many.grow(n_bytes, |entries, place| {
                let entry = entries[place];
                let key = Packed { low: entry.low, high: entry.high & !MANY_MASK };
                let to = Self::hash_for_many(key.hash()) as usize & (entries.len() - 1);
                if entry.high != 0 && to != place {
                    entries[to] = std::mem::take(&mut entries[place]);
                }
            });
        }
        while self.long.is_full() {
            self.long.grow(n_bytes, |entries, place| {
                let to = entries[place].key.hash() as usize & (entries.len() - 1);
                if entries[place].n_ids != 0 && to != place {
                    entries[to] = std::mem::take(&mut entries[place]);
                }
            });
        }
    }

    /// Whether the largest of its tables has the size that it stays at.
    #[inline]
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.short.mask() == SHORT - 1
    }

    /// What a short pre-token has to be mixed with for its place.
    #[inline]
    #[must_use]
    pub fn mixing(&self) -> Mixing {
        self.mixing
    }

    /// What asks for entries ahead of time.
    #[inline]
    #[must_use]
    pub fn prefetcher(&self) -> Prefetcher {
        Prefetcher { start: self.short.values().as_ptr(), mask: self.short.mask() }
    }

    /// The short pre-tokens last asked for in each place.
    #[inline]
    #[must_use]
    pub fn first(&self) -> First<'_> {
        First { sets: self.short.values(), mask: self.short.mask() }
    }

    /// What is known of any other short pre-token.
    #[must_use]
    pub fn get_other(&mut self, key: Packed, mixed: u32) -> Option<Known<'_>> {
        let Set(entries) = self.short.get_mut(mixed);
        if entries[1].is_of(key) {
            entries.swap(0, 1);
            let (ids, n_ids) = entries[0].ids();
            return Some(Known::Ids(ids, n_ids));
        }
        entries.iter().find(|entry| entry.asks_for(key)).map(|entry| Known::Question(entry.ids[0]))
    }

    /// Has a question stand in the place of ids for a short pre-token of which nothing is known.
    pub fn insert_question(&mut self, key: Packed, mixed: u32, question: u32) {
        let entry = self.short.get_new(mixed).for_new();
        *entry = Short { low: key.low, high: key.high | QUESTION_MARK, ids: [question, 0, 0, 0] };
    }

    /// Remembers that the first `n_ids` of `ids` are those of a short pre-token, in the place of the question for them if it is
    /// still there.
    #[inline]
    pub fn insert(&mut self, key: Packed, mixed: u32, ids: &[u32; SHORT_IDS], n_ids: usize) {
        let set = self.short.get_mut(mixed);
        let (is_first, is_second) = (set.0[0].asks_for(key), set.0[1].asks_for(key));
        // Nobody foresees which; that it is none of them is rare.
        let entry = select_unpredictable(is_first, 0, 1);
        if is_first | is_second {
            set.0[entry] = Short::new(key, ids, n_ids);
        } else {
            *self.short.get_new(mixed).for_new() = Short::new(key, ids, n_ids);
        }
    }

    /// Remembers what others have found out, where it knows nothing itself. To be called while there are no questions.
    pub fn take_in(&mut self, found: &[Short]) {
        self.mixing.run(TakeIn { table: &mut self.short, found });
    }

    /// Forgets the question for a short pre-token's ids.
    pub fn remove_question(&mut self, key: Packed, mixed: u32) {
        let Set(entries) = self.short.get_mut(mixed);
        for entry in entries.iter_mut().filter(|entry| entry.asks_for(key)) {
            *entry = Short::default();
        }
    }

    /// Remembers the ids of a short pre-token that are more than an entry takes, if they are not too many for another table.
    pub fn insert_many(&mut self, key: Packed, hash: u64, ids: &[u32]) {
        if ids.len() <= MANY_IDS {
            let bit = Self::bit_of_many(hash);
            self.many_filled[bit >> 6] |= 1 << (bit & 63);
            let entry = self.many.get_new(Self::hash_for_many(hash));
            (entry.low, entry.high) = (key.low, key.high | (ids.len() as u64) << COUNT_SHIFT);
            entry.ids[..ids.len()].copy_from_slice(ids);
        }
    }

    #[inline]
    fn hash_for_many(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    #[inline]
    fn bit_of_many(hash: u64) -> usize {
        Self::hash_for_many(hash) as usize & (MANY - 1)
    }

    /// Whether [`Cache::get_many`] may know a pre-token with this hash.
    #[inline]
    #[must_use]
    pub fn may_be_of_many(&self, hash: u64) -> bool {
        let bit = Self::bit_of_many(hash);
        self.many_filled[bit >> 6] >> (bit & 63) & 1 != 0
    }

    /// Asks for the entry of a short pre-token of many ids ahead of time.
    #[inline]
    pub fn prefetch_many(&self, hash: u64) {
        if self.may_be_of_many(hash) {
            prefetch_at(self.many.get(Self::hash_for_many(hash)));
        }
    }

    /// The ids of a short pre-token that has more than [`SHORT_IDS`].
    #[inline]
    #[must_use]
    pub fn get_many(&self, key: Packed, hash: u64) -> Option<&[u32]> {
        if !self.may_be_of_many(hash) {
            return None;
        }
        let entry = self.many.get(Self::hash_for_many(hash));
        let n_ids = (entry.high >> COUNT_SHIFT) as usize;
        if entry.low == key.low && entry.high & !MANY_MASK == key.high { entry.ids.get(..n_ids) } else { None }
    }

    /// Asks for the entry of a longer pre-token ahead of time and gives a number that tells its place.
    #[inline]
    pub fn prefetch_long(&self, text: &[u8], range: &Range<usize>) -> u32 {
        if let Some(key) = LongKey::new(text, range) {
            let hash = key.hash();
            let entry: *const Long = self.long.get(hash);
            // Its two lines.
            prefetch_at(entry);
            prefetch_at(entry.cast::<LongKey>().wrapping_add(1));
            hash
        } else if range.len() <= LONGEST_BYTES {
            (long_hash(&text[range.clone()], 0) >> (64 - LONGEST_LOG2)) as u32
        } else {
            0
        }
    }

    /// The ids of a longer pre-token; `hash` is what [`Cache::prefetch_long`] gave for it.
    #[inline]
    #[must_use]
    pub fn get_long(&self, text: &[u8], range: &Range<usize>, hash: u32) -> Option<&[u32]> {
        if let Some(key) = LongKey::new(text, range) {
            let entry = self.long.get(hash);
            return entry.key.is(&key).then(|| &entry.ids[..entry.n_ids as usize]);
        }
        if !self.knows_longest {
            return None;
        }
        let entry = &self.longest[Self::longest_place(hash)];
        (entry.n_bytes as usize == range.len() && entry.bytes.starts_with(&text[range.clone()]))
            .then(|| &entry.ids[..entry.n_ids as usize])
    }

    /// Remembers the ids of a longer pre-token, if neither they nor its bytes are too many; `hash` is what
    /// [`Cache::prefetch_long`] gave for it.
    pub fn insert_long(&mut self, text: &[u8], range: &Range<usize>, hash: u32, ids: &[u32]) {
        if let Some(key) = LongKey::new(text, range) {
            if ids.len() <= LONG_IDS {
                let entry = self.long.get_new(hash);
                entry.key = key;
                entry.ids[..ids.len()].copy_from_slice(ids);
                entry.n_ids = ids.len() as u32;
            }
        } else if range.len() <= LONGEST_BYTES && ids.len() <= LONGEST_IDS {
            if !self.knows_longest {
                self.longest.take_memory(0..1 << LONGEST_LOG2);
                self.knows_longest = true;
            }
            let entry = &mut self.longest[Self::longest_place(hash)];
            entry.bytes[..range.len()].copy_from_slice(&text[range.clone()]);
            entry.ids[..ids.len()].copy_from_slice(ids);
            (entry.n_bytes, entry.n_ids) = (range.len() as u32, ids.len() as u32);
        }
    }

    #[inline]
    fn longest_place(hash: u32) -> usize {
        hash as usize & ((1 << LONGEST_LOG2) - 1)
    }
}

/// So many sets are asked for ahead of time.
const TAKEN_AT_ONCE: usize = 64;

/// The work of [`Cache::take_in`].
struct TakeIn<'c> {
    table: &'c mut Growing<Set, SHORT>,
    found: &'c [Short],
}

impl MixWork for TakeIn<'_> {
    #[inline(always)]
    fn run(self, mix: impl Mix) {
        let Self { table, found } = self;
        let mut mixed = [0; TAKEN_AT_ONCE];
        for found in found.chunks(TAKEN_AT_ONCE) {
            for (mixed, short) in mixed.iter_mut().zip(found) {
                *mixed = mix.mix(short.key());
                prefetch_at(table.get(*mixed));
            }
            for (&mixed, short) in mixed.iter().zip(found) {
                let key = short.key();
                let Set([first, second]) = table.get(mixed);
                if !(first.is_of(key) | second.is_of(key)) {
                    *table.get_new(mixed).for_new() = *short;
                }
            }
        }
    }
}

/// The work of growing the table of short pre-tokens.
struct GrowShort<'c>(&'c mut Growing<Set, SHORT>, usize);

impl MixWork for GrowShort<'_> {
    #[inline(always)]
    fn run(self, mix: impl Mix) {
        let Self(table, n_bytes) = self;
        table.grow(n_bytes, |sets, place| {
            let Set(entries) = std::mem::take(&mut sets[place]);
            for entry in entries {
                if entry.high != 0 {
                    // In their order: what else comes there was in the same set.
                    let to = mix.mix(entry.key()) as usize & (sets.len() - 1);
                    *sets[to].for_new() = entry;
                }
            }
        });
    }
}
