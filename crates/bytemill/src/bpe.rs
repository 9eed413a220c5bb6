//! Merging one pre-token: the lowest-ranked pair of neighbours first, the leftmost of equals.

use crate::error::Result;
use crate::pairs::{NONE, OUTSIDE, PairTable};
use crate::pulse::{Pulse, no_pulse};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Up to this many bytes, each merge looks through all pairs: no memory but the stack, and no slower than the heap.
const SHORT: usize = 64;

/// Merges in a long pre-token between two questions to the caller whether to go on.
const MERGES_A_PULSE: usize = 1 << 16;

/// Appends the symbols of a pre-token to `out`.
///
/// # Errors
/// What `pulse` gives; it is asked only for long pre-tokens.
pub fn merge(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
    match pretoken {
        [] => {}
        [byte] => out.push(u32::from(*byte)),
        _ if pretoken.len() <= SHORT => merge_short(table, pretoken, out),
        _ => return merge_long(table, pretoken, out, |_| {}, pulse),
    }
    Ok(())
}

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

/// Symbols in a list, and for each the priority of the pair it makes with the next one, all on the stack.
fn merge_short(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    // The minimum is taken over all lanes, so that its loop has no end to mispredict.
    match pretoken.len() {
        ..=14 => merge_lanes::<16>(table, pretoken, out),
        15..=30 => merge_lanes::<32>(table, pretoken, out),
        _ => merge_lanes::<{ SHORT + 2 }>(table, pretoken, out),
    }
}

/// A priority is the symbol made, then the place, so that one minimum finds the lowest rank and the leftmost of its
/// places. Beyond both ends stands a symbol that nothing merges with, so that each merge is done in the same way: one
/// minimum and two look-ups, and the only branch that cannot be foreseen is the last.
///
/// (Vectors would find the minimum in a third of the instructions, and then wait for it: a load of a vector over words
/// just written takes longer than the minimum itself.)
#[inline]
fn merge_lanes<const LANES: usize>(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    const PLACE_BITS: u32 = 8;
    const NO_PAIR: u64 = u64::MAX;
    let priority = |symbol: u32, place: usize| {
        if symbol == NONE { NO_PAIR } else { u64::from(symbol) << PLACE_BITS | place as u64 }
    };
    let n = pretoken.len();
    let mut symbols = [OUTSIDE; LANES];
    let mut priorities = [NO_PAIR; LANES];
    let mut next: [u8; LANES] = std::array::from_fn(|place| place as u8 + 1);
    let mut previous: [u8; LANES] = std::array::from_fn(|place| (place as u8).wrapping_sub(1));
    for (place, &byte) in pretoken.iter().enumerate() {
        symbols[place + 1] = u32::from(byte);
    }
    for (place, pair) in pretoken.windows(2).enumerate() {
        priorities[place + 1] = priority(table.get_bytes(pair[0], pair[1]), place + 1);
    }
    loop {
        let lowest = priorities.iter().copied().fold(NO_PAIR, u64::min);
        if lowest == NO_PAIR {
            break;
        }
        let place = lowest as usize % (1 << PLACE_BITS) % LANES;
        let symbol = (lowest >> PLACE_BITS) as u32;
        let right = usize::from(next[place]) % LANES;
        let after = usize::from(next[right]) % LANES;
        let before = usize::from(previous[place]) % LANES;
        symbols[place] = symbol;
        next[place] = after as u8;
        previous[after] = place as u8;
        priorities[right] = NO_PAIR;
        priorities[place] = priority(table.get_symbols(symbol, symbols[after]), place);
        priorities[before] = priority(table.get_symbols(symbols[before], symbol), before);
    }
    let mut place = 1;
    while place <= n {
        out.push(symbols[place % LANES]);
        place = usize::from(next[place % LANES]);
    }
}

/// A queue of pairs by rank, then place, over a linked list of symbols: n log n for n bytes.
///
/// The queue is not kept tidy: an entry counts only if the pair at its place still becomes the symbol it names.
fn merge_long(
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every step looks at every pair and rebuilds the sequence.
    fn merge_plainly(table: &PairTable, pretoken: &[u8]) -> Vec<u32> {
        let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
        loop {
            let lowest = symbols.windows(2).enumerate().map(|(at, pair)| (table.get(pair[0], pair[1]), at)).min();
            match lowest {
                Some((symbol, at)) if symbol != NONE => drop(symbols.splice(at..at + 2, [symbol])),
                _ => return symbols,
            }
        }
    }

    /// Merges over a small alphabet: each joins two symbols that exist by then.
    fn table() -> impl Strategy<Value = PairTable> {
        prop::collection::vec((any::<u32>(), any::<u32>()), 0..60).prop_map(|choices| {
            let mut table = PairTable::new(choices.len());
            let mut made = 256;
            let mut known: Vec<u32> = (97..101).collect();
            for (left, right) in choices {
                let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
                if table.get(left, right) == NONE {
                    table.insert(left, right, made).unwrap();
                    known.push(made);
                    made += 1;
                }
            }
            table
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn short_and_long_merging_equal_the_plain_one(
            table in table(),
            pretoken in prop::collection::vec(97u8..101, 2..=SHORT),
        ) {
            let expected = merge_plainly(&table, &pretoken);
            let (mut short, mut long) = (Vec::new(), Vec::new());
            merge_short(&table, &pretoken, &mut short);
            merge_long(&table, &pretoken, &mut long, |_| {}, &no_pulse).unwrap();
            prop_assert_eq!(&short, &expected);
            prop_assert_eq!(&long, &expected);
        }

        #[test]
        fn long_pretokens_equal_the_plain_merging(table in table(), pretoken in prop::collection::vec(97u8..101, 65..300)) {
            let mut merged = Vec::new();
            merge(&table, &pretoken, &mut merged, &no_pulse).unwrap();
            prop_assert_eq!(merged, merge_plainly(&table, &pretoken));
        }

        #[test]
        fn steps_replayed_give_the_symbols(table in table(), pretoken in prop::collection::vec(97u8..101, 0..80)) {
            let mut parts: Vec<(usize, u32)> = pretoken.iter().map(|&byte| u32::from(byte)).enumerate().collect();
            for step in steps(&table, &pretoken) {
                let at = parts.iter().position(|&(offset, _)| offset == step.offset).unwrap();
                prop_assert_eq!((parts[at].1, parts[at + 1].1), (step.left, step.right));
                parts.splice(at..at + 2, [(step.offset, step.symbol)]);
            }
            let mut merged = Vec::new();
            merge(&table, &pretoken, &mut merged, &no_pulse).unwrap();
            prop_assert_eq!(parts.into_iter().map(|(_, symbol)| symbol).collect::<Vec<_>>(), merged);
        }
    }
}
