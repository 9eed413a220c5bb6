//! The loop over the blocks of a text: classify the bytes, find the starts of pre-tokens, write them out as offsets.
//!
//! In rare cases masks cannot tell the starts (see [`Block::starts`]). Then the reference implementation continues from the last start
//! until it has passed the block, and the next block begins where it stopped.

use super::block::Block;
use super::carry::Carry;
use super::chars::{Chars, OneByte, Utf8};
use super::classify::{
    BLOCK_BYTES, Classify, InstructionSet, Mask, WIDE_BLOCKS, WRITE_WIDTH, WideWindow, Window, Work, are_ascii,
    non_ascii,
};
use super::reference;
use super::rules::Rules;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Bytes that are processed at once if all of them are ASCII.
const WIDE_BYTES: usize = WIDE_BLOCKS * BLOCK_BYTES;

/// Blocks that one call of [`Blocks::fill`] processes.
const BLOCKS_PER_CALL: usize = WIDE_BLOCKS;

/// Upper bound on the ends from one call. A block has at most one start per byte. The reference implementation adds the pre-token
/// that began before the block and the one that ends after it. Then come the end of the text and the entries that are written but not
/// needed.
pub const MAX_ENDS: usize = BLOCKS_PER_CALL * (BLOCK_BYTES + 2) + 1 + WRITE_WIDTH;

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct Blocks<'t> {
    text: &'t [u8],
    instruction_set: InstructionSet,
    /// Process eight blocks at once where possible.
    is_wide: bool,
    /// Offset of the next block.
    at: usize,
    /// The last start found.
    last_start: usize,
    carry: Carry,
    /// [`fill`], compiled for the rules.
    fill: fn(&mut Blocks<'t>, &mut [MaybeUninit<usize>]) -> usize,
}

impl<'t> Blocks<'t> {
    pub fn new<R: Rules>(text: &'t [u8], instruction_set: InstructionSet) -> Self {
        let is_wide = instruction_set.is_wide();
        Self { text, instruction_set, is_wide, at: 0, last_start: 0, carry: Carry::at_known_start(), fill: fill::<R> }
    }

    /// Overrides whether eight blocks are processed at once.
    #[cfg(test)]
    pub fn wide(self, is_wide: bool) -> Self {
        Self { is_wide, ..self }
    }

    /// Puts the ends of the next pre-tokens into `ends`, which is empty. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> bool {
        if self.at >= self.text.len() {
            return false;
        }
        ends.reserve(MAX_ENDS);
        let n_ends = (self.fill)(self, ends.spare_capacity_mut());
        // SAFETY: `Ends` counts the entries that it has written from the front on.
        unsafe { ends.set_len(n_ends) };
        true
    }

    /// Continues with the reference implementation from the last start until it has passed the next block.
    #[cold]
    #[inline(never)]
    fn fall_back<R: Rules>(&mut self, ends: &mut Ends) {
        let passed = (self.at + BLOCK_BYTES).min(self.text.len());
        while self.last_start < passed {
            self.last_start = reference::end::<R>(self.text, self.last_start);
            ends.push(self.last_start);
        }
        self.at = self.last_start;
    }

    #[inline(always)]
    fn push_block(&mut self, classify: impl Classify, at: usize, starts: u64, ends: &mut Ends) {
        if starts != 0 {
            self.last_start = at + 63 - starts.leading_zeros() as usize;
        }
        ends.push_block(classify, at, starts);
    }
}

/// Writes the ends of the next pre-tokens to the front of `room` and returns their number.
fn fill<R: Rules>(blocks: &mut Blocks, room: &mut [MaybeUninit<usize>]) -> usize {
    let set = blocks.instruction_set;
    let wide = if blocks.is_wide {
        set.run(FillWide::<R> { blocks, ends: Ends { room, n: 0 }, rules: PhantomData })
    } else {
        None
    };
    wide.unwrap_or_else(|| set.run(Fill::<R> { blocks, ends: Ends { room, n: 0 }, rules: PhantomData }))
}

/// Processes eight ASCII blocks at once. `None` if that is not possible.
///
/// This is compiled apart from [`Fill`]: inside that loop it would cost registers, and with AVX2 5 % of its speed.
struct FillWide<'b, 't, 'e, R> {
    blocks: &'b mut Blocks<'t>,
    ends: Ends<'e>,
    rules: PhantomData<R>,
}

impl<R: Rules> Work for FillWide<'_, '_, '_, R> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> Option<usize> {
        let Self { blocks, mut ends, .. } = self;
        let Blocks { text, at, carry: before, .. } = *blocks;
        let window: &WideWindow = text[at..].first_chunk()?;
        if !are_ascii(window) {
            return None;
        }
        let ascii = classify.wide_ascii(window);
        let chars = Chars::of_ascii(&ascii, !ascii.letter.none());
        let following = window[WIDE_BYTES];
        let block = Block { text, at, following, chars, layout: OneByte::new(), before };
        let (starts, after) = block.starts::<R>(classify)?;
        for (k, starts) in starts.into_iter().enumerate() {
            blocks.push_block(classify, at + k * BLOCK_BYTES, starts, &mut ends);
        }
        blocks.at = at + WIDE_BYTES;
        blocks.carry = after;
        Some(ends.n)
    }
}

/// Processes one block after the other.
struct Fill<'b, 't, 'e, R> {
    blocks: &'b mut Blocks<'t>,
    ends: Ends<'e>,
    rules: PhantomData<R>,
}

impl<R: Rules> Work for Fill<'_, '_, '_, R> {
    type Output = usize;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> usize {
        let Self { blocks, mut ends, .. } = self;
        let text = blocks.text;
        // A local variable stays in registers. Loading the whole carry right after storing its fields would stall.
        let mut carry = blocks.carry;
        for _ in 0..BLOCKS_PER_CALL {
            let at = blocks.at;
            match starts::<R>(text, at, carry, classify) {
                Some((starts, after)) => {
                    blocks.at = (at + BLOCK_BYTES).min(text.len());
                    carry = after;
                    blocks.push_block(classify, at, starts, &mut ends);
                }
                None => {
                    blocks.fall_back::<R>(&mut ends);
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
        ends.n
    }
}

/// The starts in the block at `at`. `None` if masks cannot tell.
#[inline(always)]
fn starts<R: Rules>(text: &[u8], at: usize, before: Carry, classify: impl Classify) -> Option<(u64, Carry)> {
    let mut padded = [0; BLOCK_BYTES + 3];
    let rest = &text[at..];
    let (window, valid): (&Window, u64) = if let Some(window) = rest.first_chunk() {
        (window, u64::MAX)
    } else {
        padded[..rest.len()].copy_from_slice(rest);
        (&padded, u64::MAX >> BLOCK_BYTES.saturating_sub(rest.len()))
    };
    let ascii = classify.ascii(window);
    let following = window[BLOCK_BYTES];
    let ([starts], after) = if ascii.high == 0 {
        let chars = Chars::of_ascii(&ascii, valid);
        Block { text, at, following, chars, layout: OneByte::new(), before }.starts::<R>(classify)?
    } else {
        let non_ascii = non_ascii(classify, window, ascii.high & !ascii.continuation);
        let chars = Chars::of_utf8(&ascii, &non_ascii, valid);
        let layout = Utf8::new(&ascii, &non_ascii, valid);
        Block { text, at, following, chars, layout, before }.starts::<R>(classify)?
    };
    Some((starts, after))
}

/// The ends found, in memory of the caller.
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
    fn push_block(&mut self, classify: impl Classify, at: usize, starts: u64) {
        classify.write_positions(at, starts, &mut self.room[self.n..]);
        self.n += starts.count_ones() as usize;
    }
}
