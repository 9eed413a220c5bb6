//! The characters of a block by class, as masks of their first bytes, and how characters follow each other, also from block to
//! block.

use super::classify::{Ascii, BLOCK_BYTES, Mask, NonAscii};
#[cfg(doc)]
use super::rules::Sets;
use std::marker::PhantomData;

/// Masks of first bytes by class.
#[derive(Clone, Copy)]
pub struct Chars<M> {
    pub letter: M,
    pub upper: M,
    /// Letters without case.
    pub uncased: M,
    pub mark: M,
    pub digit: M,
    pub blank: M,
    /// White space except line breaks, the blank included.
    pub space: M,
    pub newline: M,
    /// Neither letter, mark, number nor white space.
    pub other: M,
    pub apostrophe: M,
    pub slash: M,
    /// All first bytes.
    pub first: M,
    pub ascii: M,
    /// Characters of [`Sets::strays`], which are not among the others, and of [`Sets::isolated`].
    pub stray: M,
    pub isolated: M,
}

impl<M: Mask> Chars<M> {
    /// Characters of blocks that are all ASCII. `valid` are the bytes inside the text.
    #[inline(always)]
    pub fn of_ascii(ascii: &Ascii<M>, valid: M) -> Self {
        let none = valid.none();
        let space = ascii.blank | ascii.tab;
        Self {
            letter: ascii.letter,
            upper: ascii.upper,
            uncased: none,
            mark: none,
            digit: ascii.digit,
            blank: ascii.blank,
            space,
            newline: ascii.newline,
            other: valid & !(ascii.letter | ascii.digit | space | ascii.newline),
            apostrophe: ascii.apostrophe,
            slash: ascii.slash,
            first: valid,
            ascii: valid,
            stray: none,
            isolated: none,
        }
    }
}

impl Chars<u64> {
    /// Characters of a block that is not all ASCII.
    #[inline(always)]
    pub fn of_utf8(ascii: &Ascii, non_ascii: &NonAscii, valid: u64) -> Self {
        let first = valid & !ascii.continuation;
        let letter = ascii.letter | non_ascii.letter;
        let digit = ascii.digit | non_ascii.number;
        let space = ascii.blank | ascii.tab | non_ascii.space;
        Self {
            letter,
            upper: ascii.upper | non_ascii.upper,
            uncased: non_ascii.uncased,
            mark: non_ascii.mark,
            digit,
            space,
            other: first & !(letter | digit | space | ascii.newline | non_ascii.mark),
            first,
            ascii: first & !ascii.high,
            ..Self::of_ascii(ascii, valid)
        }
    }
}

/// How the characters of a block lie in its bytes. The default methods are those of ASCII, where every character is one byte.
pub trait Layout: Copy {
    type Mask: Mask;

    const IS_ASCII: bool = true;

    /// The characters after those of `mask`. `before` is 1 if the last character before the block is one of them.
    #[inline(always)]
    fn next(self, mask: Self::Mask, before: u64) -> Self::Mask {
        mask.up(1, before)
    }

    /// The white space before the characters of `mask`. `after` is 1 if the first character after the block is one of them.
    #[inline(always)]
    fn space_before(self, mask: Self::Mask, after: u64) -> Self::Mask {
        mask.down(after)
    }

    /// All bytes of the characters of `mask`. `before` is 1 if the last character before the block is one of them.
    #[inline(always)]
    fn bytes(self, mask: Self::Mask, _before: u64) -> Self::Mask {
        mask
    }

    /// Position of the last first byte in the last word. If the block is not full, the text ends in it, and no block follows.
    #[inline(always)]
    fn last(self) -> usize {
        BLOCK_BYTES - 1
    }

    /// 1 if the last character of the block is in `mask`.
    #[inline(always)]
    fn carry(self, mask: Self::Mask) -> u64 {
        mask.last_word() >> self.last() & 1
    }

    /// Whether the block has white space outside ASCII.
    #[inline(always)]
    fn has_wide_space(self) -> bool {
        false
    }

    /// Whether the block has digits outside ASCII. `digit_before` is 1 if the character before the block is a digit.
    #[inline(always)]
    fn has_wide_digit(self, _digit_before: u64) -> bool {
        false
    }
}

/// Blocks that are all ASCII.
#[derive(Clone, Copy)]
pub struct OneByte<M>(pub PhantomData<M>);

impl<M: Mask> Layout for OneByte<M> {
    type Mask = M;
}

/// A block with characters outside ASCII.
#[derive(Clone, Copy)]
pub struct Utf8 {
    /// Bytes that are not the first of a character.
    continuation: u64,
    wide_space: u64,
    wide_digit: u64,
    last: u32,
}

impl Utf8 {
    #[inline(always)]
    pub fn new(ascii: &Ascii, non_ascii: &NonAscii, valid: u64) -> Self {
        Self {
            continuation: ascii.continuation,
            wide_space: non_ascii.space,
            wide_digit: non_ascii.number,
            last: BLOCK_BYTES as u32 - 1 - (valid & !ascii.continuation | 1).leading_zeros(),
        }
    }
}

impl Layout for Utf8 {
    type Mask = u64;
    const IS_ASCII: bool = false;

    /// The addition carries a bit that falls on the first of a run of continuation bytes to the end of that run. A first byte
    /// separates the runs, so the carries do not meet.
    #[inline(always)]
    fn next(self, mask: u64, before: u64) -> u64 {
        (mask << 1 | before).wrapping_add(self.continuation) & !self.continuation
    }

    /// White space outside ASCII has two or three bytes.
    #[inline(always)]
    fn space_before(self, mask: u64, after: u64) -> u64 {
        let three_bytes = self.wide_space & self.continuation >> 2;
        mask >> 1 & !self.wide_space | mask >> 2 & self.wide_space | mask >> 3 & three_bytes | after << self.last
    }

    /// The addition clears the run of continuation bytes after a character of the mask.
    #[inline(always)]
    fn bytes(self, mask: u64, before: u64) -> u64 {
        let second_bytes = (mask << 1 | before) & self.continuation;
        mask | self.continuation & !self.continuation.wrapping_add(second_bytes)
    }

    #[inline(always)]
    fn last(self) -> usize {
        self.last as usize
    }

    #[inline(always)]
    fn has_wide_space(self) -> bool {
        self.wide_space != 0
    }

    #[inline(always)]
    fn has_wide_digit(self, digit_before: u64) -> bool {
        self.wide_digit | digit_before & self.continuation != 0
    }
}

// What the rules need to know about the characters before a block.

/// Flags are 1 if the last character before the block is of the class, else 0.
#[derive(Clone, Copy, Default)]
pub struct Carry {
    pub letter: u64,
    /// The last letter with case is lower case, and only letters without case and marks follow it.
    pub lower: u64,
    /// A letter without case or a mark.
    pub uncased: u64,
    pub blank: u64,
    pub space: u64,
    /// A line break that others have not absorbed.
    pub newline: u64,
    /// A line break or slash that others have absorbed.
    pub absorbed: u64,
    pub other: u64,
    /// It is the first character of a run of others, a pre-token starts there, and a word may follow in it.
    pub lone_other: u64,
    /// One of the ASCII letters after such a character.
    pub led: u64,
    pub stray: u64,
    pub isolated: u64,
    pub digit: u64,
    /// Digits in the group that reaches up to the block.
    pub n_digits: u32,
    /// Starts that a contraction in the block before removes from this one, and those that it adds.
    pub no_start: u64,
    pub start: u64,
    /// End of the last contraction, 0 before the first.
    pub contraction_end: usize,
}
