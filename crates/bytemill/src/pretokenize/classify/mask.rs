//! Bit masks over the bytes of a block: bit k stands for byte k.
//!
//! A mask covers one block (`u64`) or eight blocks at once (512 bits). The pre-tokenizer's rules are written for any [`Mask`].

use super::{BLOCK_BYTES, WIDE_BLOCKS};
use std::ops::{BitAnd, BitOr, Not};

/// An unsigned integer of `BITS` bits, with the lowest word first.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {
    /// One word for each block.
    type Words: Copy + AsRef<[u64]> + AsMut<[u64]>;

    const BITS: usize = size_of::<Self::Words>() * 8;

    fn words(self) -> Self::Words;

    /// The mask with these words. Takes a mask because only a mask proves that the CPU supports its type.
    fn with_words(self, words: Self::Words) -> Self;

    /// Shifts up by `n`, 1 to 63. The lowest `n` bits come from `before`.
    fn up(self, n: u32, before: u64) -> Self;

    /// Shifts down by one. The highest bit comes from `after`, 0 or 1.
    fn down(self, after: u64) -> Self;

    /// The sum, and whether it overflows.
    fn plus(self, other: Self) -> (Self, bool);

    #[inline(always)]
    fn is_zero(self) -> bool {
        self.words().as_ref().iter().fold(0, |any, word| any | word) == 0
    }

    #[inline(always)]
    fn last_word(self) -> u64 {
        self.words().as_ref()[Self::BITS / BLOCK_BYTES - 1]
    }

    /// No bits.
    #[inline(always)]
    fn none(self) -> Self {
        self & !self
    }

    /// The bits whose positions `holds` accepts, asked from the lowest on.
    #[inline(always)]
    fn filter(self, mut holds: impl FnMut(usize) -> bool) -> Self {
        let mut words = self.words();
        for (k, word) in words.as_mut().iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let position = left.trailing_zeros();
                left &= left - 1;
                *word ^= u64::from(!holds(k * BLOCK_BYTES + position as usize)) << position;
            }
        }
        self.with_words(words)
    }
}

impl Mask for u64 {
    type Words = [u64; 1];

    #[inline(always)]
    fn words(self) -> [u64; 1] {
        [self]
    }

    #[inline(always)]
    fn with_words(self, [word]: [u64; 1]) -> u64 {
        word
    }

    #[inline(always)]
    fn up(self, n: u32, before: u64) -> u64 {
        self << n | before
    }

    #[inline(always)]
    fn down(self, after: u64) -> u64 {
        self >> 1 | after << 63
    }

    #[inline(always)]
    fn plus(self, other: u64) -> (u64, bool) {
        self.overflowing_add(other)
    }
}

/// The masks of eight blocks without vector registers, and the reference implementation for those with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words(pub [u64; WIDE_BLOCKS]);

impl BitAnd for Words {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] & other.0[k]))
    }
}

impl BitOr for Words {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] | other.0[k]))
    }
}

impl Not for Words {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

impl Mask for Words {
    type Words = [u64; WIDE_BLOCKS];

    #[inline(always)]
    fn words(self) -> [u64; WIDE_BLOCKS] {
        self.0
    }

    #[inline(always)]
    fn with_words(self, words: [u64; WIDE_BLOCKS]) -> Self {
        Self(words)
    }

    #[inline(always)]
    fn up(self, n: u32, before: u64) -> Self {
        let mut low = before;
        Self(self.0.map(|word| {
            let shifted = word << n | low;
            low = word >> (64 - n);
            shifted
        }))
    }

    #[inline(always)]
    fn down(self, after: u64) -> Self {
        Self(std::array::from_fn(|k| self.0[k] >> 1 | self.0.get(k + 1).unwrap_or(&after) << 63))
    }

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        let mut carry = false;
        let sum = std::array::from_fn(|k| {
            let (sum, first) = self.0[k].overflowing_add(other.0[k]);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            carry = first | second;
            sum
        });
        (Self(sum), carry)
    }
}

/// The words of a sum that receive a carry, with one more bit for the carry out of the last word. `over` are the words that
/// overflow, `full` those of ones alone, through which a carry passes on.
///
/// No word is both: two words sum to at most 2⁶⁵ - 2. So adding the two masks of words adds the carries, and the bits that differ
/// from `full` are the words that receive one.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn carries(over: u32, full: u32) -> u32 {
    ((over << 1) + full) ^ full
}
