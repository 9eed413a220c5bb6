//! Merging several short pre-tokens at once.
//!
//! What one merge costs is not arithmetic but waiting: the pair table is larger than the processor's near caches, and
//! every merge of a pre-token asks it for two pairs that are known only once the merge before is done. Pre-tokens
//! do not wait for each other, so a group of them is merged in rounds: in each, every one of them does its next merge
//! and asks for its two pairs ahead of time; then all the answers are taken. Where one is done, another takes its place.

use crate::pairs::{NONE, OUTSIDE, PairTable};

/// Pre-tokens that are merged at the same time: more than the processor can wait for gain nothing (12 to 32 are all the same).
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
    const PLACE_BITS: u32 = {
        // A symbol has 21 bits, a place at most 8.
        assert!(LANES.is_power_of_two() && LANES <= 256);
        LANES.trailing_zeros()
    };

    const EMPTY: Self =
        Self { priorities: [NO_PAIR; LANES], symbols: [OUTSIDE; LANES], next: [0; LANES], previous: [0; LANES] };

    /// Makes the ring of an empty one.
    #[inline(always)]
    fn fill(&mut self, table: &PairTable, pretoken: &[u8]) {
        let n = pretoken.len();
        self.next = std::array::from_fn(|place| place as u8 + 1);
        self.previous = std::array::from_fn(|place| (place as u8).wrapping_sub(1));
        self.next[n] = 0;
        self.previous[0] = n as u8;
        for (symbol, &byte) in self.symbols[1..].iter_mut().zip(pretoken) {
            *symbol = u32::from(byte);
        }
        for (place, pair) in pretoken.windows(2).enumerate() {
            self.priorities[place + 1] = Self::priority(table.get_bytes(pair[0], pair[1]), place + 1);
        }
    }

    #[inline(always)]
    fn priority(symbol: u32, place: usize) -> u32 {
        if symbol == NONE { NO_PAIR } else { symbol << Self::PLACE_BITS | place as u32 }
    }

    #[inline(always)]
    fn lowest(&self) -> u32 {
        self.priorities.iter().copied().fold(NO_PAIR, u32::min)
    }

    /// Does the merge that `lowest` names, but for the priorities of the two pairs that it makes. Gives its place.
    #[inline(always)]
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
    #[inline(always)]
    fn look_up(&mut self, place: u8, table: &PairTable) {
        let place = usize::from(place) % LANES;
        let after = usize::from(self.next[place]) % LANES;
        let before = usize::from(self.previous[place]) % LANES;
        let symbol = self.symbols[place];
        self.priorities[place] = Self::priority(table.get_symbols(symbol, self.symbols[after]), place);
        self.priorities[before] = Self::priority(table.get_symbols(self.symbols[before], symbol), before);
    }

    /// Puts the symbols of the ring into `symbols` and gives their number.
    #[inline(always)]
    fn symbols(&self, symbols: &mut [u32; LANES]) -> usize {
        let mut n = 0;
        let mut place = usize::from(self.next[0]);
        while place != 0 {
            symbols[n % LANES] = self.symbols[place % LANES];
            n += 1;
            place = usize::from(self.next[place % LANES]);
        }
        n
    }
}

/// Merges `n` pre-tokens of 1 to `LANES` - 1 bytes each, `MOST` of them at a time.
///
/// `bytes(index, lanes)` puts the bytes of a pre-token into the lanes and gives their number; `each(index, symbols)` is called
/// with the result of every one, in any order.
pub fn merge_group<const LANES: usize, const MOST: usize>(
    table: &PairTable,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    each: impl FnMut(usize, &[u32]),
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { merge_group_avx2::<LANES, MOST>(table, n, bytes, each) };
    }
    rounds::<LANES, MOST>(table, n, bytes, each);
}

/// With AVX2 the minimum is a matter of a few instructions; what every x86-64 has knows none for 32 bits.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn merge_group_avx2<const LANES: usize, const MOST: usize>(
    table: &PairTable,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    each: impl FnMut(usize, &[u32]),
) {
    rounds::<LANES, MOST>(table, n, bytes, each);
}

#[inline(always)]
pub(super) fn rounds<const LANES: usize, const MOST: usize>(
    table: &PairTable,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    mut each: impl FnMut(usize, &[u32]),
) {
    let mut rings = [Ring::<LANES>::EMPTY; MOST];
    // Which pre-token each ring holds; which rings have merges to do, and the place of the one under way.
    let mut held: [usize; MOST] = std::array::from_fn(|ring| ring);
    let mut active: [(u8, u8); MOST] = std::array::from_fn(|ring| (ring as u8, 0));
    let mut n_active = n.min(MOST);
    let mut waiting = n_active..n;
    let mut lanes = [0; LANES];
    let mut symbols = [0; LANES];
    for (index, ring) in rings[..n_active].iter_mut().enumerate() {
        let n_bytes = bytes(index, &mut lanes);
        ring.fill(table, &lanes[..n_bytes]);
    }
    while n_active > 0 {
        let mut kept = 0;
        for at in 0..n_active {
            let index = usize::from(active[at].0) % MOST;
            let ring = &mut rings[index];
            let mut lowest = ring.lowest();
            while lowest == NO_PAIR {
                let n_symbols = ring.symbols(&mut symbols);
                each(held[index], &symbols[..n_symbols]);
                // The next one takes its place, so that there is always as much to wait for at the same time.
                let Some(next) = waiting.next() else { break };
                let n_bytes = bytes(next, &mut lanes);
                *ring = Ring::EMPTY;
                ring.fill(table, &lanes[..n_bytes]);
                held[index] = next;
                lowest = ring.lowest();
            }
            if lowest != NO_PAIR {
                active[kept] = (index as u8, ring.join(lowest, table));
                kept += 1;
            }
        }
        n_active = kept;
        for &(index, place) in &active[..n_active] {
            rings[usize::from(index) % MOST].look_up(place, table);
        }
    }
}
