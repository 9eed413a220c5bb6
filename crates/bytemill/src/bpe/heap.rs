//! Merging with a heap: every merge in its order, for pre-tokens of any length.
//!
//! A heap of pairs by priority, then position, over a linked list of symbols: n log n for n bytes. The heap is not kept
//! tidy: an entry counts only if the pair at its position still has that priority.

use super::limits::MAX_PRETOKEN_BYTES;
use crate::error::{Error, Result};
use crate::sys::interrupt::{Interrupt, no_interrupt};
use crate::vocab::pair_table::{NONE, PairTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merges between two cancellation checks.
const MERGES_PER_CHECK: usize = 1 << 16;

/// One merge as it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The merge's priority; lower ones come first.
    pub priority: u32,
    /// The resulting symbol.
    pub symbol: u32,
    /// The left part.
    pub left: u32,
    /// The right part.
    pub right: u32,
    /// Byte offset of the left part in the pre-token.
    pub offset: usize,
}

/// The merges of a pre-token, in order. Empty for a pre-token of [`MAX_PRETOKEN_BYTES`] or more.
pub fn steps(table: &PairTable, pretoken: &[u8]) -> Vec<Step> {
    let mut all = Vec::new();
    // Only the length can be refused.
    let _ = merge_with_heap(
        pretoken,
        lookup(table),
        &mut Vec::new(),
        |step| {
            all.push(step);
            true
        },
        &no_interrupt,
    );
    all
}

/// The priority and the result of a pair: in a pair table both are the resulting symbol.
pub fn lookup(table: &PairTable) -> impl Fn(u32, u32) -> Option<(u32, u32)> {
    |left, right| {
        let symbol = table.get(left, right);
        (symbol != NONE).then_some((symbol, symbol))
    }
}

/// Appends the symbols of a pre-token to `out`. `get(left, right)` returns the priority and the result of a pair that merges.
///
/// `takes` is called with every merge whose turn it is. If it returns false, the next one is considered instead, until one is taken.
///
/// # Errors
/// [`Error::Invalid`] for a pre-token longer than [`MAX_PRETOKEN_BYTES`], [`Error::Memory`], the error of `interrupt`.
pub fn merge_with_heap(
    pretoken: &[u8],
    get: impl Fn(u32, u32) -> Option<(u32, u32)>,
    out: &mut Vec<u32>,
    mut takes: impl FnMut(Step) -> bool,
    interrupt: Interrupt,
) -> Result<()> {
    const MERGED: u32 = u32::MAX;
    let n = pretoken.len();
    let end = check_length(n)?;
    let n_bytes = 5 * size_of::<u32>() * n;
    let mut symbols = reserved(n, n_bytes)?;
    symbols.extend(pretoken.iter().map(|&byte| u32::from(byte)));
    let mut next = reserved(n, n_bytes)?;
    next.extend(1..=end);
    let mut previous = reserved(n, n_bytes)?;
    previous.extend((0..end).map(|position| position.wrapping_sub(1)));
    let mut pairs = reserved(n, n_bytes)?;
    for position in 0..n.saturating_sub(1) {
        let pair = get(symbols[position], symbols[position + 1]);
        pairs.extend(pair.map(|(priority, _)| Reverse((priority, position as u32))));
        if position % MERGES_PER_CHECK == 0 {
            interrupt()?;
        }
    }
    let mut heap = BinaryHeap::from(pairs);
    let mut left_out = Vec::new();
    let mut n_popped = 0;
    while let Some(Reverse((priority, position))) = heap.pop() {
        n_popped += 1;
        if n_popped % MERGES_PER_CHECK == 0 {
            interrupt()?;
        }
        let (left, right_position) = (symbols[position as usize], next[position as usize]);
        if left == MERGED || right_position == end {
            continue;
        }
        let right = symbols[right_position as usize];
        let Some((_, symbol)) = get(left, right).filter(|&(current, _)| current == priority) else { continue };
        if !takes(Step { priority, symbol, left, right, offset: position as usize }) {
            left_out.push(Reverse((priority, position)));
            continue;
        }
        heap.extend(left_out.drain(..));
        symbols[position as usize] = symbol;
        symbols[right_position as usize] = MERGED;
        let after = next[right_position as usize];
        next[position as usize] = after;
        if after != end {
            previous[after as usize] = position;
            let pair = get(symbol, symbols[after as usize]);
            heap.extend(pair.map(|(priority, _)| Reverse((priority, position))));
        }
        let before = previous[position as usize];
        if before != u32::MAX {
            let pair = get(symbols[before as usize], symbol);
            heap.extend(pair.map(|(priority, _)| Reverse((priority, before))));
        }
    }
    let mut position = 0;
    while position != end {
        out.push(symbols[position as usize]);
        position = next[position as usize];
    }
    Ok(())
}

/// The length of a pre-token as 32 bits.
pub(super) fn check_length(n_bytes: usize) -> Result<u32> {
    match u32::try_from(n_bytes) {
        Ok(n) if n_bytes <= MAX_PRETOKEN_BYTES => Ok(n),
        _ => Err(Error::Invalid(format!(
            "a pre-token of {n_bytes} bytes is too long: at most {MAX_PRETOKEN_BYTES} are supported; use a pattern that \
             splits the text"
        ))),
    }
}

fn reserved<T>(n: usize, n_bytes: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| Error::Memory { n_bytes })?;
    Ok(values)
}
