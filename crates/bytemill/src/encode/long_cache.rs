//! Ids of recently seen pre-tokens that do not fit the [`ShortCache`](super::short_cache::ShortCache): 16–248 bytes, or
//! more than 4 ids.
//!
//! The entries differ in size, so they are appended to one buffer, and a table says by hash where each of them starts. A new
//! entry takes the slot of an old one. When the buffer is full, all entries are forgotten.

use crate::bpe::limits::MAX_CACHED_BYTES;
use crate::error::Result;
use crate::sys::huge_pages::{AnyBits, ZeroedArray};
use crate::sys::prefetch::prefetch_at;

/// Most ids of an entry.
pub const MAX_LONG_IDS: usize = 16;

/// 2¹⁶ slots, 512 KB.
const SLOTS_LOG2: u32 = 16;

/// 2²⁰ words, 4 MB. An entry has 10 to 15 of them on average.
const MAX_WORDS: usize = 1 << 20;

/// Words allocated at first. Doubled again and again, they become [`MAX_WORDS`].
const MIN_WORDS: usize = 1 << 10;

/// Most words of an entry.
const MAX_ENTRY_WORDS: usize = 1 + MAX_LONG_IDS + MAX_CACHED_BYTES.div_ceil(4);

/// Where an entry starts. An empty slot names the first entry, whose bytes tell that it is another one.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Slot {
    /// Half of the hash, which tells nearly all other pre-tokens apart.
    tag: u32,
    start: u32,
}

// SAFETY: integers, for which any bits are a value.
unsafe impl AnyBits for Slot {}

pub struct LongCache {
    slots: ZeroedArray<Slot>,
    /// Of each entry a word with the number of bytes and, 16 bits up, that of ids; the ids; the bytes, filled up with zeros.
    words: Vec<u32>,
}

#[inline]
fn index(hash: u64) -> usize {
    (hash >> (64 - SLOTS_LOG2)) as usize
}

#[inline]
fn tag(hash: u64) -> u32 {
    hash as u32
}

/// The bytes as words, the last one filled up with zeros.
#[inline]
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    let last = rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    words.iter().map(|word| u32::from_le_bytes(*word)).chain((!rest.is_empty()).then_some(last))
}

impl LongCache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new() -> Result<Self> {
        Ok(Self { slots: ZeroedArray::new(1 << SLOTS_LOG2)?, words: Vec::with_capacity(MIN_WORDS) })
    }

    /// Bytes of memory.
    pub fn n_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of::<u32>() * self.words.capacity()
    }

    /// Prefetches the entry of a pre-token.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let entry = self.words.as_ptr().wrapping_add(self.slots[index(hash)].start as usize);
        prefetch_at(entry);
        // Nearly every entry ends in the next cache line.
        prefetch_at(entry.wrapping_add(16));
    }

    /// False if the cache holds no pre-token with this hash.
    #[inline]
    #[must_use]
    pub fn may_hold(&self, hash: u64) -> bool {
        self.slots[index(hash)].tag == tag(hash)
    }

    /// The ids of a pre-token, whose hash is always the same.
    #[inline]
    #[must_use]
    pub fn get(&self, pretoken: &[u8], hash: u64) -> Option<&[u32]> {
        if !self.may_hold(hash) {
            return None;
        }
        let (&counts, rest) = self.words.get(self.slots[index(hash)].start as usize..)?.split_first()?;
        let (ids, key) = rest.split_at((counts >> 16) as usize);
        let is_equal = || words(pretoken).zip(key).fold(0, |different, (one, other)| different | (one ^ other)) == 0;
        (counts as usize & 0xFFFF == pretoken.len() && is_equal()).then_some(ids)
    }

    /// Inserts the ids of a pre-token, unless the cache holds it or it has too many bytes or ids.
    pub fn insert(&mut self, pretoken: &[u8], hash: u64, ids: &[u32]) {
        if pretoken.len() > MAX_CACHED_BYTES || ids.len() > MAX_LONG_IDS || self.get(pretoken, hash).is_some() {
            return;
        }
        if self.words.len() + MAX_ENTRY_WORDS > MAX_WORDS {
            self.words.clear();
            self.slots.fill(Slot::default());
        }
        if self.words.try_reserve(MAX_ENTRY_WORDS).is_ok() {
            self.slots[index(hash)] = Slot { tag: tag(hash), start: self.words.len() as u32 };
            self.words.push((ids.len() << 16 | pretoken.len()) as u32);
            self.words.extend_from_slice(ids);
            self.words.extend(words(pretoken));
        }
    }
}

#[cfg(test)]
#[path = "tests/long_cache.rs"]
mod tests;
