//! The rules of the named patterns as bit arithmetic on the masks of a block.
//!
//! [`Layout::next`] shifts a mask to the characters that follow, so "a letter after a letter" is `letter & next(letter)`. The rules
//! tell which characters start a pre-token, given the classes of their neighbours; `docs/concepts/algorithms.md` derives them from
//! the expressions. They are written once, for one block with or without characters outside ASCII and for eight ASCII blocks at
//! once. The few checks that look further than a neighbour are made one by one, by the functions at the end.
//!
//! A run that a step isolates is a text of its own. At its borders pre-tokens start, whatever the classes, and white space before it
//! is at the end of a text.

use super::chars::{Carry, Chars, Layout};
use super::classify::{BLOCK_BYTES, Mask};
use super::rules::{Contractions, Digits, Letters, Others, Sets, Spec, WhiteSpace, contraction_bytes};
use crate::text::unicode::{Class, char_at, class_at};

/// The letters of two-byte contractions.
const CONTRACTION_LETTERS: [u8; 4] = *b"dmst";

type Words<L> = <<L as Layout>::Mask as Mask>::Words;

/// One block, or eight at once.
pub struct Block<'t, L: Layout> {
    pub text: &'t [u8],
    /// Offset of the block in the text.
    pub at: usize,
    /// The byte after the block, 0 at the end of the text.
    pub following: u8,
    pub chars: Chars<L::Mask>,
    pub layout: L,
    pub before: Carry,
    pub spec: Spec,
    pub sets: &'t Sets,
}

/// The contractions found in a block.
struct Found<W> {
    /// Where no pre-token starts.
    inside: W,
    /// Where one starts.
    after: W,
}

/// Runs of others in a block.
struct OtherRuns<M> {
    /// The first of each run that no blank leads. If a letter follows, it leads that in most patterns.
    starts: M,
    /// All other characters of the runs.
    rest: M,
    /// Line breaks and slashes that belong to a run.
    absorbed: M,
}

impl<L: Layout> Block<'_, L> {
    /// The starts of pre-tokens, and the carry for the next block.
    #[inline(always)]
    pub fn starts(&self) -> (Words<L>, Carry) {
        let Self { chars, layout, before, .. } = self;
        let mut carry = Carry { contraction_end: before.contraction_end, ..Carry::default() };
        let is_by_case = self.spec.letters == Letters::ByCase;
        let is_suffix = self.spec.contractions == Contractions::Suffix;
        let borders = self.borders(&mut carry);
        let (other, others) = self.others(&mut carry, borders);
        let word = if is_by_case {
            chars.letter | chars.mark & !other
        } else if self.spec.joins_marks {
            chars.letter | chars.mark
        } else {
            chars.letter
        };
        carry.letter = layout.carry(word);
        carry.blank = layout.carry(chars.blank);
        let after_word = if is_suffix { chars.apostrophe & layout.next(word, before.letter) } else { word.none() };
        let suffixes = self.contractions(after_word, &mut carry);
        let natural = self.words(&mut carry, word, others.starts, &suffixes)
            | others.starts
            | self.digits(&mut carry)
            | self.white_space(&mut carry, others.absorbed)
            | self.strays(&mut carry, borders)
            | borders;

        let mut starts = natural.words();
        let first = chars.first.words();
        let all = starts.as_mut();
        all[0] = all[0] & !before.no_start | before.start & first.as_ref()[0];
        let apostrophes = match self.spec.contractions {
            Contractions::Suffix => after_word,
            Contractions::None => word.none(),
            Contractions::LowerCase | Contractions::AnyCase => chars.apostrophe & natural,
        };
        if !apostrophes.is_zero() {
            let found = if is_suffix { suffixes } else { self.contractions(apostrophes, &mut carry) };
            for (k, start) in all.iter_mut().enumerate() {
                *start = *start & !found.inside.as_ref()[k] | found.after.as_ref()[k] & first.as_ref()[k];
            }
        }
        (starts, carry)
    }

    /// Where isolated characters follow others, or others follow them.
    #[inline(always)]
    fn borders(&self, carry: &mut Carry) -> L::Mask {
        let Self { chars: Chars { isolated, first, .. }, layout, before, .. } = self;
        if !self.spec.isolates_set {
            return isolated.none();
        }
        carry.isolated = layout.carry(*isolated);
        let after = layout.next(*isolated, before.isolated);
        *first & (*isolated & !after | after & !*isolated)
    }

    /// A word starts at a letter unless a letter or what leads the word is before it.
    #[inline(always)]
    fn words(&self, carry: &mut Carry, word: L::Mask, others: L::Mask, suffixes: &Found<Words<L>>) -> L::Mask {
        let Self { chars, layout, before, .. } = self;
        match self.spec.letters {
            Letters::AfterBlank => word & !layout.next(word | chars.blank, before.letter | before.blank),
            Letters::AfterAny | Letters::ByCase => {
                let leads = before.letter | before.space | before.lone_other;
                let starts = word & !layout.next(word | chars.space | others, leads);
                if self.spec.letters == Letters::ByCase { starts | self.case_changes(carry, suffixes) } else { starts }
            }
            Letters::AfterPunctuation => {
                let starts =
                    word & !layout.next(word | chars.space | chars.stray, before.letter | before.space | before.stray);
                let letters = chars.letter & chars.ascii;
                let firsts = letters & layout.next(others & chars.ascii, before.lone_other);
                // Extends each of them through the ASCII letters after it. Another letter is not part of that word.
                let rest = letters & !firsts;
                let led = firsts | rest & !rest.plus(layout.next(firsts, before.led) & rest).0;
                carry.led = layout.carry(led);
                starts & !firsts | word & !chars.ascii & layout.next(led, before.led)
            }
        }
    }

    /// `U*W+|U+W*`: starts inside words.
    ///
    /// A word is cut before an upper-case letter if the last letter with case before it in the word is lower case. If only letters
    /// without case or marks are before it, they match as U, unless the rest of the word needs one as W.
    #[inline(always)]
    fn case_changes(&self, carry: &mut Carry, suffixes: &Found<Words<L>>) -> L::Mask {
        let Self { chars, layout, before, .. } = self;
        let both = chars.uncased | chars.mark;
        let mut lower = chars.letter & !chars.upper & !chars.uncased;
        if !L::IS_ASCII {
            // Extends each lower-case letter through the letters without case and marks after it, unless a contraction ends the word.
            let run = layout.bytes(both, before.uncased);
            let new_word = both.with_words(suffixes.after) | both.none().up(3, before.start);
            let seeds = both & layout.next(lower, before.lower) & !new_word;
            lower = lower | both & !run.plus(seeds).0;
        }
        let cut = chars.upper & layout.next(lower, before.lower);
        carry.lower = layout.carry(lower);
        carry.uncased = layout.carry(both);
        let doubtful = chars.upper & layout.next(both, before.uncased) & !cut;
        if doubtful.is_zero() { cut } else { cut | last_of_word(self.text, self.at, doubtful) }
    }

    /// The others, and their runs.
    ///
    /// If words are cut by case, a mark belongs to a word, unless it follows an other that cannot lead that word: then it continues the
    /// run. Whether it does depends on the characters before it alone, so each round decides at least one more of them.
    #[inline(always)]
    fn others(&self, carry: &mut Carry, borders: L::Mask) -> (L::Mask, OtherRuns<L::Mask>) {
        let Self { chars, layout, before, .. } = self;
        if self.spec.letters != Letters::ByCase || L::IS_ASCII {
            let other = if self.spec.joins_marks { chars.other } else { chars.other | chars.mark };
            return (other, self.other_runs(carry, other, borders));
        }
        let mut other = chars.other;
        loop {
            let runs = self.other_runs(carry, other, borders);
            let found = chars.other | chars.mark & layout.next(runs.rest, before.other & !before.lone_other);
            if (other & !found | found & !other).is_zero() {
                return (other, runs);
            }
            other = found;
        }
    }

    #[inline(always)]
    fn other_runs(&self, carry: &mut Carry, other: L::Mask, borders: L::Mask) -> OtherRuns<L::Mask> {
        let Self { chars, layout, before, .. } = self;
        let tail = match self.spec.others {
            Others::Alone => other.none(),
            Others::WithNewlines | Others::Punctuation => chars.newline,
            Others::WithNewlinesAndSlashes => chars.newline | chars.slash,
        };
        let mut absorbed = tail;
        if self.spec.others != Others::Alone {
            // A line break after an other is absorbed, and with it the rest of its run of tail characters.
            let seeds = chars.newline & layout.next(other, before.other) & !borders;
            let rest = tail & !seeds;
            absorbed = seeds | rest & !rest.plus(seeds.up(1, before.absorbed) & rest).0;
        }
        let run = other & !absorbed;
        let starts = run & (!layout.next(run | chars.blank, before.other | before.blank) | borders);
        carry.absorbed = layout.carry(absorbed);
        carry.other = layout.carry(run);
        let leads = if self.spec.letters == Letters::AfterPunctuation { starts & chars.ascii } else { starts };
        carry.lone_other = layout.carry(leads);
        OtherRuns { starts, rest: run & !starts, absorbed }
    }

    #[inline(always)]
    fn digits(&self, carry: &mut Carry) -> L::Mask {
        let Self { chars: Chars { digit, blank, .. }, layout, before, .. } = self;
        match self.spec.digits {
            Digits::AfterBlank => {
                carry.digit = layout.carry(*digit);
                *digit & !layout.next(*digit | *blank, before.digit | before.blank)
            }
            Digits::Groups(1) => *digit,
            Digits::Groups(most) => self.digit_groups(carry, most),
        }
    }

    /// `\p{N}{1,most}`: every `most`-th digit of a run.
    #[inline(always)]
    fn digit_groups(&self, carry: &mut Carry, most: u32) -> L::Mask {
        let Self { layout, before, .. } = self;
        let digit = self.chars.digit;
        let continues = u64::from(before.n_digits > 0);
        if layout.has_wide_digit(continues) {
            let after_digit = layout.next(digit, continues);
            let (starts, n_digits) = wide_digits(digit, after_digit, before.n_digits, most);
            carry.n_digits = if layout.carry(digit) == 1 { n_digits } else { 0 };
            return starts;
        }
        let mut starts = digit & !digit.up(1, continues);
        // The digits with enough others before them to start another group. Those before the block are the lowest bits.
        let mut run = digit;
        for n in 1..most {
            run = run & digit.up(n, ((1 << before.n_digits) - 1) << n >> before.n_digits);
        }
        let mut next = starts.up(most, continues << (most - before.n_digits)) & run;
        while !next.is_zero() {
            starts = starts | next;
            next = next.up(most, 0) & run;
        }
        carry.n_digits = if layout.carry(digit) == 1 { starts.last_word().leading_zeros() + 1 } else { 0 };
        starts
    }

    /// A run of white space starts at its first character. Its last character starts anew if something follows and it is not a line
    /// break. What is left of the run after its last line break starts anew, too.
    #[inline(always)]
    fn white_space(&self, carry: &mut Carry, absorbed: L::Mask) -> L::Mask {
        let Self { chars, layout, before, .. } = self;
        let newline = chars.newline & !absorbed;
        carry.space = layout.carry(chars.space);
        carry.newline = layout.carry(newline);
        let white = chars.space | newline;
        let firsts = white & !layout.next(white, before.space | before.newline);
        if self.spec.white_space == WhiteSpace::Runs {
            return firsts | self.before_non_space(white, white);
        }
        let lasts = self.before_non_space(chars.space, chars.space | chars.newline);
        // A space right before another line break is no rest: many blank lines in a row need no closer look either.
        let mut rests = chars.space & newline.up(1, before.newline) & !chars.newline.down(0);
        // The addition carries each of them to the character after its run. If that is in the block and not a line break, the run
        // needs no closer look.
        let run = layout.bytes(chars.space, 0);
        let (sum, overflows) = run.plus(rests);
        if overflows | !(sum & !run & !(chars.first & !chars.newline)).is_zero() {
            rests = without_newline(self.text, self.at, rests, self.spec.white_space);
        }
        firsts | lasts | rests
    }

    /// Several strays are one pre-token, except that the last of them leads the word after it.
    #[inline(always)]
    fn strays(&self, carry: &mut Carry, borders: L::Mask) -> L::Mask {
        let Self { chars: Chars { stray, .. }, layout, before, .. } = self;
        if !self.spec.has_strays() {
            return stray.none();
        }
        carry.stray = layout.carry(*stray);
        let after = *stray & layout.next(*stray, before.stray) & !borders;
        let starts = *stray & !after;
        if after.is_zero() { starts } else { starts | leading_words(self.text, self.at, after, self.sets) }
    }

    /// The characters of `candidates`, all of them white space, before a character that is neither white space nor isolated.
    #[inline(always)]
    fn before_non_space(&self, candidates: L::Mask, white: L::Mask) -> L::Mask {
        let Self { text, at, following, chars, layout, spec, .. } = self;
        let mut stops = chars.first & !white & !chars.isolated;
        if spec.isolates_digits {
            stops = stops & !chars.digit;
        }
        // The neighbour of the last character is in the next block.
        let after = if *following < 0x80 && !layout.has_wide_space() {
            let is_isolated = spec.isolates_digits && following.is_ascii_digit();
            at + L::Mask::BITS < text.len() && !matches!(following, b' ' | b'\t'..=b'\r') && !is_isolated
        } else {
            let last = at + L::Mask::BITS - BLOCK_BYTES + layout.last();
            layout.carry(candidates) == 1 && is_before_non_space(text, last, spec.isolates_digits, self.sets)
        };
        candidates & layout.space_before(stops, after.into())
    }

    /// The contractions that begin with one of `apostrophes`.
    #[inline(always)]
    fn contractions(&self, apostrophes: L::Mask, carry: &mut Carry) -> Found<Words<L>> {
        let none = apostrophes.none().words();
        let mut found = Found { inside: none, after: none };
        if apostrophes.is_zero() {
            return found;
        }
        let (inside, after) = (found.inside.as_mut(), found.after.as_mut());
        let is_suffix = self.spec.contractions == Contractions::Suffix;
        for (k, &apostrophes) in apostrophes.words().as_ref().iter().enumerate() {
            let block = self.at + k * BLOCK_BYTES;
            let mut left = apostrophes;
            if !is_suffix && left != 0 {
                let singles = singles(self.text, block, apostrophes, self.spec.contractions);
                inside[k] |= singles << 1;
                after[k] |= singles << 2;
                left &= !singles;
            }
            while left != 0 {
                let position = left.trailing_zeros() as usize;
                left &= left - 1;
                let at = block + position;
                let n_bytes = contraction_bytes(self.text, at, self.spec.contractions);
                // A suffix does not follow another.
                if n_bytes == 0 || is_suffix && at == carry.contraction_end {
                    continue;
                }
                carry.contraction_end = at + n_bytes;
                // A suffix has no start at its apostrophe.
                let first = usize::from(!is_suffix);
                let these = (1u128 << n_bytes) - (1 << first);
                set_bits(these << position, inside, k, &mut carry.no_start);
                set_bits(1 << (position + n_bytes), after, k, &mut carry.start);
            }
        }
        found
    }
}

/// Sets bits that begin in word `k`. Those after the last word go to `next`.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
fn set_bits(bits: u128, words: &mut [u64], k: usize, next: &mut u64) {
    words[k] |= bits as u64;
    *words.get_mut(k + 1).unwrap_or(next) |= (bits >> 64) as u64;
}

/// The `apostrophes` before one of the letters d, m, s and t, with the byte after that in the same block: the most frequent
/// contractions, which do not affect each other.
#[inline(always)]
fn singles(text: &[u8], block: usize, apostrophes: u64, contractions: Contractions) -> u64 {
    let case = if contractions == Contractions::LowerCase { 0 } else { 0x20 };
    let rest = &text[block..];
    (apostrophes & u64::MAX >> 2)
        .filter(|k| rest.get(k + 1).is_some_and(|letter| CONTRACTION_LETTERS.contains(&(letter | case))))
}

// Checks that look further than a neighbour. The functions take what they need and not the block, which would have to be in memory.

/// The upper-case letters of `starts` from which on only upper-case letters follow in the word. The letter without case or mark
/// before them is the last that can serve as W.
#[cold]
#[inline(never)]
fn last_of_word<M: Mask>(text: &[u8], block: usize, starts: M) -> M {
    starts.filter(|k| {
        let mut at = block + k;
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

/// As [`Block::digit_groups`] with digits outside ASCII: the starts, and the number of digits in the last group.
#[inline(never)]
fn wide_digits<M: Mask>(digit: M, after_digit: M, mut n_digits: u32, most: u32) -> (M, u32) {
    let after_digit = after_digit.words();
    let starts = digit.filter(|k| {
        let continues = after_digit.as_ref()[k / BLOCK_BYTES] >> (k % BLOCK_BYTES) & 1 == 1 && n_digits < most;
        n_digits = if continues { n_digits + 1 } else { 1 };
        !continues
    });
    (starts, n_digits)
}

/// The `rests`, white space after a line break, whose run contains no other line break.
#[inline(never)]
fn without_newline<M: Mask>(text: &[u8], block: usize, rests: M, rule: WhiteSpace) -> M {
    rests.filter(|k| {
        let mut at = block + k;
        while at < text.len() {
            let (class, n_bytes) = class_at(text, at);
            if class != Class::Space {
                return class != Class::Newline;
            }
            at += n_bytes;
        }
        rule != WhiteSpace::ToLastNewlineOrEnd
    })
}

/// The strays before a letter or mark that they lead.
#[cold]
#[inline(never)]
fn leading_words<M: Mask>(text: &[u8], block: usize, strays: M, sets: &Sets) -> M {
    strays.filter(|k| {
        let at = block + k;
        let (stray, n_bytes) = char_at(text, at);
        let next = at + n_bytes;
        next < text.len() && {
            let (class, _) = class_at(text, next);
            let is_isolated = |code_point| sets.isolated.as_ref().is_some_and(|set| set.has(code_point));
            (class.is_letter() || class == Class::Mark) && is_isolated(stray) == is_isolated(char_at(text, next).0)
        }
    })
}

/// Whether a character that is neither white space nor isolated follows the one at `at`.
#[inline(never)]
fn is_before_non_space(text: &[u8], at: usize, isolates_digits: bool, sets: &Sets) -> bool {
    let next = at + class_at(text, at).1;
    next < text.len() && {
        let (class, _) = class_at(text, next);
        let is_isolated = isolates_digits && class == Class::Number
            || sets.isolated.as_ref().is_some_and(|set| set.has(char_at(text, next).0));
        !class.is_space() && !is_isolated
    }
}
