//! Merging several short pre-tokens at once.
//!
//! What one merge costs is not arithmetic but waiting: the pair table is larger than the processor's near caches, and
//! every merge of a pre-token asks it for two pairs that are known only once the merge before is done. Pre-tokens
//! do not wait for each other, so a group of them is merged in rounds: in each, every one of them does its next merge
//! and asks for its two pairs ahead of time; then all the answers are taken.

use crate::pairs::{NONE, OUTSIDE, PairTable};

/// Most pre-tokens of a group.
pub const GROUP: usize = 16;

/// No pair of neighbours in this place.
const NO_PAIR: u32 = u32::MAX;

/// A pre-token of fewer than `LANES` bytes, as a ring of symbols.
///
/// Byte k is in place k + 1. In place 0 stands a symbol that nothing merges with, which is the neighbour of both ends, so that
/// each merge is done in the same way: one minimum and two look-ups.
#[derive(Clone, Copy)]
struct Ring<const LANES: usize> {
    /// For each place the symbol that it and the next one become, then the place: one minimum finds the lowest rank and
    /// the leftmost of its places.
    priorities: [u32; LANES],
    symbols: [u32; LANES],
    next: [u8; LANES],
    previous: [u8; LANES],
}

impl<const LANES: usize> Ring<LANES> {
    const PLACE_BITS: u32 = LANES.trailing_zeros();

    fn new(table: &PairTable, pretoken: &[u8]) -> Self {
        let n = pretoken.len();
        let mut ring = Self {
            priorities: [NO_PAIR; LANES],
            symbols: [OUTSIDE; LANES],
            next: std::array::from_fn(|place| place as u8 + 1),
            previous: std::array::from_fn(|place| (place as u8).wrapping_sub(1)),
        };
        ring.next[n] = 0;
        ring.previous[0] = n as u8;
        for (place, &byte) in pretoken.iter().enumerate() {
            ring.symbols[place + 1] = u32::from(byte);
        }
        for (place, pair) in pretoken.windows(2).enumerate() {
            ring.priorities[place + 1] = Self::priority(table.get_bytes(pair[0], pair[1]), place + 1);
        }
        ring
    }

    #[inline]
    fn priority(symbol: u32, place: usize) -> u32 {
        const { assert!(LANES.is_power_of_two() && LANES <= 1 << 10) };
        if symbol == NONE { NO_PAIR } else { symbol << Self::PLACE_BITS | place as u32 }
    }

    #[inline]
    fn lowest(&self) -> u32 {
        self.priorities.iter().copied().fold(NO_PAIR, u32::min)
    }

    /// Does the merge that `lowest` names, but for the priorities of the two pairs that it makes. Gives its place.
    #[inline]
    fn join(&mut self, lowest: u32, table: &PairTable) -> u8 {
        let place = lowest as usize % LANES;
        let right = usize::from(self.next[place]) % LANES;
        let after = usize::from(self.next[right]) % LANES;
        let before = usize::from(self.previous[place]) % LANES;
        let symbol = lowest >> Self::PLACE_BITS;
        self.symbols[place] = symbol;
        self.next[place] = after as u8;
        self.previous[after] = place as u8;
        self.priorities[right] = NO_PAIR;
        table.prefetch(symbol, self.symbols[after]);
        table.prefetch(self.symbols[before], symbol);
        place as u8
    }

    /// Looks up the two pairs of the symbol in `place`.
    #[inline]
    fn look_up(&mut self, place: u8, table: &PairTable) {
        let place = usize::from(place) % LANES;
        let after = usize::from(self.next[place]) % LANES;
        let before = usize::from(self.previous[place]) % LANES;
        let symbol = self.symbols[place];
        self.priorities[place] = Self::priority(table.get_symbols(symbol, self.symbols[after]), place);
        self.priorities[before] = Self::priority(table.get_symbols(self.symbols[before], symbol), before);
    }

    fn append_to(&self, out: &mut Vec<u32>) {
        let mut place = usize::from(self.next[0]);
        while place != 0 {
            out.push(self.symbols[place]);
            place = usize::from(self.next[place]) % LANES;
        }
    }
}

/// Appends the symbols of each pre-token to `out` and their number to `n_symbols`: up to [`GROUP`] pre-tokens of 1 to `LANES` - 1 bytes.
pub fn merge<'p, const LANES: usize>(
    table: &PairTable,
    pretokens: impl ExactSizeIterator<Item = &'p [u8]>,
    mut each: impl FnMut(usize, &[u32]),
) {
    let n = pretokens.len();
    let mut rings = [Ring::<LANES> { priorities: [0; LANES], symbols: [0; LANES], next: [0; LANES], previous: [0; LANES] }; GROUP];
    let mut active = [0u8; GROUP];
    for (index, (ring, pretoken)) in rings.iter_mut().zip(pretokens).enumerate() {
        *ring = Ring::new(table, pretoken);
        active[index] = index as u8;
    }
    let mut n_active = n.min(GROUP);
    let mut places = [0u8; GROUP];
    while n_active > 0 {
        let mut kept = 0;
        for at in 0..n_active {
            let index = active[at];
            let ring = &mut rings[usize::from(index) % GROUP];
            let lowest = ring.lowest();
            if lowest != NO_PAIR {
                places[kept] = ring.join(lowest, table);
                active[kept] = index;
                kept += 1;
            }
        }
        n_active = kept;
        for at in 0..n_active {
            rings[usize::from(active[at]) % GROUP].look_up(places[at], table);
        }
    }
    let mut symbols = Vec::with_capacity(LANES);
    for (index, ring) in rings[..n.min(GROUP)].iter().enumerate() {
        symbols.clear();
        ring.append_to(&mut symbols);
        each(index, &symbols);
    }
}
