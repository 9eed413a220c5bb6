//! Merging with a queue: every merge in its order, for pre-tokens of any length.

use crate::error::Result;
use crate::pairs::{NONE, PairTable};
use crate::pulse::{Pulse, no_pulse};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merges in a long pre-token between two questions to the caller whether to go on.
const MERGES_A_PULSE: usize = 1 << 16;

/// One merge as it happens: the symbol made, its parts, and how many symbols stand to the left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The symbol that the merge makes.
    pub symbol: u32,
    /// The left part.
    pub left: u32,
    /// The right part.
    pub right: u32,
    /// Byte offset of the left part in the pre-token.
    pub offset: usize,
}

/// The merges of a pre-token, in order.
#[must_use]
pub fn steps(table: &PairTable, pretoken: &[u8]) -> Vec<Step> {
    let mut all = Vec::new();
    if pretoken.len() > 1 {
        // Without a pulse there is nothing that could fail.
        let _ = merge_long(table, pretoken, &mut Vec::new(), |step| all.push(step), &no_pulse);
    }
    all
}

/// A queue of pairs by rank, then place, over a linked list of symbols: n log n for n bytes.
///
/// The queue is not kept tidy: an entry counts only if the pair at its place still becomes the symbol it names.
pub(super) fn merge_long(
    table: &PairTable,
    pretoken: &[u8],
    out: &mut Vec<u32>,
    mut each: impl FnMut(Step),
    pulse: Pulse,
) -> Result<()> {
    const GONE: u32 = u32::MAX;
    let n = pretoken.len();
    let end = n as u32;
    let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
    let mut next: Vec<u32> = (1..=end).collect();
    let mut previous: Vec<u32> = (0..end).map(|place| place.wrapping_sub(1)).collect();
    let mut waiting = Vec::with_capacity(n);
    for place in 0..n - 1 {
        let symbol = table.get(symbols[place], symbols[place + 1]);
        if symbol != NONE {
            waiting.push(Reverse((symbol, place as u32)));
        }
        if place % MERGES_A_PULSE == 0 {
            pulse()?;
        }
    }
    let mut queue = BinaryHeap::from(waiting);
    let mut n_popped = 0;
    while let Some(Reverse((symbol, place))) = queue.pop() {
        n_popped += 1;
        if n_popped % MERGES_A_PULSE == 0 {
            pulse()?;
        }
        let (left, right_place) = (symbols[place as usize], next[place as usize]);
        if left == GONE || right_place == end {
            continue;
        }
        let right = symbols[right_place as usize];
        if table.get(left, right) != symbol {
            continue;
        }
        each(Step { symbol, left, right, offset: place as usize });
        symbols[place as usize] = symbol;
        symbols[right_place as usize] = GONE;
        let after = next[right_place as usize];
        next[place as usize] = after;
        if after != end {
            previous[after as usize] = place;
            let made = table.get(symbol, symbols[after as usize]);
            if made != NONE {
                queue.push(Reverse((made, place)));
            }
        }
        let before = previous[place as usize];
        if before != u32::MAX {
            let made = table.get(symbols[before as usize], symbol);
            if made != NONE {
                queue.push(Reverse((made, before)));
            }
        }
    }
    let mut place = 0;
    while place != end {
        out.push(symbols[place as usize]);
        place = next[place as usize];
    }
    Ok(())
}
