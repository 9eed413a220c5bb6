//! Eight blocks at once: masks of 512 bits, of which bit k speaks of byte k.

use super::{Ascii, Classify, LANES};
use std::ops::{BitAnd, BitOr, Not};

/// Blocks that are looked at together.
pub const BLOCKS: usize = 8;

/// The bytes of eight blocks.
pub const EIGHT: usize = BLOCKS * LANES;

/// Those bytes and what the last character among them may have behind them.
pub type WideWindow = [u8; EIGHT + 3];

/// A number of 512 bits, the lowest 64 of them first.
///
/// The default implementations are the slow twins, and what processors without wide registers do.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {
    fn words(self) -> [u64; BLOCKS];

    /// All bits moved up by `N`, 1 to 63; into the lowest come those of `before`, `N` bits.
    fn up<const N: u32>(self, before: u64) -> Self;

    /// All bits moved down by one; into the highest comes `behind`, 0 or 1.
    fn down(self, behind: u64) -> Self;

    /// The sum, and whether it has one bit more.
    fn plus(self, other: Self) -> (Self, bool);

    fn is_zero(self) -> bool;

    /// The highest word.
    fn last_word(self) -> u64;

    /// The highest bit.
    #[inline(always)]
    fn last_bit(self) -> u64 {
        self.last_word() >> 63
    }
}

/// The masks of eight blocks in plain registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words(pub [u64; BLOCKS]);

impl Words {
    #[inline(always)]
    fn zip(self, other: Self, word: impl Fn(u64, u64) -> u64) -> Self {
        let mut all = self.0;
        for (one, other) in all.iter_mut().zip(other.0) {
            *one = word(*one, other);
        }
        Self(all)
    }
}

impl BitAnd for Words {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        self.zip(other, |one, other| one & other)
    }
}

impl BitOr for Words {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.zip(other, |one, other| one | other)
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
    #[inline(always)]
    fn words(self) -> [u64; BLOCKS] {
        self.0
    }

    #[inline(always)]
    fn up<const N: u32>(self, before: u64) -> Self {
        let mut low = before;
        Self(self.0.map(|word| {
            let moved = word << N | low;
            low = word >> (64 - N);
            moved
        }))
    }

    #[inline(always)]
    fn down(self, behind: u64) -> Self {
        let mut all = self.0;
        for k in 0..BLOCKS {
            all[k] = all[k] >> 1 | all.get(k + 1).copied().unwrap_or(behind) << 63;
        }
        Self(all)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        let mut all = self.0;
        let mut carry = false;
        for (one, other) in all.iter_mut().zip(other.0) {
            let (sum, first) = one.overflowing_add(other);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*one, carry) = (sum, first | second);
        }
        (Self(all), carry)
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        self.0.iter().fold(0, |any, word| any | word) == 0
    }

    #[inline(always)]
    fn last_word(self) -> u64 {
        self.0[BLOCKS - 1]
    }
}

/// In which words of a sum there is one to be added: `over` are the words that have overflowed, `full` those of ones
/// alone, through which the carry of the word below goes on. The bit behind is that of the whole.
///
/// A word that has overflowed is not full: two words give 2⁶⁵ - 2 at most. So the addition of the bits is that of the
/// carries, and the bits of `full` that it changes, like those that it sets elsewhere, are the words that get a carry.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn carries(over: u32, full: u32) -> u32 {
    ((over << 1) + full) ^ full
}

/// Whether all bytes are ASCII.
#[inline(always)]
pub fn are_ascii(bytes: &WideWindow) -> bool {
    bytes[..EIGHT].iter().fold(0, |any, byte| any | byte) < 0x80
}

/// The classes of eight blocks, one block after the other.
#[inline(always)]
pub fn ascii_by_blocks<C: Classify>(classify: C, bytes: &WideWindow) -> Ascii<C::Mask> {
    let mut all = Ascii::<[u64; BLOCKS]>::default();
    for k in 0..BLOCKS {
        // The last block has its three bytes behind it too.
        let Some(window) = bytes[LANES * k..].first_chunk() else { break };
        let one = classify.ascii(window);
        all.letter[k] = one.letter;
        all.upper[k] = one.upper;
        all.digit[k] = one.digit;
        all.blank[k] = one.blank;
        all.tab[k] = one.tab;
        all.newline[k] = one.newline;
        all.apostrophe[k] = one.apostrophe;
        all.slash[k] = one.slash;
        all.high[k] = one.high;
        all.continuation[k] = one.continuation;
    }
    let mask = |words| classify.mask(words);
    Ascii {
        letter: mask(all.letter),
        upper: mask(all.upper),
        digit: mask(all.digit),
        blank: mask(all.blank),
        tab: mask(all.tab),
        newline: mask(all.newline),
        apostrophe: mask(all.apostrophe),
        slash: mask(all.slash),
        high: mask(all.high),
        continuation: mask(all.continuation),
    }
}
