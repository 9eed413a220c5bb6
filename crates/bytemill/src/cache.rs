//! Ids of pre-tokens seen lately: a table of fixed size, one place for each key, the newest wins.
//!
//! Most pre-tokens of a text were seen before, and those seen before are mostly the frequent ones; a table that stays
//! in the processor's cache answers 9 of 10 look-ups, where one that grows with the text spends its time waiting
//! for memory.

use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::prefetch::prefetch;

/// Ids that an entry has room for.
pub const INLINE_IDS: usize = 4;

/// 2¹⁶ entries of 32 bytes. Each new English pre-token finds its place taken or empty 1 time in 20, with 2¹⁴ entries
/// 1 in 11, with 2¹⁸ 1 in 40, but those no longer stay in 2 MB of cache.
const ENTRIES_LOG2: u32 = 16;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, 4 bits up, the number of ids (1 to 4).
const COUNT_SHIFT: u32 = 60;
const COUNT_MASK: u64 = 0xF << COUNT_SHIFT;

#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Entry {
    low: u64,
    high: u64,
    ids: [u32; INLINE_IDS],
}

/// Pre-tokens of up to 15 bytes that make up to 4 ids.
pub struct Cache {
    entries: Box<[Entry]>,
}

impl Cache {
    /// A table that knows those tokens of the vocabulary that are short enough; the lower id wins a place.
    #[must_use]
    pub fn seeded<'v>(tokens: impl Iterator<Item = (&'v [u8], u32)>) -> Self {
        let mut cache = Self { entries: vec![Entry::default(); 1 << ENTRIES_LOG2].into_boxed_slice() };
        for (token, id) in tokens {
            if token.len() <= PACKED_BYTES {
                let key = pack(token, 0, token.len());
                let entry = &cache.entries[Self::place(key.hash())];
                if entry.high == 0 || entry.ids[0] > id {
                    cache.insert(key, key.hash(), &[id]);
                }
            }
        }
        cache
    }

    #[inline]
    fn place(hash: u64) -> usize {
        (hash >> (64 - ENTRIES_LOG2)) as usize
    }

    /// Asks for the entry of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.entries, Self::place(hash));
    }

    /// The ids of a pre-token and how many of them count.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Packed, hash: u64) -> Option<(&[u32; INLINE_IDS], usize)> {
        let entry = &self.entries[Self::place(hash)];
        if entry.low == key.low && entry.high & !COUNT_MASK == key.high {
            Some((&entry.ids, (entry.high >> COUNT_SHIFT) as usize))
        } else {
            None
        }
    }

    /// Remembers the ids of a pre-token, 1 to 4 of them.
    #[inline]
    pub fn insert(&mut self, key: Packed, hash: u64, ids: &[u32]) {
        let entry = &mut self.entries[Self::place(hash)];
        entry.low = key.low;
        entry.high = key.high | (ids.len() as u64) << COUNT_SHIFT;
        entry.ids[..ids.len()].copy_from_slice(ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inserted_is_found_until_its_place_is_taken() {
        let mut cache = Cache::seeded([(&b"ab"[..], 7)].into_iter());
        let key = |text: &[u8]| pack(text, 0, text.len());
        let ab = key(b"ab");
        assert_eq!(cache.get(ab, ab.hash()), Some((&[7, 0, 0, 0], 1)));
        let long = key(b"fifteen bytes..");
        assert_eq!(cache.get(long, long.hash()), None);
        cache.insert(long, long.hash(), &[1, 2, 3, 4]);
        assert_eq!(cache.get(long, long.hash()), Some((&[1, 2, 3, 4], 4)));
        let fifteen_other = key(b"fifteen bytes.,");
        assert_eq!(cache.get(fifteen_other, long.hash()), None);
    }

    #[test]
    fn an_empty_entry_answers_no_key() {
        let cache = Cache::seeded(std::iter::empty());
        let zero = pack(b"\0", 0, 1);
        assert_eq!(cache.get(zero, zero.hash()), None);
    }

    #[test]
    fn of_two_tokens_for_one_place_the_lower_id_stays() {
        let tokens: Vec<[u8; 3]> = (0..200_000u32).map(|n| [(n >> 16) as u8, (n >> 8) as u8, n as u8]).collect();
        let cache = Cache::seeded(tokens.iter().zip(0..200_000).map(|(token, id)| (&token[..], id)));
        let backwards = Cache::seeded(tokens.iter().zip(0..200_000).rev().map(|(token, id)| (&token[..], id)));
        for token in &tokens {
            let key = pack(token, 0, 3);
            assert_eq!(cache.get(key, key.hash()), backwards.get(key, key.hash()));
        }
    }
}
