//! Ids of recently seen pre-tokens that do not fit the [`ShortCache`](super::short_cache::ShortCache): 16–248 bytes, or
//! more than 4 ids.
//!
//! The entries differ in size, so they are appended to one buffer, and a table says by hash where each of them starts. A new
//! entry takes the slot of an old one. When the buffer is full, all entries are forgotten.

use crate::bpe::limits::MAX_CACHED_BYTES;
use crate::error::Result;
use crate::sys::memory::{AnyBits, ZeroedArray};
use crate::sys::prefetch::prefetch_at;

/// Most ids of an entry.
pub const MAX_LONG_IDS: usize = 16;

/// 2¹⁶ slots, 256 KB.
const SLOTS_LOG2: u32 = 16;

/// 2²⁰ words, 4 MB. An entry has about 15 of them.
const MAX_WORDS: usize = 1 << START_BITS;
const START_BITS: u32 = 20;

/// Words allocated at first. Doubled again and again, they become [`MAX_WORDS`].
const MIN_WORDS: usize = 1 << 10;

/// Most words of an entry.
const MAX_ENTRY_WORDS: usize = 1 + MAX_LONG_IDS + 4 * MAX_CACHED_BYTES.div_ceil(16);

/// Where an entry starts and, above [`START_BITS`], some bits of the hash, which tell most other pre-tokens apart. An empty
/// slot names the first entry, whose bytes tell that it is another one.
#[derive(Clone, Copy, Default)]
struct Slot(u32);

impl Slot {
    #[inline]
    fn new(hash: u64, start: usize) -> Self {
        Self((hash as u32) << START_BITS | start as u32)
    }

    /// Where the entry starts, unless it has another hash.
    #[inline]
    fn start_for(self, hash: u64) -> Option<usize> {
        let start = self.0 as usize % MAX_WORDS;
        (self.0 == Self::new(hash, start).0).then_some(start)
    }
}

// SAFETY: an integer, for which any bits are a value.
unsafe impl AnyBits for Slot {}

pub struct LongCache {
    slots: ZeroedArray<Slot>,
    /// A bit per slot, set if the slot is used. It saves fetching slots in vain.
    used: Box<[u64]>,
    /// Of each entry a word with the number of bytes and, 16 bits up, that of ids; the ids; the bytes in [`blocks`].
    words: Vec<u32>,
}

#[inline]
fn index(hash: u64) -> usize {
    (hash >> (64 - SLOTS_LOG2)) as usize
}

/// The bytes in blocks of four words, the last one filled up with zeros.
#[inline]
fn blocks(bytes: &[u8]) -> impl Iterator<Item = [u32; 4]> {
    let (blocks, rest) = bytes.as_chunks::<16>();
    let last = (!rest.is_empty()).then(|| {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        last
    });
    let word = |block: &[u8; 16], index| u32::from_le_bytes(std::array::from_fn(|byte| block[4 * index + byte]));
    blocks.iter().copied().chain(last).map(move |block| std::array::from_fn(|index| word(&block, index)))
}

impl LongCache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new() -> Result<Self> {
        Ok(Self {
            slots: ZeroedArray::new(1 << SLOTS_LOG2)?,
            used: vec![0; (1 << SLOTS_LOG2) / 64].into(),
            words: Vec::with_capacity(MIN_WORDS),
        })
    }

    /// Bytes of memory.
    pub fn n_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of::<u32>() * self.words.capacity()
    }

    /// Prefetches the entry of a pre-token.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let entry = self.words.as_ptr().wrapping_add(self.slots[index(hash)].0 as usize % MAX_WORDS);
        prefetch_at(entry);
        // Nearly every entry ends in the next cache line.
        prefetch_at(entry.wrapping_add(16));
    }

    /// False if the cache holds no pre-token with this hash.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        self.used[index(hash) / 64] >> (index(hash) % 64) & 1 == 1
    }

    /// The ids of a pre-token, whose hash is always the same.
    #[inline]
    pub fn get(&self, pretoken: &[u8], hash: u64) -> Option<&[u32]> {
        let start = self.slots[index(hash)].start_for(hash)?;
        let (&counts, rest) = self.words.get(start..)?.split_first()?;
        let (ids, key) = rest.split_at((counts >> 16) as usize);
        let is_equal = || blocks(pretoken).zip(key.as_chunks().0).all(|(one, other)| one == *other);
        (counts as usize & 0xFFFF == pretoken.len() && is_equal()).then_some(ids)
    }

    /// Inserts the ids of a pre-token that the cache does not hold, unless it has too many bytes or ids.
    pub fn insert(&mut self, pretoken: &[u8], hash: u64, ids: &[u32]) {
        if pretoken.len() > MAX_CACHED_BYTES || ids.len() > MAX_LONG_IDS {
            return;
        }
        if self.words.len() + MAX_ENTRY_WORDS > MAX_WORDS {
            self.words.clear();
            self.slots.fill(Slot::default());
            self.used.fill(0);
        }
        if self.words.try_reserve(MAX_ENTRY_WORDS).is_ok() {
            self.slots[index(hash)] = Slot::new(hash, self.words.len());
            self.used[index(hash) / 64] |= 1 << (index(hash) % 64);
            self.words.push((ids.len() << 16 | pretoken.len()) as u32);
            self.words.extend_from_slice(ids);
            self.words.extend(blocks(pretoken).flatten());
        }
    }
}

#[cfg(test)]
#[path = "tests/long_cache.rs"]
mod tests;
