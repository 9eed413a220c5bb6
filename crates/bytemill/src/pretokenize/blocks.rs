//! The loop over the blocks of a text: classify the bytes, find the starts of pre-tokens, write them out as offsets.

use super::block::Block;
use super::chars::{Carry, Chars, OneByte, Utf8};
use super::classify::{
    BLOCK_BYTES, Classify, InstructionSet, Mask, WIDE_BLOCKS, WRITE_WIDTH, WideWindow, Window, Work, are_ascii,
    non_ascii,
};
use super::rules::{Rules, Sets, Spec, Variant};
use crate::text::unicode::{CharSet, char_at};
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
    rules: &'t Rules,
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
    pub fn new<V: Variant>(text: &'t [u8], rules: &'t Rules, instruction_set: InstructionSet) -> Self {
        let is_wide = instruction_set.is_wide();
        // At the beginning of a text a pre-token starts but none ends.
        let carry = Carry { no_start: 1, ..Carry::default() };
        Self { text, rules, instruction_set, is_wide, at: 0, carry, fill: fill::<V> }
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
fn fill<V: Variant>(blocks: &mut Blocks, room: &mut [MaybeUninit<usize>]) -> usize {
    let set = blocks.instruction_set;
    let wide = if blocks.is_wide { set.run(Fill::<V, true> { blocks, room, variant: PhantomData }) } else { None };
    wide.unwrap_or_else(|| set.run(Fill::<V, false> { blocks, room, variant: PhantomData }))
}

/// Two loops, compiled apart: inside the one over blocks, the other would cost registers, and with AVX2 5 % of its speed.
struct Fill<'b, 't, V, const IS_WIDE: bool> {
    blocks: &'b mut Blocks<'t>,
    room: &'b mut [MaybeUninit<usize>],
    variant: PhantomData<V>,
}

/// Processes eight ASCII blocks at once. `None` if that is not possible.
impl<V: Variant> Work for Fill<'_, '_, V, true> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> Option<usize> {
        let Self { blocks, room, .. } = self;
        let Blocks { text, rules, at, carry: before, .. } = *blocks;
        let spec = V::spec(rules);
        let window: &WideWindow = text[at..].first_chunk()?;
        if !are_ascii(window) || spec.has_strays() && has_control(window) {
            return None;
        }
        let ascii = classify.wide_ascii(window);
        let chars = Chars::of_ascii(&ascii, !ascii.letter.none());
        let following = window[WIDE_BYTES];
        let block = Block { text, at, following, chars, layout: OneByte(PhantomData), before, spec, sets: &rules.sets };
        let (starts, after) = block.starts();
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
impl<V: Variant> Work for Fill<'_, '_, V, false> {
    type Output = usize;

    #[inline(always)]
    fn run(self, classify: impl Classify) -> usize {
        let Self { blocks, room, .. } = self;
        let Blocks { text, rules, .. } = *blocks;
        // A local variable stays in registers. Loading the whole carry right after storing its fields would stall.
        let mut carry = blocks.carry;
        let mut n_ends = 0;
        for _ in 0..BLOCKS_PER_CALL {
            let at = blocks.at;
            let (starts, after) = starts::<V>(text, at, carry, rules, classify);
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
fn starts<V: Variant>(text: &[u8], at: usize, before: Carry, rules: &Rules, classify: impl Classify) -> (u64, Carry) {
    let (spec, sets) = (V::spec(rules), &rules.sets);
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
        let mut chars = Chars::of_ascii(&ascii, valid);
        divide(&mut chars, window, spec, sets);
        Block { text, at, following, chars, layout: OneByte(PhantomData), before, spec, sets }.starts()
    } else {
        let non_ascii = non_ascii(classify, window, ascii.high & !ascii.continuation);
        let mut chars = Chars::of_utf8(&ascii, &non_ascii, valid);
        divide(&mut chars, window, spec, sets);
        let layout = Utf8::new(&ascii, &non_ascii, valid);
        Block { text, at, following, chars, layout, before, spec, sets }.starts()
    };
    (starts, after)
}

/// Looks characters up in the sets that the rules distinguish.
#[inline(always)]
fn divide(chars: &mut Chars<u64>, window: &Window, spec: Spec, sets: &Sets) {
    let wide = chars.first & !chars.ascii;
    let members = |candidates: u64, set: &Option<CharSet>| {
        set.as_ref().map_or(0, |set| candidates.filter(|k| set.has(char_at(window, k).0)))
    };
    if spec.isolates_set {
        chars.isolated = members(wide, &sets.isolated);
    }
    if spec.has_strays() {
        let candidates = if has_control(window) { chars.other } else { chars.other & wide };
        chars.stray = members(candidates, &sets.strays);
        chars.other &= !chars.stray;
    }
}

/// Whether a control character is among the bytes, white space apart.
#[inline(always)]
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |any, &byte| any | (byte < 0x20) & !(0x09..0x0E).contains(&byte) | (byte == 0x7F))
}
