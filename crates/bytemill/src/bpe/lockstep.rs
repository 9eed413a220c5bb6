//! Merging several short pre-tokens at once.
//!
//! What one merge costs is not arithmetic but waiting: the pair table is larger than the processor's near caches, and
//! every merge of a pre-token asks it for two pairs that are known only once the merge before is done. Pre-tokens
//! do not wait for each other, so a group of them is merged in rounds: in each, every one of them does its next merge
//! and asks for its two pairs ahead of time; then all the answers are taken. Where one is done, another takes its place.

use crate::pairs::{NONE, OUTSIDE, Pairs};
use std::ops::Range;

/// Pre-tokens that are merged at the same time: more than the processor can wait for gain nothing (12 to 32 are all the same).
pub const GROUP: usize = 32;

/// A pre-token of fewer than `LANES` bytes.
///
/// Byte k is in place k + 1. In place 0 stands a symbol that nothing merges with, as behind the last byte, so that each merge is
/// done in the same way, wherever it is: one minimum and two look-ups. What decides how often a loop runs or where it branches would
/// cost more than it saves, since nobody foresees it; so places are filled and read that nobody needs.
#[derive(Clone, Copy)]
struct Ring<const LANES: usize> {
    /// For each place the symbol that it and the next one become, then the place: one minimum finds the lowest rank and
    /// the leftmost of its places. Where there is no such symbol, a number with the highest bit set.
    priorities: [u32; LANES],
    symbols: [u32; LANES],
    /// Bit k is set where byte k begins a symbol; a bit more stands for what is behind the last.
    starts: u64,
}

/// A merge under way: the places of the symbol and of the one before it, and the questions which pairs these and the next make.
#[derive(Clone, Copy, Default)]
struct Merge<Asked> {
    place: u8,
    before: u8,
    with_before: Asked,
    with_after: Asked,
}

impl<const LANES: usize> Ring<LANES> {
    const PLACE_BITS: u32 = {
        // A symbol has 21 bits, a place at most 8; bits of `starts` are 64.
        assert!(LANES.is_power_of_two() && LANES <= 64);
        LANES.trailing_zeros()
    };

    const EMPTY: Self = Self { priorities: [NONE; LANES], symbols: [OUTSIDE; LANES], starts: 0 };

    /// Fills the ring with the first `n` of `bytes`.
    #[inline(always)]
    fn fill(&mut self, table: &impl Pairs, bytes: &[u8; LANES], n: usize) {
        for place in 1..LANES {
            self.symbols[place] = if place <= n { u32::from(bytes[place - 1]) } else { OUTSIDE };
        }
        for place in 1..LANES - 1 {
            let priority = Self::priority(table.get_bytes(bytes[place - 1], bytes[place]), place);
            self.priorities[place] = if place < n { priority } else { NONE };
        }
        self.starts = u64::MAX >> (63 - n);
    }

    #[inline(always)]
    fn priority(symbol: u32, place: usize) -> u32 {
        const { assert!(NONE == u32::MAX) };
        symbol << Self::PLACE_BITS | place as u32
    }

    #[inline(always)]
    fn lowest(&self) -> u32 {
        self.priorities.iter().copied().fold(NONE, u32::min)
    }

    /// Does the merge that `lowest` names, but for the priorities of the two pairs that it makes.
    #[inline(always)]
    fn join<P: Pairs>(&mut self, lowest: u32, table: &P) -> Merge<P::Asked> {
        let place = lowest as usize % LANES;
        let symbol = lowest >> Self::PLACE_BITS;
        let behind = self.starts & u64::MAX << place;
        let right = behind.trailing_zeros() as usize + 1;
        let behind = behind & behind.wrapping_sub(1);
        // Behind the last place is place 0, where the same stands as behind the last byte.
        let after = (behind.trailing_zeros() as usize + 1) % LANES;
        let before = 64 - (self.starts & !(u64::MAX << (place - 1))).leading_zeros() as usize;
        self.starts &= !(1 << (right - 1));
        self.symbols[place] = symbol;
        self.priorities[right % LANES] = NONE;
        Merge {
            place: place as u8,
            before: before as u8,
            with_before: table.ask(self.symbols[before % LANES], symbol),
            with_after: table.ask(symbol, self.symbols[after]),
        }
    }

    /// Looks up the two pairs that a merge has made.
    #[inline(always)]
    fn look_up<P: Pairs>(&mut self, merge: &Merge<P::Asked>, table: &P) {
        let (place, before) = (usize::from(merge.place) % LANES, usize::from(merge.before) % LANES);
        self.priorities[place] = Self::priority(table.answer(merge.with_after), place);
        self.priorities[before] = Self::priority(table.answer(merge.with_before), before);
    }

    /// Puts the symbols of the ring into `symbols` and gives their number.
    #[inline(always)]
    fn symbols(&self, symbols: &mut [u32; LANES]) -> usize {
        let mut starts = self.starts;
        let n_symbols = starts.count_ones() as usize - 1;
        // Of a word nearly always at once.
        for some in symbols.chunks_mut(4).take(n_symbols.div_ceil(4)) {
            for symbol in some {
                *symbol = self.symbols[(starts.trailing_zeros() as usize + 1) % LANES];
                starts &= starts.wrapping_sub(1);
            }
        }
        n_symbols
    }
}

/// Merges `n` pre-tokens of 1 to `LANES` - 1 bytes each, `MOST` of them at a time.
///
/// `bytes(index, lanes)` puts the bytes of a pre-token into the lanes and gives their number; what is behind these may be anything.
/// `each(index, symbols, n_symbols)` is called with the result of every one, in any order.
pub fn merge_group<const LANES: usize, const MOST: usize, P: Pairs>(
    table: &P,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    each: impl FnMut(usize, &[u32; LANES], usize),
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { merge_group_avx2::<LANES, MOST, P>(table, n, bytes, each) };
    }
    rounds::<LANES, MOST, P>(table, n, bytes, each);
}

/// With AVX2 the minimum is a matter of a few instructions; what every x86-64 has knows none for 32 bits.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn merge_group_avx2<const LANES: usize, const MOST: usize, P: Pairs>(
    table: &P,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    each: impl FnMut(usize, &[u32; LANES], usize),
) {
    rounds::<LANES, MOST, P>(table, n, bytes, each);
}

#[inline(always)]
pub(super) fn rounds<const LANES: usize, const MOST: usize, P: Pairs>(
    table: &P,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    mut each: impl FnMut(usize, &[u32; LANES], usize),
) {
    if n == 0 {
        // A short text that is known would pay for the rings.
        return;
    }
    let mut rings = [Ring::<LANES>::EMPTY; MOST];
    // Which pre-token each ring holds, and what its lowest priority is.
    let mut held = [0; MOST];
    let mut lowest = [NONE; MOST];
    let mut merges = [Merge::default(); MOST];
    // Rings without pairs that become a symbol.
    let mut done = [0; MOST];
    let mut waiting = 0..n;
    let mut n_active = n.min(MOST);
    let mut symbols = [0; LANES];
    for (ring, held) in rings[..n_active].iter_mut().zip(&mut held) {
        fill_next(ring, held, &mut waiting, table, &bytes);
    }
    while n_active > 0 {
        let mut n_done = 0;
        // Not where priorities are stored one by one: to load them all at once the processor waits until they are.
        for (index, lowest) in lowest[..n_active].iter_mut().enumerate() {
            *lowest = rings[index].lowest();
            done[n_done % MOST] = index;
            n_done += usize::from(is_none(*lowest));
        }
        // The last ones first: where there is no more to come, the last ring takes the place of one that is done.
        for &index in done[..n_done].iter().rev() {
            while is_none(lowest[index]) {
                let n_symbols = rings[index].symbols(&mut symbols);
                each(held[index], &symbols, n_symbols);
                if fill_next(&mut rings[index], &mut held[index], &mut waiting, table, &bytes) {
                    lowest[index] = rings[index].lowest();
                    continue;
                }
                n_active -= 1;
                rings[index] = rings[n_active];
                held[index] = held[n_active];
                lowest[index] = lowest[n_active];
                break;
            }
        }
        for (index, merge) in merges[..n_active].iter_mut().enumerate() {
            *merge = rings[index].join(lowest[index], table);
        }
        for (index, merge) in merges[..n_active].iter().enumerate() {
            rings[index].look_up(merge, table);
        }
    }
}

/// Fills a ring with the next of those that wait, if there is one.
#[inline(always)]
fn fill_next<const LANES: usize>(
    ring: &mut Ring<LANES>,
    held: &mut usize,
    waiting: &mut Range<usize>,
    table: &impl Pairs,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
) -> bool {
    let Some(next) = waiting.next() else { return false };
    *held = next;
    let mut lanes = [0; LANES];
    let n_bytes = bytes(next, &mut lanes);
    ring.fill(table, &lanes, n_bytes);
    true
}

#[inline(always)]
fn is_none(lowest: u32) -> bool {
    lowest.cast_signed() < 0
}
