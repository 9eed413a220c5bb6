//! Merging one pre-token: the lowest-ranked pair of neighbours first, the leftmost of equals.

use crate::pairs::{NONE, PairTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Up to this many bytes, each merge looks through all pairs: no memory but the stack, and no slower than the heap.
const SHORT: usize = 64;

/// Appends the symbols of a pre-token to `out`.
pub fn merge(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    match pretoken {
        [] => {}
        [byte] => out.push(u32::from(*byte)),
        _ if pretoken.len() <= SHORT => merge_short(table, pretoken, out),
        _ => merge_long(table, pretoken, out, |_| {}),
    }
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
        merge_long(table, pretoken, &mut Vec::new(), |step| all.push(step));
    }
    all
}

/// Symbols and the ranks of their pairs in two arrays on the stack, closed up after each merge.
fn merge_short(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
    let mut symbols = [0u32; SHORT];
    // `ranks[k]` is what symbols k and k + 1 become; the last symbol has no right neighbour.
    let mut ranks = [NONE; SHORT];
    let mut n = pretoken.len();
    for (symbol, &byte) in symbols.iter_mut().zip(pretoken) {
        *symbol = u32::from(byte);
    }
    for k in 0..n - 1 {
        ranks[k] = table.get(symbols[k], symbols[k + 1]);
    }
    while n > 1 {
        let (mut lowest, mut at) = (NONE, 0);
        for (k, &rank) in ranks[..n - 1].iter().enumerate() {
            if rank < lowest {
                (lowest, at) = (rank, k);
            }
        }
        if lowest == NONE {
            break;
        }
        symbols[at] = lowest;
        symbols.copy_within(at + 2..n, at + 1);
        ranks.copy_within(at + 1..n, at);
        n -= 1;
        ranks[at] = if at + 1 < n { table.get(lowest, symbols[at + 1]) } else { NONE };
        if at > 0 {
            ranks[at - 1] = table.get(symbols[at - 1], lowest);
        }
    }
    out.extend_from_slice(&symbols[..n]);
}

/// A queue of pairs by rank, then place, over a linked list of symbols: n log n for n bytes.
///
/// The queue is not kept tidy: an entry counts only if the pair at its place still becomes the symbol it names.
fn merge_long(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>, mut each: impl FnMut(Step)) {
    const GONE: u32 = u32::MAX;
    let n = pretoken.len();
    let end = n as u32;
    let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
    let mut next: Vec<u32> = (1..=end).collect();
    let mut previous: Vec<u32> = (0..end).map(|place| place.wrapping_sub(1)).collect();
    let mut queue = BinaryHeap::from_iter((0..n - 1).filter_map(|place| {
        let symbol = table.get(symbols[place], symbols[place + 1]);
        (symbol != NONE).then_some(Reverse((symbol, place as u32)))
    }));
    while let Some(Reverse((symbol, place))) = queue.pop() {
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
            let mut table = PairTable::new(choices.len()).unwrap();
            let mut made = 256;
            let mut known: Vec<u32> = (97..101).collect();
            for (left, right) in choices {
                let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
                if table.get(left, right) == NONE {
                    table.insert(left, right, made);
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
            merge_long(&table, &pretoken, &mut long, |_| {});
            prop_assert_eq!(&short, &expected);
            prop_assert_eq!(&long, &expected);
        }

        #[test]
        fn long_pretokens_equal_the_plain_merging(table in table(), pretoken in prop::collection::vec(97u8..101, 65..300)) {
            let mut merged = Vec::new();
            merge(&table, &pretoken, &mut merged);
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
            merge(&table, &pretoken, &mut merged);
            prop_assert_eq!(parts.into_iter().map(|(_, symbol)| symbol).collect::<Vec<_>>(), merged);
        }
    }
}
