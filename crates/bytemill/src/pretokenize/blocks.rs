//! The named patterns on 64 bytes at once: where pre-tokens start, by bit arithmetic on class masks.
//!
//! A mask has a bit for each byte of a block, set on the first byte of a character. `next` moves the bits of a mask to
//! the characters that follow, over continuation bytes and across blocks, so that "a letter after a letter" is
//! `letter & next(letter)`. Each pattern's rules below say which characters start a pre-token, given the classes of
//! their neighbours; `docs/algorithms.md` derives them from the expressions.
//!
//! What is rare is left to the scalar matchers ([`super::gpt2`], [`super::cl100k`], [`super::o200k`], which are also the
//! slow twins in the tests): a block with numbers or white space outside ASCII, and for o200k one with a mark that
//! follows no letter or an upper-case letter that follows a mark or a letter without case. The scalar matcher goes on
//! from the last start until it has passed the block; the next block begins where it stopped.

use super::classify::{Ascii, Classify, LANES, best};
use super::{cl100k, gpt2, o200k, scan};
use crate::unicode::{Class, class_at};

/// Blocks that one call of [`Blocks::fill`] goes through.
const BLOCKS_A_CALL: usize = 8;

/// Most ends that one call gives. A block has at most one start a byte; where the scalar matcher steps in, the
/// pre-token that began before the block and the one that ends behind it come on top.
pub const MOST_ENDS: usize = BLOCKS_A_CALL * (LANES + 2) + 1;

/// Which rules apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    Gpt2,
    Cl100k,
    Llama3,
    O200k,
}

impl Rules {
    /// Where the pre-token that starts at `at` ends, by the scalar matcher.
    #[inline]
    pub fn scalar_end(self, text: &[u8], at: usize) -> usize {
        match self {
            Self::Gpt2 => gpt2::end(text, at),
            Self::Cl100k => cl100k::end::<true>(text, at),
            Self::Llama3 => cl100k::end::<false>(text, at),
            Self::O200k => o200k::end(text, at),
        }
    }
}

/// A text on its way through blocks.
pub struct Blocks<'t> {
    text: &'t [u8],
    rules: Rules,
    classify: Classify,
    /// Where the next block begins.
    at: usize,
    /// The last start found.
    last_start: usize,
    carry: Carry,
}

/// What the rules need to know of the character before a block: 1 where it is of the class, else 0.
#[derive(Clone, Copy, Default)]
struct Carry {
    letter: u64,
    lower: u64,
    uncased: u64,
    digit: u64,
    blank: u64,
    space: u64,
    newline: u64,
    absorbed: u64,
    other: u64,
    /// It is the first character of a run of others, and a pre-token starts there.
    lone_other: u64,
    /// Digits in the group that reaches up to the block, 0 to 3.
    n_digits: u32,
    /// Starts that a contraction in the block before takes away from this one, and those it adds.
    no_start: u64,
    start: u64,
    /// Where the last contraction ended; 0 before the first.
    contraction_end: usize,
    /// The block begins at a start that has been given already.
    start_is_known: bool,
}

/// The characters of a block by class: bits of first bytes only.
#[derive(Clone, Copy)]
struct Chars {
    letter: u64,
    upper: u64,
    /// Letters without case.
    uncased: u64,
    mark: u64,
    digit: u64,
    blank: u64,
    /// White space but line breaks, the blank included.
    space: u64,
    newline: u64,
    /// Neither letter, mark, number nor white space.
    other: u64,
    apostrophe: u64,
    slash: u64,
    /// Bytes that are not the first of a character.
    continuation: u64,
    /// First bytes.
    first: u64,
    /// The last first byte's place.
    last: u32,
}

impl Chars {
    /// The characters that follow those of `mask`; `before` is 1 where the one before the block is among them.
    ///
    /// The bit after a first byte, if it is a continuation byte, is carried to the end of the continuation bytes by the
    /// addition; no two such carries meet.
    #[inline]
    fn next(&self, mask: u64, before: u64) -> u64 {
        (mask << 1 | before).wrapping_add(self.continuation) & !self.continuation
    }

    /// 1 where the last character of the block is of `mask`.
    #[inline]
    fn carry(&self, mask: u64) -> u64 {
        mask >> self.last & 1
    }
}

impl<'t> Blocks<'t> {
    pub fn new(text: &'t [u8], rules: Rules) -> Self {
        Self::with_classifier(text, rules, best())
    }

    pub fn with_classifier(text: &'t [u8], rules: Rules, classify: Classify) -> Self {
        let carry = Carry { start_is_known: true, ..Carry::default() };
        Self { text, rules, classify, at: 0, last_start: 0, carry }
    }

    /// Appends the ends of the next pre-tokens; false where there are no more.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> bool {
        if self.at >= self.text.len() {
            return false;
        }
        for _ in 0..BLOCKS_A_CALL {
            let base = self.at;
            match self.starts() {
                Some(mut starts) => {
                    self.at = (base + LANES).min(self.text.len());
                    if starts != 0 {
                        self.last_start = base + 63 - starts.leading_zeros() as usize;
                    }
                    while starts != 0 {
                        ends.push(base + starts.trailing_zeros() as usize);
                        starts &= starts - 1;
                    }
                }
                None => self.scalar(ends),
            }
            if self.at >= self.text.len() {
                if ends.last() != Some(&self.text.len()) {
                    ends.push(self.text.len());
                }
                break;
            }
        }
        true
    }

    /// From the last start on until the block at `at` is passed, by the scalar matcher.
    fn scalar(&mut self, ends: &mut Vec<usize>) {
        let passed = (self.at + LANES).min(self.text.len());
        while self.last_start < passed {
            self.last_start = self.rules.scalar_end(self.text, self.last_start);
            ends.push(self.last_start);
        }
        self.at = self.last_start;
        self.carry = Carry { start_is_known: true, ..Carry::default() };
    }

    /// The starts in the block at `at`; `None` where they are not to be had by masks.
    #[inline]
    fn starts(&mut self) -> Option<u64> {
        let n_bytes = (self.text.len() - self.at).min(LANES);
        let ascii = if let Some(bytes) = self.text.get(self.at..self.at + LANES) {
            (self.classify)(bytes.try_into().ok()?)
        } else {
            let mut bytes = [0; LANES];
            bytes[..n_bytes].copy_from_slice(&self.text[self.at..]);
            (self.classify)(&bytes)
        };
        let chars = self.chars(ascii, u64::MAX >> (LANES - n_bytes))?;
        let mut carry = Carry { contraction_end: self.carry.contraction_end, ..Carry::default() };
        let natural = match self.rules {
            Rules::Gpt2 => self.gpt2(&chars, &mut carry),
            Rules::Cl100k => self.cl100k(&chars, &mut carry, true),
            Rules::Llama3 => self.cl100k(&chars, &mut carry, false),
            Rules::O200k => self.o200k(&chars, &mut carry)?,
        };
        let starts = natural & !self.carry.no_start | self.carry.start & chars.first;
        let starts = self.contractions(&chars, starts, &mut carry);
        let known = u64::from(self.carry.start_is_known);
        self.carry = carry;
        Some(starts & !known)
    }

    #[inline]
    fn chars(&self, ascii: Ascii, valid: u64) -> Option<Chars> {
        let space = ascii.blank | ascii.tab;
        let first = valid & !ascii.continuation;
        let known = ascii.letter | ascii.digit | space | ascii.newline | ascii.high;
        let mut chars = Chars {
            letter: ascii.letter,
            upper: ascii.upper,
            uncased: 0,
            mark: 0,
            digit: ascii.digit,
            blank: ascii.blank,
            space,
            newline: ascii.newline,
            other: first & !known,
            apostrophe: ascii.apostrophe,
            slash: ascii.slash,
            continuation: ascii.continuation,
            first,
            last: 63 - (first | 1).leading_zeros(),
        };
        let mut left = ascii.high & first;
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            let bit = 1 << place;
            match class_at(self.text, self.at + place as usize).0 {
                Class::Upper => {
                    chars.letter |= bit;
                    chars.upper |= bit;
                }
                Class::Lower => chars.letter |= bit,
                Class::OtherLetter => {
                    chars.letter |= bit;
                    chars.uncased |= bit;
                }
                Class::Mark => chars.mark |= bit,
                Class::Other => chars.other |= bit,
                Class::Number | Class::Space | Class::Newline => return None,
            }
        }
        Some(chars)
    }

    /// White space that a character other than white space follows.
    #[inline]
    fn before_non_space(&self, chars: &Chars, white: u64) -> u64 {
        let behind = self.at + LANES;
        let next_block = behind < self.text.len() && !class_at(self.text, behind).0.is_space();
        white & ((chars.first & !white) >> 1 | u64::from(next_block) << 63)
    }

    /// `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    ///
    /// Outside white space a pre-token starts where the class changes, but not behind a blank, which leads it. In a run
    /// of white space one starts at its first character, and at its last if something follows.
    #[inline]
    fn gpt2(&self, chars: &Chars, carry: &mut Carry) -> u64 {
        let before = &self.carry;
        let other = chars.other | chars.mark;
        let white = chars.space | chars.newline;
        carry.letter = chars.carry(chars.letter);
        carry.digit = chars.carry(chars.digit);
        carry.other = chars.carry(other);
        carry.blank = chars.carry(chars.blank);
        carry.space = chars.carry(white);
        let change = chars.letter & !chars.next(chars.letter, before.letter)
            | chars.digit & !chars.next(chars.digit, before.digit)
            | other & !chars.next(other, before.other);
        change & !chars.next(chars.blank, before.blank)
            | white & (!chars.next(white, before.space) | self.before_non_space(chars, white))
    }

    /// `…|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|…`
    #[inline]
    fn cl100k(&self, chars: &Chars, carry: &mut Carry, whole_at_end: bool) -> u64 {
        let before = &self.carry;
        let other = chars.other | chars.mark;
        let others = self.others(chars, carry, other, chars.newline);
        carry.letter = chars.carry(chars.letter);
        let letters = chars.letter
            & !chars.next(chars.letter, before.letter)
            & !chars.next(chars.space, before.space)
            & !chars.next(others.starts, before.lone_other);
        letters | others.starts | self.digits(chars, carry) | self.white(chars, carry, others.absorbed, whole_at_end)
    }

    /// As cl100k, but words are cut where upper case follows lower case, marks belong to words, and a slash may follow
    /// the line breaks behind a run of others.
    #[inline]
    fn o200k(&self, chars: &Chars, carry: &mut Carry) -> Option<u64> {
        let before = &self.carry;
        let word = chars.letter | chars.mark;
        let after_word = chars.next(word, before.letter);
        let after_uncased = chars.next(chars.uncased | chars.mark, before.uncased);
        if chars.mark & !after_word | chars.upper & after_uncased != 0 {
            return None;
        }
        let lower = chars.letter & !chars.upper & !chars.uncased;
        let after_lower = chars.next(lower, before.lower);
        let others = self.others(chars, carry, chars.other, chars.newline | chars.slash);
        carry.letter = chars.carry(word);
        carry.uncased = chars.carry(chars.uncased | chars.mark);
        carry.lower = chars.carry(lower);
        let words =
            word & !after_word & !chars.next(chars.space, before.space) & !chars.next(others.starts, before.lone_other)
                | chars.upper & after_lower;
        Some(words | others.starts | self.digits(chars, carry) | self.white(chars, carry, others.absorbed, false))
    }

    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with `tail` the characters that may follow the run once a line break has.
    #[inline]
    fn others(&self, chars: &Chars, carry: &mut Carry, other: u64, tail: u64) -> Others {
        let before = &self.carry;
        // A line break behind an other is absorbed, and then all of the tail up to the next character that is none.
        let seeds = chars.newline & chars.next(other, before.other) | tail & before.absorbed;
        let rest = tail & !seeds;
        let flooded = rest & !rest.wrapping_add(seeds << 1 & rest);
        let absorbed = seeds | flooded;
        let run = other & !absorbed;
        let first = run & !chars.next(run, before.other) & !chars.next(chars.blank, before.blank);
        carry.absorbed = chars.carry(absorbed);
        carry.other = chars.carry(run);
        carry.blank = chars.carry(chars.blank);
        carry.lone_other = chars.carry(first);
        Others { starts: first, absorbed }
    }

    /// `\p{N}{1,3}`: every third digit of a run.
    #[inline]
    fn digits(&self, chars: &Chars, carry: &mut Carry) -> u64 {
        let digit = chars.digit;
        let fours = digit & digit << 1 & digit << 2 & digit << 3;
        if fours == 0 && (self.carry.n_digits == 0 || digit & 1 == 0) {
            carry.n_digits = digit.leading_ones();
            return digit & !(digit << 1);
        }
        let mut starts = 0;
        let mut n_digits = self.carry.n_digits;
        for place in 0..LANES {
            if digit >> place & 1 == 0 {
                n_digits = 0;
                continue;
            }
            if n_digits.is_multiple_of(3) {
                starts |= 1 << place;
                n_digits = 0;
            }
            n_digits += 1;
        }
        carry.n_digits = n_digits;
        starts
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`, or with `whole_at_end` `\s++$|\s*[\r\n]|\s+(?!\S)|\s`, but for absorbed line breaks.
    ///
    /// A run starts at its first character. What is left of it behind its last line break starts anew, and so does its
    /// last character if that is no line break and something follows.
    #[inline]
    fn white(&self, chars: &Chars, carry: &mut Carry, absorbed: u64, whole_at_end: bool) -> u64 {
        let before = &self.carry;
        let newline = chars.newline & !absorbed;
        let white = chars.space | newline;
        carry.space = chars.carry(chars.space);
        carry.newline = chars.carry(newline);
        let after_space = chars.next(chars.space, before.space);
        let after_newline = chars.next(newline, before.newline);
        let mut starts = white & !after_space & !after_newline
            | chars.space & self.before_non_space(chars, chars.space | chars.newline);
        let mut behind_newlines = chars.space & after_newline;
        while behind_newlines != 0 {
            let place = behind_newlines.trailing_zeros();
            behind_newlines &= behind_newlines - 1;
            let n_spaces = (chars.space >> place).trailing_ones();
            let follows = if place + n_spaces < 64 && chars.first >> (place + n_spaces) & 1 == 1 {
                if chars.newline >> (place + n_spaces) & 1 == 1 { Class::Newline } else { Class::Other }
            } else {
                self.class_after_spaces(self.at + (place + n_spaces) as usize)
            };
            let is_rest = match follows {
                Class::Newline => false,
                // The end of the text.
                Class::Space => !whole_at_end,
                _ => true,
            };
            starts |= u64::from(is_rest) << place;
        }
        starts
    }

    /// The class of the first character at or after `at` that is no white space or is a line break; `Class::Space` at
    /// the end of the text.
    fn class_after_spaces(&self, mut at: usize) -> Class {
        while at < self.text.len() {
            let (class, n_bytes) = class_at(self.text, at);
            if class != Class::Space {
                return class;
            }
            at += n_bytes;
        }
        Class::Space
    }

    /// `'(?:[sdmt]|ll|ve|re)` at a start, or behind a word in o200k: no start inside it, one behind it.
    #[inline]
    fn contractions(&self, chars: &Chars, mut starts: u64, carry: &mut Carry) -> u64 {
        let mut apostrophes = chars.apostrophe;
        if self.rules == Rules::O200k {
            apostrophes &= chars.next(chars.letter | chars.mark, self.carry.letter);
        }
        while apostrophes != 0 {
            let place = apostrophes.trailing_zeros();
            apostrophes &= apostrophes - 1;
            let at = self.at + place as usize;
            let n_bytes = match self.rules {
                Rules::O200k if at == carry.contraction_end => 0,
                Rules::O200k => scan::contraction_any_case(self.text, at),
                _ if starts >> place & 1 == 0 => 0,
                Rules::Gpt2 => scan::contraction(self.text, at),
                Rules::Cl100k | Rules::Llama3 => scan::contraction_any_case(self.text, at),
            };
            if n_bytes == 0 {
                continue;
            }
            carry.contraction_end = at + n_bytes;
            let start_stays = u32::from(self.rules != Rules::O200k);
            let inside = ((1u128 << n_bytes) - 1) >> start_stays << (place + start_stays);
            let behind = 1u128 << (place as usize + n_bytes);
            #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
            {
                starts = starts & !(inside as u64) | behind as u64 & chars.first;
                carry.no_start |= (inside >> 64) as u64;
                carry.start |= (behind >> 64) as u64;
            }
        }
        starts
    }
}

/// Runs of others in a block.
struct Others {
    /// The first of each run that no blank leads. If a letter follows it, it leads that.
    starts: u64,
    /// Line breaks (and slashes) that belong to a run of others.
    absorbed: u64,
}
