//! Ids of pre-tokens seen lately: tables of fixed size, where what is new takes the place of what is old.
//!
//! Most pre-tokens of a text were seen before, and those mostly lately. The frequent ones keep their entries in the
//! processor's cache whatever the size of the table; the others are asked for ahead of time.

use crate::hash::{Packed, fold};
use crate::huge::{HugeBox, Plain};
use crate::prefetch::prefetch;

/// Most ids of an entry for short pre-tokens.
pub const SHORT_IDS: usize = 4;

/// Most bytes of a pre-token that the table of longer ones takes.
pub const LONG_BYTES: usize = 63;

/// Most ids of an entry for longer pre-tokens.
pub const LONG_IDS: usize = 15;

/// 2¹⁸ sets of two entries of 32 bytes, 16 MB, of which memory is taken as they fill.
const SHORT_LOG2: u32 = 18;

/// 2¹⁴ entries of 128 bytes, 2 MB.
const LONG_LOG2: u32 = 14;

/// The highest byte of `high` holds the number of bytes (1 to 15) and, 4 bits up, the number of ids (1 to 4).
const COUNT_SHIFT: u32 = 60;
const COUNT_MASK: u64 = 0xF << COUNT_SHIFT;

#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Short {
    low: u64,
    high: u64,
    ids: [u32; SHORT_IDS],
}

/// Two entries in one cache line, the newer one first.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set([Short; 2]);

/// A pre-token of up to 63 bytes: its bytes and their number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct LongKey {
    words: [u64; 8],
}

impl LongKey {
    /// The key of up to [`LONG_BYTES`] bytes; `None` for more.
    #[inline]
    #[must_use]
    pub fn new(pretoken: &[u8]) -> Option<Self> {
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
    #[must_use]
    pub fn place(&self) -> usize {
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

/// The 1 to 15 ids of a longer pre-token, in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct LongIds {
    ids: [u32; LONG_IDS],
    n_ids: u32,
}

/// Pre-tokens of up to 15 bytes that make up to 4 ids, and those of up to 63 bytes that make up to 15.
pub struct Cache {
    short: HugeBox<Set>,
    long_keys: Box<[LongKey]>,
    long_ids: Box<[LongIds]>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            short: HugeBox::zeroed(1 << SHORT_LOG2),
            long_keys: vec![LongKey::default(); 1 << LONG_LOG2].into_boxed_slice(),
            long_ids: vec![LongIds::default(); 1 << LONG_LOG2].into_boxed_slice(),
        }
    }
}

impl Cache {
    #[inline]
    fn place(hash: u64) -> usize {
        (hash >> (64 - SHORT_LOG2)) as usize
    }

    /// Asks for the entries of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.short, Self::place(hash));
    }

    /// The ids of a short pre-token and how many of them count.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Packed, hash: u64) -> Option<(&[u32; SHORT_IDS], usize)> {
        let Set(entries) = &self.short[Self::place(hash)];
        // Which of the two answers cannot be foreseen: it is computed, not branched on.
        let second = (entries[1].low ^ key.low) | (entries[1].high & !COUNT_MASK ^ key.high);
        let entry = &entries[usize::from(second == 0)];
        if entry.low == key.low && entry.high & !COUNT_MASK == key.high {
            Some((&entry.ids, (entry.high >> COUNT_SHIFT) as usize))
        } else {
            None
        }
    }

    /// Remembers the 1 to 4 ids of a short pre-token.
    #[inline]
    pub fn insert(&mut self, key: Packed, hash: u64, ids: &[u32]) {
        let Set(entries) = &mut self.short[Self::place(hash)];
        entries[1] = entries[0];
        let entry = &mut entries[0];
        entry.low = key.low;
        entry.high = key.high | (ids.len() as u64) << COUNT_SHIFT;
        entry.ids[..ids.len()].copy_from_slice(ids);
    }

    /// Asks for the entry at the place of a longer pre-token ahead of time.
    #[inline]
    pub fn prefetch_long(&self, place: usize) {
        prefetch(&self.long_keys, place);
        prefetch(&self.long_ids, place);
    }

    /// The ids of a longer pre-token; `place` is that of its key.
    #[inline]
    #[must_use]
    pub fn get_long(&self, key: &LongKey, place: usize) -> Option<&[u32]> {
        if self.long_keys[place] != *key {
            return None;
        }
        let entry = &self.long_ids[place];
        Some(&entry.ids[..entry.n_ids as usize % (LONG_IDS + 1)])
    }

    /// Remembers the 1 to 15 ids of a longer pre-token; `place` is that of its key.
    #[inline]
    pub fn insert_long(&mut self, key: &LongKey, place: usize, ids: &[u32]) {
        self.long_keys[place] = *key;
        let entry = &mut self.long_ids[place];
        entry.ids[..ids.len()].copy_from_slice(ids);
        entry.n_ids = ids.len() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::pack;

    fn key(text: &[u8]) -> Packed {
        pack(text, 0, text.len())
    }

    #[test]
    fn what_is_inserted_is_found() {
        let mut cache = Cache::default();
        let (short, full) = (key(b"ab"), key(b"fifteen bytes.."));
        assert_eq!(cache.get(short, short.hash()), None);
        cache.insert(short, short.hash(), &[7]);
        cache.insert(full, full.hash(), &[1, 2, 3, 4]);
        assert_eq!(cache.get(short, short.hash()), Some((&[7, 0, 0, 0], 1)));
        assert_eq!(cache.get(full, full.hash()), Some((&[1, 2, 3, 4], 4)));
        let other = key(b"fifteen bytes.,");
        assert_eq!(cache.get(other, full.hash()), None);
    }

    #[test]
    fn a_set_holds_the_two_newest_keys() {
        let mut cache = Cache::default();
        let keys = [key(b"one"), key(b"two"), key(b"three")];
        let hash = keys[0].hash();
        for (id, &key) in (1..).zip(&keys) {
            cache.insert(key, hash, &[id]);
        }
        let found = keys.map(|key| cache.get(key, hash).map(|(ids, n_ids)| ids[..n_ids].to_vec()));
        assert_eq!(found, [None, Some(vec![2]), Some(vec![3])]);
    }

    #[test]
    fn an_empty_entry_answers_no_key() {
        let cache = Cache::default();
        assert_eq!(cache.get(Packed::NO_KEY, Packed::NO_KEY.hash()), None);
        let zero = key(b"\0");
        assert_eq!(cache.get(zero, zero.hash()), None);
        let zero = LongKey::new(b"\0").unwrap();
        assert!(cache.get_long(&zero, zero.place()).is_none());
    }

    #[test]
    fn longer_pretokens_are_told_apart_by_every_byte_and_their_number() {
        let mut cache = Cache::default();
        let text: Vec<u8> = (1..=LONG_BYTES as u8).collect();
        let key = LongKey::new(&text).unwrap();
        let place = key.place();
        cache.insert_long(&key, place, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cache.get_long(&key, place), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        for at in 0..LONG_BYTES {
            let mut other = text.clone();
            other[at] ^= 1;
            for other in [&other[..], &text[..at]] {
                assert_eq!(cache.get_long(&LongKey::new(other).unwrap(), place), None, "{other:?}");
            }
        }
        assert!(LongKey::new(&[0; LONG_BYTES + 1]).is_none());
    }
}
