//! The named patterns on 64 bytes at once: [`classify`](super::classify) gives a mask for each class of characters,
//! [`rules`](super::rules) say where pre-tokens start, and here the starts become offsets.
//!
//! What is rare is left to the scalar matchers ([`super::gpt2`], [`super::cl100k`], [`super::o200k`], which are also the
//! slow twins in the tests): for o200k a block with a mark behind several others, or a letter without case behind a
//! contraction. The scalar matcher goes on from the last start until it has passed the block; the next block begins
//! where it stopped.

use super::chars::Chars;
use super::classify::{
    AT_ONCE, BLOCKS, Classify, EIGHT, InstructionSet, LANES, WideWindow, Window, Work, are_ascii, wide,
};
use super::rules::{Block, Carry, Eight, Rules};
use std::mem::MaybeUninit;

/// Blocks that one call of [`Blocks::fill`] goes through.
const BLOCKS_A_CALL: usize = BLOCKS;

/// Room for the ends that one call gives. A block has at most one start a byte; where the scalar matcher steps in, the
/// pre-token that began before the block and the one that ends behind it come on top; then the end of the text, and
/// what is written but not wanted.
pub const MOST_ENDS: usize = BLOCKS_A_CALL * (LANES + 2) + 1 + AT_ONCE;

/// A text on its way through blocks.
pub struct Blocks<'t> {
    text: &'t [u8],
    rules: Rules,
    instruction_set: InstructionSet,
    /// Eight blocks are looked at together where they can be.
    in_eights: bool,
    /// Where the next block begins.
    at: usize,
    /// The last start found.
    last_start: usize,
    carry: Carry,
}

impl<'t> Blocks<'t> {
    pub fn new(text: &'t [u8], rules: Rules, instruction_set: InstructionSet) -> Self {
        let in_eights = instruction_set.is_wide();
        Self { text, rules, instruction_set, in_eights, at: 0, last_start: 0, carry: Carry::at_known_start() }
    }

    /// The same with eight blocks at once, or not, whatever the instruction set.
    #[cfg(test)]
    pub fn in_eights(self, in_eights: bool) -> Self {
        Self { in_eights, ..self }
    }

    /// Puts the ends of the next pre-tokens into `ends`; false where there are no more.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> bool {
        if self.at >= self.text.len() {
            return false;
        }
        ends.clear();
        ends.reserve(MOST_ENDS);
        let set = self.instruction_set;
        let from_eight = match self.in_eights {
            true => set.run(FillFromEight { blocks: self, ends: ends.spare_capacity_mut() }),
            false => None,
        };
        let n_ends = from_eight.unwrap_or_else(|| set.run(Fill { blocks: self, ends: ends.spare_capacity_mut() }));
        // SAFETY: `Ends` counts what it has written, from the front on.
        unsafe { ends.set_len(n_ends) };
        true
    }

    /// From the last start on until the block at `at` is passed, by the scalar matcher.
    #[cold]
    #[inline(never)]
    fn scalar(&mut self, ends: &mut Ends) {
        let passed = (self.at + LANES).min(self.text.len());
        while self.last_start < passed {
            self.last_start = self.rules.scalar_end(self.text, self.last_start);
            ends.push(self.last_start);
        }
        self.at = self.last_start;
    }
}

/// One call of [`Blocks::fill`]: gives the number of ends written.
struct Fill<'b, 't, 'e> {
    blocks: &'b mut Blocks<'t>,
    ends: &'e mut [MaybeUninit<usize>],
}

impl Work for Fill<'_, '_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> usize {
        let mut ends = Ends { room: self.ends, n: 0 };
        // A loop compiled for each pattern.
        match self.blocks.rules {
            Rules::Gpt2 => fill(self.blocks, classify, Rules::Gpt2, &mut ends),
            Rules::Cl100k => fill(self.blocks, classify, Rules::Cl100k, &mut ends),
            Rules::Llama3 => fill(self.blocks, classify, Rules::Llama3, &mut ends),
            Rules::O200k => fill(self.blocks, classify, Rules::O200k, &mut ends),
        }
        ends.n
    }
}

/// One call of [`Blocks::fill`] by eight blocks at once, `None` where that is not possible. It is compiled by itself: as
/// part of the loop over blocks it costs that loop registers, and with AVX2 a twentieth of its speed.
struct FillFromEight<'b, 't, 'e> {
    blocks: &'b mut Blocks<'t>,
    ends: &'e mut [MaybeUninit<usize>],
}

impl Work for FillFromEight<'_, '_, '_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> Option<usize> {
        let Self { blocks, ends } = self;
        let window = blocks.text[blocks.at..].first_chunk()?;
        if !are_ascii(window) {
            return None;
        }
        let mut ends = Ends { room: ends, n: 0 };
        match blocks.rules {
            Rules::Gpt2 => fill_from_eight(blocks, window, classify, Rules::Gpt2, &mut ends),
            Rules::Cl100k => fill_from_eight(blocks, window, classify, Rules::Cl100k, &mut ends),
            Rules::Llama3 => fill_from_eight(blocks, window, classify, Rules::Llama3, &mut ends),
            Rules::O200k => fill_from_eight(blocks, window, classify, Rules::O200k, &mut ends),
        }?;
        Some(ends.n)
    }
}

/// `None` where the rules have it that one block after the other has to be looked at.
#[inline(always)]
fn fill_from_eight(
    blocks: &mut Blocks,
    window: &WideWindow,
    classify: impl Classify,
    rules: Rules,
    ends: &mut Ends,
) -> Option<()> {
    let Blocks { text, at, carry: before, .. } = *blocks;
    let ascii = classify.ascii_of_eight(window);
    let (starts, after) = Eight { classify, text, at, behind: window[EIGHT], ascii, before }.starts(rules)?;
    for (k, starts) in starts.into_iter().enumerate() {
        let at = at + k * LANES;
        if starts != 0 {
            blocks.last_start = at + 63 - starts.leading_zeros() as usize;
        }
        ends.push_all(classify, at, starts);
    }
    blocks.at = at + EIGHT;
    blocks.carry = after;
    Some(())
}

#[inline(always)]
fn fill(blocks: &mut Blocks, classify: impl Classify, rules: Rules, ends: &mut Ends) {
    let text = blocks.text;
    // In registers: what is stored in small pieces and loaded in large ones is waited for.
    let mut carry = blocks.carry;
    for _ in 0..BLOCKS_A_CALL {
        let at = blocks.at;
        match starts(text, at, carry, classify, rules) {
            Some((starts, after)) => {
                blocks.at = (at + LANES).min(text.len());
                carry = after;
                if starts != 0 {
                    blocks.last_start = at + 63 - starts.leading_zeros() as usize;
                }
                ends.push_all(classify, at, starts);
            }
            None => {
                blocks.scalar(ends);
                carry = Carry::at_known_start();
            }
        }
        if blocks.at >= text.len() {
            if blocks.last_start < text.len() {
                blocks.last_start = text.len();
                ends.push(text.len());
            }
            break;
        }
    }
    blocks.carry = carry;
}

/// The starts in the block at `at`; `None` where they are not to be had by masks.
#[inline(always)]
fn starts(text: &[u8], at: usize, before: Carry, classify: impl Classify, rules: Rules) -> Option<(u64, Carry)> {
    let mut padded = [0; LANES + 3];
    let rest = &text[at..];
    let (window, valid): (&Window, u64) = if let Some(window) = rest.first_chunk() {
        (window, u64::MAX)
    } else {
        padded[..rest.len()].copy_from_slice(rest);
        (&padded, u64::MAX >> LANES.saturating_sub(rest.len()))
    };
    let ascii = classify.ascii(window);
    if ascii.high == 0 {
        let chars = Chars::of_ascii(&ascii, valid);
        Block { text, at, behind: window[LANES], chars, before }.starts(classify, rules)
    } else {
        let wide = wide(classify, window, ascii.high & !ascii.continuation);
        let chars = Chars::of_all(&ascii, &wide, valid);
        Block { text, at, behind: window[LANES], chars, before }.starts(classify, rules)
    }
}

/// The ends found, in memory of the caller's.
struct Ends<'e> {
    room: &'e mut [MaybeUninit<usize>],
    n: usize,
}

impl Ends<'_> {
    fn push(&mut self, end: usize) {
        self.room[self.n].write(end);
        self.n += 1;
    }

    #[inline(always)]
    fn push_all(&mut self, classify: impl Classify, at: usize, starts: u64) {
        classify.write_places(at, starts, &mut self.room[self.n..]);
        self.n += starts.count_ones() as usize;
    }
}
