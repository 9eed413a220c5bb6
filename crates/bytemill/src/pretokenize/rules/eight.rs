//! The rules on eight blocks of ASCII at once.
//!
//! The same arithmetic as on one block, with masks of 512 bits: what follows what is a shift, and a run is gone through by
//! one addition, whichever borders of blocks it crosses. Characters are bytes here, so that marks, letters without case
//! and all that has more than one byte drop out of the rules.

use super::{Carry, Contraction, Rules, contraction, is_before_non_space, without_newline};
use crate::pretokenize::classify::{Ascii, BLOCKS, Classify, EIGHT, LANES, Mask};

/// With more of them, one for every 16 bytes, single blocks are quicker: they look at the short contractions all at once.
const MOST_APOSTROPHES: u32 = 32;

/// Eight blocks of ASCII and what comes before and behind them.
pub struct Eight<'t, C: Classify> {
    pub classify: C,
    pub text: &'t [u8],
    /// Where the blocks begin.
    pub at: usize,
    /// The byte behind the blocks.
    pub behind: u8,
    pub ascii: Ascii<C::Mask>,
    pub before: Carry,
}

/// Runs of others, as in [`super::Others`].
struct Others<M> {
    starts: M,
    absorbed: M,
}

impl<C: Classify> Eight<'_, C> {
    /// The starts in the blocks, and what the next block needs to know; `None` where one block after the other has to be
    /// looked at: for letters without case before upper-case ones or behind contractions, runs of 96 digits, and very many
    /// apostrophes.
    #[inline(always)]
    pub fn starts(&self, rules: Rules) -> Option<([u64; BLOCKS], Carry)> {
        let Self { ascii, before, .. } = self;
        let mut carry = Carry { contraction_end: before.contraction_end, ..Carry::default() };
        let natural = match rules {
            Rules::Gpt2 => self.gpt2(&mut carry),
            Rules::Cl100k => self.cl100k(&mut carry, true)?,
            Rules::Llama3 => self.cl100k(&mut carry, false)?,
            Rules::O200k => self.o200k(&mut carry)?,
        };
        let apostrophes = match rules {
            Rules::O200k => ascii.apostrophe & ascii.letter.up::<1>(before.letter),
            _ => ascii.apostrophe & natural,
        };
        let mut starts = natural.words();
        starts[0] = starts[0] & !before.no_start | before.start;
        if !apostrophes.is_zero() {
            let apostrophes = apostrophes.words();
            if apostrophes.iter().map(|word| word.count_ones()).sum::<u32>() > MOST_APOSTROPHES {
                return None;
            }
            self.contractions(rules, apostrophes, &mut starts, &mut carry)?;
        }
        starts[0] &= !before.start_is_known;
        Some((starts, carry))
    }

    /// White space but line breaks.
    #[inline(always)]
    fn space(&self) -> C::Mask {
        self.ascii.blank | self.ascii.tab
    }

    #[inline(always)]
    fn other(&self) -> C::Mask {
        !(self.ascii.letter | self.ascii.digit | self.space() | self.ascii.newline)
    }

    #[inline(always)]
    fn gpt2(&self, carry: &mut Carry) -> C::Mask {
        let Self { ascii, before, .. } = self;
        let other = self.other();
        let white = self.space() | ascii.newline;
        carry.letter = ascii.letter.last_bit();
        carry.digit = ascii.digit.last_bit();
        carry.other = other.last_bit();
        carry.blank = ascii.blank.last_bit();
        carry.space = white.last_bit();
        let change = ascii.letter & !ascii.letter.up::<1>(before.letter)
            | ascii.digit & !ascii.digit.up::<1>(before.digit)
            | other & !other.up::<1>(before.other);
        change & !ascii.blank.up::<1>(before.blank)
            | white & !white.up::<1>(before.space)
            | self.before_non_space(white)
    }

    #[inline(always)]
    fn cl100k(&self, carry: &mut Carry, whole_at_end: bool) -> Option<C::Mask> {
        let Self { ascii, before, .. } = self;
        let others = self.others(carry, ascii.newline);
        carry.letter = ascii.letter.last_bit();
        let led = ascii.letter | self.space() | others.starts;
        let letters = ascii.letter & !led.up::<1>(before.letter | before.space | before.lone_other);
        let digits = self.digits(carry)?;
        Some(letters | others.starts | digits | self.white(carry, others.absorbed, whole_at_end))
    }

    #[inline(always)]
    fn o200k(&self, carry: &mut Carry) -> Option<C::Mask> {
        let Self { ascii, before, .. } = self;
        // Whether letters without case served as upper case is asked at the upper-case letter behind them.
        if before.uncased != 0 {
            return None;
        }
        let others = self.others(carry, ascii.newline | ascii.slash);
        carry.letter = ascii.letter.last_bit();
        let led = ascii.letter | self.space() | others.starts;
        let words = ascii.letter & !led.up::<1>(before.letter | before.space | before.lone_other);
        let lower = ascii.letter & !ascii.upper;
        carry.lower = lower.last_bit();
        let cut = ascii.upper & lower.up::<1>(before.lower);
        let digits = self.digits(carry)?;
        Some(words | cut | others.starts | digits | self.white(carry, others.absorbed, false))
    }

    #[inline(always)]
    fn others(&self, carry: &mut Carry, tail: C::Mask) -> Others<C::Mask> {
        let Self { ascii, before, .. } = self;
        let other = self.other();
        let seeds = ascii.newline & other.up::<1>(before.other);
        let rest = tail & !seeds;
        let (sum, _) = rest.plus(seeds.up::<1>(before.absorbed) & rest);
        let absorbed = seeds | rest & !sum;
        let run = other & !absorbed;
        let led = run | ascii.blank;
        let starts = run & !led.up::<1>(before.other | before.blank);
        carry.absorbed = absorbed.last_bit();
        carry.other = run.last_bit();
        carry.blank = ascii.blank.last_bit();
        carry.lone_other = starts.last_bit();
        Others { starts, absorbed }
    }

    #[inline(always)]
    fn digits(&self, carry: &mut Carry) -> Option<C::Mask> {
        let digit = self.ascii.digit;
        let n_before = self.before.n_digits;
        let mut starts = digit & !digit.up::<1>(u64::from(n_before > 0));
        let run = digit & digit.up::<1>(0) & digit.up::<2>(0);
        let goes_on = n_before > 0 && self.text[self.at].is_ascii_digit();
        if goes_on || !(run & digit.up::<3>(0)).is_zero() {
            starts = self.groups(starts, run, goes_on)?;
        }
        carry.n_digits = if digit.last_bit() == 1 { starts.last_word().leading_zeros() + 1 } else { 0 };
        Some(starts)
    }

    /// As [`super::Block::digits`]: `starts` has the first digit of each run, but that of one which goes on from before;
    /// `run` those which two digits precede.
    #[inline(always)]
    fn groups(&self, mut starts: C::Mask, mut run: C::Mask, goes_on: bool) -> Option<C::Mask> {
        if goes_on {
            // The next group of the run starts at place 3 - n_digits, if the run reaches there.
            let next = 3 - self.before.n_digits as usize;
            let reaches = self.text[self.at..=self.at + next].iter().all(u8::is_ascii_digit);
            starts = starts | (run & !run).up::<3>(u64::from(reaches) << next);
        }
        macro_rules! step {
            ($n_digits:literal) => {
                starts = starts | starts.up::<$n_digits>(0) & run;
                run = run & run.up::<$n_digits>(0);
                if run.is_zero() {
                    return Some(starts);
                }
            };
        }
        // A start and three digits behind it make a start; then six, twelve and so on at once.
        step!(3);
        step!(6);
        step!(12);
        step!(24);
        step!(48);
        None
    }

    #[inline(always)]
    fn white(&self, carry: &mut Carry, absorbed: C::Mask, whole_at_end: bool) -> C::Mask {
        let Self { ascii, before, .. } = self;
        let space = self.space();
        let newline = ascii.newline & !absorbed;
        carry.space = space.last_bit();
        carry.newline = newline.last_bit();
        let white = space | newline;
        let firsts = white & !white.up::<1>(before.space | before.newline);
        let lasts = space & self.before_non_space(space | ascii.newline);
        let mut rests = space & newline.up::<1>(before.newline);
        // The addition carries each of them to what follows its run.
        let (sum, reaches_end) = space.plus(rests);
        if reaches_end | !(sum & !space & newline).is_zero() {
            let mut words = rests.words();
            for (k, word) in words.iter_mut().enumerate() {
                *word = without_newline(self.text, self.at + k * LANES, *word, whole_at_end);
            }
            rests = self.classify.mask(words);
        }
        firsts | lasts | rests
    }

    /// White space that a character other than white space follows.
    #[inline(always)]
    fn before_non_space(&self, white: C::Mask) -> C::Mask {
        let follows = if self.behind < 0x80 {
            !matches!(self.behind, b' ' | b'\t'..=b'\r')
        } else {
            is_before_non_space(self.text, self.at + EIGHT - 1)
        };
        white & (!white).down(u64::from(follows))
    }

    /// As [`super::Block::contractions`].
    #[inline(always)]
    fn contractions(
        &self,
        rules: Rules,
        apostrophes: [u64; BLOCKS],
        starts: &mut [u64; BLOCKS],
        carry: &mut Carry,
    ) -> Option<()> {
        for (k, mut left) in apostrophes.into_iter().enumerate() {
            while left != 0 {
                let place = left.trailing_zeros();
                left &= left - 1;
                let Contraction { inside, behind } = contraction(rules, self.text, self.at + k * LANES, place, carry)?;
                starts[k] = starts[k] & !inside[0] | behind[0];
                if let Some(next) = starts.get_mut(k + 1) {
                    *next = *next & !inside[1] | behind[1];
                } else {
                    carry.no_start |= inside[1];
                    carry.start |= behind[1];
                }
            }
        }
        Some(())
    }
}
