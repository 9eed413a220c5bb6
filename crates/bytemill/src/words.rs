//! Short tokens by their bytes: the pre-tokens that are one token.
//!
//! Four of five pre-tokens that the cache does not know are none. A bit for each of the hashes that tokens have, 128 KB for
//! cl100k in place of 6 MB, answers for nearly all of these.

use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::prefetch::prefetch;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    low: u64,
    /// 0 in an empty slot; a key has its number of bytes, at least 1, in the highest byte.
    high: u64,
    id: u32,
}

/// So many tokens are put into a table at a time, whose slots have been asked for together: one after the other, each would
/// wait for memory.
const BLOCK: usize = 32;

/// Tokens of up to 15 bytes to which their own bytes encode, with linear probing, at most half full.
#[derive(Clone, Debug)]
pub struct Words {
    slots: Box<[Slot]>,
    shift: u32,
    /// Bits by the low end of the hash, set for every token; a tenth of them is.
    filter: Box<[u64]>,
}

impl Words {
    /// A table of `tokens`, of which those longer than 15 bytes are left out.
    #[must_use]
    pub fn new<'t>(tokens: impl ExactSizeIterator<Item = (&'t [u8], u32)>) -> Self {
        let n_slots = (2 * tokens.len()).next_power_of_two().max(2);
        let mut words = Self {
            slots: vec![Slot::default(); n_slots].into_boxed_slice(),
            shift: 64 - n_slots.trailing_zeros(),
            filter: vec![0; (n_slots / 16).max(1)].into_boxed_slice(),
        };
        let mut tokens = tokens.filter(|(token, _)| token.len() <= PACKED_BYTES);
        let mut block = Vec::with_capacity(BLOCK);
        loop {
            block.extend(tokens.by_ref().take(BLOCK).map(|(token, id)| {
                let key = pack(token, 0, token.len());
                let hash = key.hash();
                prefetch(&words.slots, words.place(hash));
                (key, hash, id)
            }));
            if block.is_empty() {
                break;
            }
            for (key, hash, id) in block.drain(..) {
                let bit = words.bit(hash);
                words.filter[bit >> 6] |= 1 << (bit & 63);
                let mut at = words.place(hash);
                while words.slots[at].high != 0 {
                    at = (at + 1) & (n_slots - 1);
                }
                words.slots[at] = Slot { low: key.low, high: key.high, id };
            }
        }
        words
    }

    /// Takes a token out of the table, if it is in it.
    pub fn forget(&mut self, token: &[u8]) {
        if token.len() > PACKED_BYTES {
            return;
        }
        let key = pack(token, 0, token.len());
        let mut at = self.place(key.hash());
        while self.slots[at].high != 0 {
            let slot = &mut self.slots[at];
            if slot.low == key.low && slot.high == key.high {
                // The slot stays taken: those behind it are looked for past it.
                (slot.low, slot.high) = (Packed::NO_KEY.low, Packed::NO_KEY.high);
                return;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn bit(&self, hash: u64) -> usize {
        hash as usize & (64 * self.filter.len() - 1)
    }

    /// False where no token has this hash.
    #[inline]
    #[must_use]
    pub fn may_hold(&self, hash: u64) -> bool {
        let bit = self.bit(hash);
        self.filter[bit >> 6] >> (bit & 63) & 1 != 0
    }

    /// Asks for the slot of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if self.may_hold(hash) {
            prefetch(&self.slots, self.place(hash));
        }
    }

    /// The id of the token with these bytes.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Packed, hash: u64) -> Option<u32> {
        if !self.may_hold(hash) {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.place(hash);
        loop {
            let slot = &self.slots[at & mask];
            if slot.low == key.low && slot.high == key.high {
                return Some(slot.id);
            }
            if slot.high == 0 {
                return None;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_and_nothing_else() {
        let numbers: Vec<String> = (0..5_000u32).map(|n| n.to_string()).collect();
        let tokens: Vec<(&[u8], u32)> = numbers.iter().map(|text| text.as_bytes()).zip(0..5_000).collect();
        let words = Words::new(tokens.iter().copied());
        for n in 0..10_000u32 {
            let text = n.to_string();
            let key = pack(text.as_bytes(), 0, text.len());
            assert_eq!(words.get(key, key.hash()), (n < 5_000).then_some(n));
        }
    }

    #[test]
    fn a_token_that_is_forgotten_is_the_only_one_that_is_missing() {
        let numbers: Vec<String> = (0..5_000u32).map(|n| n.to_string()).collect();
        let mut words =
            Words::new(numbers.iter().map(|text| text.as_bytes()).zip(0..5_000).collect::<Vec<_>>().into_iter());
        for n in (0..6_000u32).step_by(3) {
            words.forget(n.to_string().as_bytes());
        }
        words.forget(&[b'1'; 16]);
        words.forget(b"");
        for n in 0..10_000u32 {
            let text = n.to_string();
            let key = pack(text.as_bytes(), 0, text.len());
            assert_eq!(words.get(key, key.hash()), (n < 5_000 && n % 3 != 0).then_some(n));
        }
    }

    #[test]
    fn long_tokens_are_left_out() {
        let sixteen = Words::new([(&[b'a'; 16][..], 0)].into_iter());
        let key = pack(b"a", 0, 1);
        assert_eq!(sixteen.get(key, key.hash()), None);
    }
}
