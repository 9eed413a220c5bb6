//! The loop over the blocks of a text: classify the bytes, find the starts of pre-tokens, write them out as offsets.

use super::block::Block;
use super::carry::Carry;
use super::chars::{Chars, OneByte, Utf8};
use super::classify::{
    BLOCK_BYTES, Classify, InstructionSet, Mask, WIDE_BLOCKS, WRITE_WIDTH, WideWindow, Window, Work, are_ascii,
    non_ascii,
};
use super::rules::Rules;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Bytes that are processed at once if all of them are ASCII.
const WIDE_BYTES: usize = WIDE_BLOCKS * BLOCK_BYTES;

/// Blocks that one call of [`Blocks::fill`] processes.
const BLOCKS_PER_CALL: usize = WIDE_BLOCKS;

/// Upper bound on the ends from one call: a start per byte, the end of the text, and the entries that are written but not needed.
pub const MAX_ENDS: usize = BLOCKS_PER_CALL * BLOCK_BYTES + 1 + WRITE_WIDTH;

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct Blocks<'t> {
    text: &'t [u8],
    instruction_set: InstructionSet,
    /// Process eight blocks at once where possible.
    is_wide: bool,
    /// Offset of the next block.
    at: usize,
    carry: Carry,
    /// [`fill`], compiled for the rules.
    fill: fn(&mut Blocks<'t>, &mut [MaybeUninit<usize>]) -> usize,
}

impl<'t> Blocks<'t> {
    pub fn new<R: Rules>(text: &'t [u8], instruction_set: InstructionSet) -> Self {
        let is_wide = instruction_set.is_wide();
        // At the beginning of a text a pre-token starts but none ends.
        let carry = Carry { no_start: 1, ..Carry::default() };
        Self { text, instruction_set, is_wide, at: 0, carry, fill: fill::<R> }
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
        // SAFETY: `fill` has written this many entries from the front on.
        unsafe { ends.set_len(n_ends) };
        true
    }
}

/// Writes the ends of the next pre-tokens to the front of `room` and returns their number.
fn fill<R: Rules>(blocks: &mut Blocks, room: &mut [MaybeUninit<usize>]) -> usize {
    let set = blocks.instruction_set;
    let wide = if blocks.is_wide { set.run(Fill::<R, true> { blocks, room, rules: PhantomData }) } else { None };
    wide.unwrap_or_else(|| set.run(Fill::<R, false> { blocks, room, rules: PhantomData }))
}

/// Two loops, compiled apart: inside the one over blocks, the other would cost registers, and with AVX2 5 % of its speed.
struct Fill<'b, 't, R, const IS_WIDE: bool> {
    blocks: &'b mut Blocks<'t>,
    room: &'b mut [MaybeUninit<usize>],
    rules: PhantomData<R>,
}

/// Processes eight ASCII blocks at once. `None` if that is not possible.
impl<R: Rules> Work for Fill<'_, '_, R, true> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> Option<usize> {
        let Self { blocks, room, .. } = self;
        let Blocks { text, at, carry: before, .. } = *blocks;
        let window: &WideWindow = text[at..].first_chunk()?;
        if !are_ascii(window) {
            return None;
        }
        let ascii = classify.wide_ascii(window);
        let chars = Chars::of_ascii(&ascii, !ascii.letter.none());
        let following = window[WIDE_BYTES];
        let block = Block { text, at, following, chars, layout: OneByte(PhantomData), before };
        let (starts, after) = block.starts::<R>();
        let mut n_ends = 0;
        for (k, starts) in starts.into_iter().enumerate() {
            classify.write_positions(at + k * BLOCK_BYTES, starts, &mut room[n_ends..]);
            n_ends += starts.count_ones() as usize;
        }
        blocks.at = at + WIDE_BYTES;
        blocks.carry = after;
        Some(n_ends)
    }
}

/// Processes one block after the other.
impl<R: Rules> Work for Fill<'_, '_, R, false> {
    type Output = usize;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> usize {
        let Self { blocks, room, .. } = self;
        let text = blocks.text;
        // A local variable stays in registers. Loading the whole carry right after storing its fields would stall.
        let mut carry = blocks.carry;
        let mut n_ends = 0;
        for _ in 0..BLOCKS_PER_CALL {
            let at = blocks.at;
            let (starts, after) = starts::<R>(text, at, carry, classify);
            carry = after;
            classify.write_positions(at, starts, &mut room[n_ends..]);
            n_ends += starts.count_ones() as usize;
            blocks.at = at + BLOCK_BYTES;
            if blocks.at >= text.len() {
                room[n_ends].write(text.len());
                n_ends += 1;
                break;
            }
        }
        blocks.carry = carry;
        n_ends
    }
}

/// The starts in the block at `at`.
#[inline(always)]
fn starts<R: Rules>(text: &[u8], at: usize, before: Carry, classify: impl Classify) -> (u64, Carry) {
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
        Block { text, at, following, chars, layout: OneByte(PhantomData), before }.starts::<R>()
    } else {
        let non_ascii = non_ascii(classify, window, ascii.high & !ascii.continuation);
        let chars = Chars::of_utf8(&ascii, &non_ascii, valid);
        let layout = Utf8::new(&ascii, &non_ascii, valid);
        Block { text, at, following, chars, layout, before }.starts::<R>()
    };
    (starts, after)
}
