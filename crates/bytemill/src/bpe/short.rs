//! Merging a short pre-token: all pairs are looked through for each merge, on the stack.

use crate::pairs::{NONE, OUTSIDE, PairTable};

/// Up to this many bytes, each merge looks through all pairs: no memory but the stack, and no slower than the heap.
pub(super) const SHORT: usize = 64;

/// Symbols in a list, and for each the priority of the pair it makes with the next one, all on the stack.
pub(super) fn merge_short(table: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) {
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
