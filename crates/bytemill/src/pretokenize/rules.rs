//! Where pre-tokens start, by bit arithmetic on the masks of a block: the named patterns' rules.
//!
//! [`Chars::next`] moves the bits of a mask to the characters that follow, over continuation bytes and across blocks, so
//! that "a letter after a letter" is `letter & next(letter)`. The rules say which characters start a pre-token, given
//! the classes of their neighbours; `docs/algorithms.md` derives them from the expressions. The few questions that
//! look further than a neighbour are asked one by one, in functions of their own.

mod eight;

use super::chars::Chars;
use super::classify::{CONTRACTED, Classify, LANES};
use super::{cl100k, gpt2, o200k, scan};
use crate::unicode::{Class, class_at};
pub use eight::Eight;

/// Of more apostrophes in a block all bytes behind them are looked at at once.
const MOST_ONE_BY_ONE: u32 = 4;

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

/// What the rules need to know of the character before a block: 1 where it is of the class, else 0.
#[derive(Clone, Copy, Default)]
pub struct Carry {
    letter: u64,
    /// The last letter with case is lower case, and none but letters without case and marks follow it.
    lower: u64,
    uncased: u64,
    blank: u64,
    space: u64,
    newline: u64,
    absorbed: u64,
    other: u64,
    /// It is the first character of a run of others, and a pre-token starts there.
    lone_other: u64,
    digit: u64,
    /// Digits in the group that reaches up to the block, 0 to 3.
    n_digits: u32,
    /// Starts that a contraction in the block before takes away from this one, and those it adds.
    no_start: u64,
    start: u64,
    /// Where the last contraction ended; 0 before the first.
    contraction_end: usize,
    /// The block begins at a start that has been given already.
    start_is_known: u64,
}

impl Carry {
    /// At a start that has been given already, at the beginning of the text or behind what a scalar matcher took.
    pub fn at_known_start() -> Self {
        Self { start_is_known: 1, ..Self::default() }
    }
}

/// Runs of others in a block.
struct Others {
    /// The first of each run that no blank leads. If a letter follows it, it leads that.
    starts: u64,
    /// The rest of the runs.
    rest: u64,
    /// Line breaks (and slashes) that belong to a run of others.
    absorbed: u64,
}

/// A block and what comes before it.
pub struct Block<'t> {
    pub text: &'t [u8],
    /// Where the block begins.
    pub at: usize,
    /// The byte behind the block, anything where the text ends before.
    pub behind: u8,
    pub chars: Chars,
    pub before: Carry,
}

impl Block<'_> {
    /// The starts in the block, and what the next block needs to know; `None` where they are not to be had by masks.
    #[inline(always)]
    pub fn starts(&self, classify: impl Classify, rules: Rules) -> Option<(u64, Carry)> {
        let mut carry = Carry { contraction_end: self.before.contraction_end, ..Carry::default() };
        let natural = match rules {
            Rules::Gpt2 => self.gpt2(&mut carry),
            Rules::Cl100k => self.cl100k(&mut carry, true),
            Rules::Llama3 => self.cl100k(&mut carry, false),
            Rules::O200k => self.o200k(&mut carry)?,
        };
        let mut starts = natural & !self.before.no_start | self.before.start & self.chars.first;
        let apostrophes = match rules {
            Rules::O200k => {
                let word = self.chars.letter | self.chars.mark;
                self.chars.apostrophe & self.chars.next(word, self.before.letter)
            }
            _ => self.chars.apostrophe & starts,
        };
        if apostrophes != 0 {
            let singles = match rules {
                Rules::Gpt2 => self.singles(classify, apostrophes, false),
                Rules::Cl100k | Rules::Llama3 => self.singles(classify, apostrophes, true),
                Rules::O200k => 0,
            };
            starts = starts & !(singles << 1) | singles << 2 & self.chars.first;
            if apostrophes != singles {
                starts = self.contractions(rules, apostrophes & !singles, starts, &mut carry)?;
            }
        }
        Some((starts & !self.before.start_is_known, carry))
    }

    /// `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    ///
    /// Outside white space a pre-token starts where the class changes, but not behind a blank, which leads it. In a run
    /// of white space one starts at its first character, and at its last if something follows.
    #[inline(always)]
    fn gpt2(&self, carry: &mut Carry) -> u64 {
        let Self { chars, before, .. } = self;
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
        change & !Chars::next_of_ascii(chars.blank, before.blank)
            | white & !chars.next(white, before.space)
            | self.before_non_space(white)
    }

    /// `…|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|…`
    #[inline(always)]
    fn cl100k(&self, carry: &mut Carry, whole_at_end: bool) -> u64 {
        let Self { chars, before, .. } = self;
        let others = self.others(carry, chars.other | chars.mark, chars.newline);
        carry.letter = chars.carry(chars.letter);
        let letters = chars.letter
            & !chars.next(chars.letter, before.letter)
            & !chars.next(chars.space, before.space)
            & !chars.next(others.starts, before.lone_other);
        letters | others.starts | self.digits(carry) | self.white(carry, others.absorbed, whole_at_end)
    }

    /// As cl100k, but words are cut by case, marks belong to words, and a slash may follow the line breaks behind a run
    /// of others.
    #[inline(always)]
    fn o200k(&self, carry: &mut Carry) -> Option<u64> {
        let Self { chars, before, .. } = self;
        let others = self.others(carry, chars.other, chars.newline | chars.slash);
        // Behind a run of others a mark belongs to the run, and the run goes on behind it.
        if chars.mark & chars.next(others.rest, before.other & !before.lone_other) != 0 {
            return None;
        }
        let word = chars.letter | chars.mark;
        carry.letter = chars.carry(word);
        let words = word
            & !chars.next(word, before.letter)
            & !chars.next(chars.space, before.space)
            & !chars.next(others.starts, before.lone_other);
        let starts = words | self.cut_by_case(carry);
        Some(starts | others.starts | self.digits(carry) | self.white(carry, others.absorbed, false))
    }

    /// `U*W+|U+W*`: starts inside words.
    ///
    /// A word is cut before an upper-case letter if the last letter with case before it in the word is lower case.
    /// Else, if letters without case or marks are before it, they were taken as U; whether they have to serve as W
    /// depends on what follows.
    #[inline(always)]
    fn cut_by_case(&self, carry: &mut Carry) -> u64 {
        let Self { chars, before, .. } = self;
        let both = chars.uncased | chars.mark;
        let lower = chars.letter & !chars.upper & !chars.uncased;
        // From a lower-case letter on through the letters without case and marks behind it.
        let run = chars.whole(both, before.uncased);
        let seeds = both & chars.next(lower, before.lower);
        let lower = lower | both & !run.wrapping_add(seeds);
        let cut = chars.upper & chars.next(lower, before.lower);
        carry.lower = chars.carry(lower);
        carry.uncased = chars.carry(both);
        let doubtful = chars.upper & chars.next(both, before.uncased) & !cut;
        if doubtful == 0 { cut } else { cut | last_of_word(self.text, self.at, doubtful) }
    }

    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with `tail` the characters that may follow the run once a line break has.
    #[inline(always)]
    fn others(&self, carry: &mut Carry, other: u64, tail: u64) -> Others {
        let Self { chars, before, .. } = self;
        // A line break behind an other is absorbed, and then all of the tail up to the next character that is none.
        let seeds = chars.newline & chars.next(other, before.other) | tail & before.absorbed;
        let rest = tail & !seeds;
        let flooded = rest & !rest.wrapping_add(seeds << 1 & rest);
        let absorbed = seeds | flooded;
        let run = other & !absorbed;
        let starts = run & !chars.next(run, before.other) & !Chars::next_of_ascii(chars.blank, before.blank);
        carry.absorbed = chars.carry(absorbed);
        carry.other = chars.carry(run);
        carry.blank = chars.carry(chars.blank);
        carry.lone_other = chars.carry(starts);
        Others { starts, rest: run & !starts, absorbed }
    }

    /// `\p{N}{1,3}`: every third digit of a run.
    #[inline(always)]
    fn digits(&self, carry: &mut Carry) -> u64 {
        let digit = self.chars.digit;
        let wide_before = u64::from(self.before.n_digits > 0) & self.chars.continuation;
        if self.chars.wide_digit | wide_before != 0 {
            let after_digit = self.chars.next(digit, u64::from(self.before.n_digits > 0));
            let (starts, n_digits) = wide_digits(digit, after_digit, self.before.n_digits);
            carry.n_digits = if self.chars.carry(digit) == 1 { n_digits } else { 0 };
            return starts;
        }
        let threes = digit & digit << 1 & digit << 2;
        let n_before = self.before.n_digits;
        if threes & digit << 3 == 0 && (n_before == 0 || digit & 1 == 0) {
            carry.n_digits = digit.leading_ones();
            return digit & !(digit << 1);
        }
        let mut starts = digit & !(digit << 1);
        if n_before > 0 && digit & 1 == 1 {
            // The run goes on: its next group starts at place 3 - n_before, if the run reaches there.
            let next = 3 - n_before;
            starts = starts & !1 | u64::from(digit.trailing_ones() > next) << next;
        }
        // A start and three digits behind it make a start; then six, twelve and so on at once.
        let mut run = threes;
        for n_digits in [3, 6, 12, 24, 48] {
            starts |= starts << n_digits & run;
            run &= run << n_digits;
        }
        carry.n_digits = if digit.leading_ones() > 0 { starts.leading_zeros() + 1 } else { 0 };
        starts
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`, or with `whole_at_end` `\s++$|\s*[\r\n]|\s+(?!\S)|\s`, but for absorbed line breaks.
    ///
    /// A run starts at its first character. What is left of it behind its last line break starts anew, and so does its
    /// last character if that is no line break and something follows.
    #[inline(always)]
    fn white(&self, carry: &mut Carry, absorbed: u64, whole_at_end: bool) -> u64 {
        let Self { chars, before, .. } = self;
        let newline = chars.newline & !absorbed;
        carry.space = chars.carry(chars.space);
        carry.newline = chars.carry(newline);
        let after_newline = Chars::next_of_ascii(newline, before.newline);
        let after_space = chars.next(chars.space, before.space);
        let firsts = (chars.space | newline) & !after_space & !after_newline;
        let lasts = chars.space & self.before_non_space(chars.space | chars.newline);
        let mut rests = chars.space & after_newline;
        // A run that something other than a line break follows in this block needs no closer look.
        let run = chars.whole(chars.space, 0);
        let behind = run.wrapping_add(rests) & !run & chars.first & !chars.newline;
        if behind.count_ones() != rests.count_ones() {
            rests = without_newline(self.text, self.at, rests, whole_at_end);
        }
        firsts | lasts | rests
    }

    /// White space that a character other than white space follows.
    #[inline(always)]
    fn before_non_space(&self, white: u64) -> u64 {
        let Self { text, at, chars, .. } = self;
        let follows = chars.first & !white;
        // White space outside ASCII has two or three bytes.
        let three = chars.wide_space & chars.continuation >> 2;
        let mut found =
            white & !chars.wide_space & follows >> 1 | chars.wide_space & follows >> 2 | three & follows >> 3;
        // The last character's neighbour is in the next block.
        let is_wide = u64::from(self.behind >= 0x80 || chars.wide_space != 0);
        if chars.carry(white) & is_wide != 0 {
            let is_non_space = is_before_non_space(text, at + chars.last as usize);
            return found | u64::from(is_non_space) << chars.last;
        }
        let is_non_space = at + LANES < text.len() && !matches!(self.behind, b' ' | b'\t'..=b'\r');
        found |= white & u64::from(is_non_space) << 63;
        found
    }

    /// Those of `apostrophes` that one of the letters d, m, s and t follows, with the byte behind it in this block too: the
    /// most frequent contractions, which touch nothing of each other.
    #[inline(always)]
    fn singles(&self, classify: impl Classify, apostrophes: u64, any_case: bool) -> u64 {
        let apostrophes = apostrophes & u64::MAX >> 2;
        let rest = &self.text[self.at..];
        if apostrophes.count_ones() > MOST_ONE_BY_ONE
            && let Some(window) = rest.first_chunk()
        {
            return apostrophes & classify.contracted(window, any_case) >> 1;
        }
        let case = if any_case { 0x20 } else { 0 };
        filter(apostrophes, |place| rest.get(place + 1).is_some_and(|letter| CONTRACTED.contains(&(letter | case))))
    }

    /// `'(?:[sdmt]|ll|ve|re)` at a start, or behind a word in o200k: no start inside it, one behind it.
    #[inline(always)]
    fn contractions(&self, rules: Rules, mut apostrophes: u64, mut starts: u64, carry: &mut Carry) -> Option<u64> {
        while apostrophes != 0 {
            let place = apostrophes.trailing_zeros();
            apostrophes &= apostrophes - 1;
            let Contraction { inside, behind } = contraction(rules, self.text, self.at, place, carry)?;
            starts = starts & !inside[0] | behind[0] & self.chars.first;
            carry.no_start |= inside[1];
            carry.start |= behind[1];
        }
        Some(starts)
    }
}

/// Bits of a contraction in the block where it begins and in the next: where it takes starts away, and the one that it adds.
struct Contraction {
    inside: [u64; 2],
    behind: [u64; 2],
}

/// The contraction that begins with the apostrophe at `place` in the block at `block`, no bits where none does; `None` where what is
/// behind it is not to be had by masks.
#[inline(always)]
fn contraction(rules: Rules, text: &[u8], block: usize, place: u32, carry: &mut Carry) -> Option<Contraction> {
    let at = block + place as usize;
    let n_bytes = match rules {
        Rules::O200k if at == carry.contraction_end => 0,
        Rules::Gpt2 => scan::contraction(text, at),
        _ => scan::contraction_any_case(text, at),
    };
    if n_bytes == 0 {
        return Some(Contraction { inside: [0; 2], behind: [0; 2] });
    }
    let end = at + n_bytes;
    carry.contraction_end = end;
    if rules == Rules::O200k && text.get(end).is_some_and(|&byte| byte >= 0x80) {
        // The word that starts there must not be taken for a part of the one before.
        let class = class_at(text, end).0;
        if matches!(class, Class::OtherLetter | Class::Mark) {
            return None;
        }
    }
    let start_stays = u32::from(rules != Rules::O200k);
    let inside = ((1u128 << n_bytes) - 1) >> start_stays << (place + start_stays);
    let behind = 1u128 << (place as usize + n_bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    let halves = |bits: u128| [bits as u64, (bits >> 64) as u64];
    Some(Contraction { inside: halves(inside), behind: halves(behind) })
}

// The questions that look further than a neighbour. They take what they need and not the block, which would have to lie in
// memory for them.

/// Those of `starts`, in the block at `at`, from which on upper-case letters reach to the end of their word. The letter
/// without case or mark before them is the last that can serve as W.
#[cold]
#[inline(never)]
fn last_of_word(text: &[u8], at: usize, starts: u64) -> u64 {
    filter(starts, |place| {
        let mut at = at + place;
        while at < text.len() {
            let (class, n_bytes) = class_at(text, at);
            if class != Class::Upper {
                return !class.is_letter() && class != Class::Mark;
            }
            at += n_bytes;
        }
        true
    })
}

/// As [`Block::digits`] with numbers outside ASCII, one by one: the starts, and how many digits the last group has.
#[inline(never)]
fn wide_digits(digit: u64, after_digit: u64, mut n_digits: u32) -> (u64, u32) {
    let starts = filter(digit, |place| {
        let begins = after_digit >> place & 1 == 0 || n_digits == 3;
        n_digits = if begins { 1 } else { n_digits + 1 };
        begins
    });
    (starts, n_digits)
}

/// Those of `rests`, white space behind a line break in the block at `at`, whose run has no other line break.
#[inline(never)]
fn without_newline(text: &[u8], at: usize, rests: u64, whole_at_end: bool) -> u64 {
    filter(rests, |place| {
        let mut at = at + place;
        while at < text.len() {
            let (class, n_bytes) = class_at(text, at);
            if class != Class::Space {
                return class != Class::Newline;
            }
            at += n_bytes;
        }
        !whole_at_end
    })
}

/// Whether the character at `at` is followed by one that is no white space.
#[inline(never)]
fn is_before_non_space(text: &[u8], at: usize) -> bool {
    let behind = at + class_at(text, at).1;
    behind < text.len() && !class_at(text, behind).0.is_space()
}

/// The bits of `mask` that `holds` accepts, from the lowest on.
#[inline(always)]
fn filter(mask: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    let (mut left, mut kept) = (mask, 0);
    while left != 0 {
        let place = left.trailing_zeros();
        left &= left - 1;
        kept |= u64::from(holds(place as usize)) << place;
    }
    kept
}
