//! The characters of a block by class, as bit masks.

use super::classify::{Ascii, Wide};

/// Bits of first bytes only.
#[derive(Clone, Copy)]
pub struct Chars {
    pub letter: u64,
    pub upper: u64,
    /// Letters without case.
    pub uncased: u64,
    pub mark: u64,
    pub digit: u64,
    pub blank: u64,
    /// White space but line breaks, the blank included.
    pub space: u64,
    pub newline: u64,
    /// Neither letter, mark, number nor white space.
    pub other: u64,
    pub apostrophe: u64,
    pub slash: u64,
    /// White space and numbers outside ASCII, which are in `space` and `digit` too.
    pub wide_space: u64,
    pub wide_digit: u64,
    /// Bytes that are not the first of a character.
    pub continuation: u64,
    /// First bytes.
    pub first: u64,
    /// The last first byte's place.
    pub last: u32,
}

impl Chars {
    /// A block without any byte outside ASCII; `valid` are the bytes inside the text.
    ///
    /// What is constant here makes most of [`Self::next`] and of the rules vanish in the copy compiled for such blocks.
    #[inline(always)]
    pub fn of_ascii(ascii: &Ascii, valid: u64) -> Self {
        let space = ascii.blank | ascii.tab;
        Self {
            letter: ascii.letter,
            upper: ascii.upper,
            uncased: 0,
            mark: 0,
            digit: ascii.digit,
            blank: ascii.blank,
            space,
            newline: ascii.newline,
            other: valid & !(ascii.letter | ascii.digit | space | ascii.newline),
            apostrophe: ascii.apostrophe,
            slash: ascii.slash,
            wide_space: 0,
            wide_digit: 0,
            continuation: 0,
            first: valid,
            // Where the block is not full the text ends, and nobody asks what comes before the next block.
            last: 63,
        }
    }

    /// A block with characters outside ASCII.
    #[inline(always)]
    pub fn of_all(ascii: &Ascii, wide: &Wide, valid: u64) -> Self {
        let first = valid & !ascii.continuation;
        let letter = ascii.letter | wide.letter;
        let digit = ascii.digit | wide.number;
        let space = ascii.blank | ascii.tab | wide.space;
        Self {
            letter,
            upper: ascii.upper | wide.upper,
            uncased: wide.uncased,
            mark: wide.mark,
            digit,
            space,
            other: first & !(letter | digit | space | ascii.newline | wide.mark),
            wide_space: wide.space,
            wide_digit: wide.number,
            continuation: ascii.continuation,
            first,
            last: 63 - (first | 1).leading_zeros(),
            ..Self::of_ascii(ascii, valid)
        }
    }

    /// The characters that follow those of `mask`; `before` is 1 where the one before the block is among them.
    ///
    /// The bit after a first byte, if it is a continuation byte, is carried to the end of the continuation bytes by the
    /// addition; no two such carries meet.
    #[inline(always)]
    pub fn next(&self, mask: u64, before: u64) -> u64 {
        (mask << 1 | before).wrapping_add(self.continuation) & !self.continuation
    }

    /// As [`Self::next`] for characters of one byte.
    #[inline(always)]
    pub fn next_of_ascii(mask: u64, before: u64) -> u64 {
        mask << 1 | before
    }

    /// 1 where the last character of the block is of `mask`.
    #[inline(always)]
    pub fn carry(&self, mask: u64) -> u64 {
        mask >> self.last & 1
    }

    /// All bytes of the characters of `mask`; `before` is 1 where the one before the block is among them.
    #[inline(always)]
    pub fn whole(&self, mask: u64, before: u64) -> u64 {
        // The addition empties the run of continuation bytes that follows a character of the mask.
        let behind = (mask << 1 | before) & self.continuation;
        mask | self.continuation & !self.continuation.wrapping_add(behind)
    }
}
