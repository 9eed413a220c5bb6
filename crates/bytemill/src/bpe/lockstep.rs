//! Merging several short pre-tokens at once.
//!
//! What a merge costs is not arithmetic but waiting: the pair table is larger than the processor's near caches, and every
//! merge of a pre-token looks up two pairs that are known only once the merge before is done. Pre-tokens do not depend on
//! each other, so a group of them is merged in rounds. In each round every pre-token does its next merge and prefetches its
//! two pairs; then all lookups are finished. When a pre-token is done, another one takes its place.

#[cfg(target_arch = "x86_64")]
use crate::sys::cpu::{Avx2, Kernel};
use crate::vocab::pair_table::{NONE, OUTSIDE, PairTable, PrefetchedPair};
use std::ops::Range;

/// Pre-tokens merged at the same time; 12 to 32 are equally fast.
pub const GROUP: usize = 32;

/// A pre-token of fewer than `LANES` bytes.
///
/// Byte k is in lane k + 1. Lane 0 and the lanes after the last byte hold a symbol that merges with nothing, so every merge is
/// done in the same way: one minimum and two lookups. Unpredictable branches and loop counts would cost more than they save,
/// so lanes are written and read that are not needed.
#[derive(Clone, Copy)]
struct Ring<const LANES: usize> {
    /// For each lane the symbol that it and the next one merge to, then the lane number: one minimum finds the lowest rank and
    /// the leftmost of its pairs. The highest bit is set if the pair does not merge.
    priorities: [u32; LANES],
    symbols: [u32; LANES],
    /// Bit k is set if byte k starts a symbol; one more bit marks the end.
    starts: u64,
}

/// A merge in progress: the lanes of the merged symbol and of the one before it, and the pairs they make with the next ones.
#[derive(Clone, Copy, Default)]
struct Merge {
    lane: u8,
    before: u8,
    with_before: PrefetchedPair,
    with_after: PrefetchedPair,
}

impl<const LANES: usize> Ring<LANES> {
    const LANE_BITS: u32 = {
        // A symbol has 21 bits, a lane number at most 6; `starts` has 64 bits.
        assert!(LANES.is_power_of_two() && LANES <= 64);
        LANES.trailing_zeros()
    };

    const EMPTY: Self = Self { priorities: [NONE; LANES], symbols: [OUTSIDE; LANES], starts: 0 };

    /// Fills the ring with the first `n` of `bytes`.
    #[inline(always)]
    fn fill(&mut self, pairs: &PairTable, bytes: &[u8; LANES], n: usize) {
        for lane in 1..LANES {
            self.symbols[lane] = if lane <= n { u32::from(bytes[lane - 1]) } else { OUTSIDE };
        }
        for lane in 1..LANES - 1 {
            let priority = Self::priority(pairs.get_bytes(bytes[lane - 1], bytes[lane]), lane);
            self.priorities[lane] = if lane < n { priority } else { NONE };
        }
        self.starts = u64::MAX >> (63 - n);
    }

    #[inline(always)]
    fn priority(symbol: u32, lane: usize) -> u32 {
        const { assert!(NONE == u32::MAX) };
        symbol << Self::LANE_BITS | lane as u32
    }

    #[inline(always)]
    fn lowest(&self) -> u32 {
        self.priorities.iter().copied().fold(NONE, u32::min)
    }

    /// Does the merge that `lowest` names, except for the priorities of the two new pairs.
    #[inline(always)]
    fn merge(&mut self, lowest: u32, pairs: &PairTable) -> Merge {
        let lane = lowest as usize % LANES;
        let symbol = lowest >> Self::LANE_BITS;
        let following = self.starts & u64::MAX << lane;
        let right = following.trailing_zeros() as usize + 1;
        let following = following & following.wrapping_sub(1);
        // After the last lane comes lane 0, which holds the same as the lanes after the last byte.
        let after = (following.trailing_zeros() as usize + 1) % LANES;
        let before = 64 - (self.starts & !(u64::MAX << (lane - 1))).leading_zeros() as usize;
        self.starts &= !(1 << (right - 1));
        self.symbols[lane] = symbol;
        self.priorities[right % LANES] = NONE;
        Merge {
            lane: lane as u8,
            before: before as u8,
            with_before: pairs.prefetch(self.symbols[before % LANES], symbol),
            with_after: pairs.prefetch(symbol, self.symbols[after]),
        }
    }

    /// Looks up the two pairs that a merge has made.
    #[inline(always)]
    fn look_up(&mut self, merge: &Merge, pairs: &PairTable) {
        let (lane, before) = (usize::from(merge.lane) % LANES, usize::from(merge.before) % LANES);
        self.priorities[lane] = Self::priority(pairs.get_prefetched(merge.with_after), lane);
        self.priorities[before] = Self::priority(pairs.get_prefetched(merge.with_before), before);
    }

    /// Copies the symbols of the ring to `symbols` and returns their number.
    #[inline(always)]
    fn symbols(&self, symbols: &mut [u32; LANES]) -> usize {
        let mut starts = self.starts;
        let n_symbols = starts.count_ones() as usize - 1;
        // Nearly always one round for a word.
        for four in symbols.chunks_mut(4).take(n_symbols.div_ceil(4)) {
            for symbol in four {
                *symbol = self.symbols[(starts.trailing_zeros() as usize + 1) % LANES];
                starts &= starts.wrapping_sub(1);
            }
        }
        n_symbols
    }
}

/// Merges `n` pre-tokens of 1 to `LANES` - 1 bytes each, `MAX` of them at a time.
///
/// `bytes(index, lanes)` writes the bytes of a pre-token to the front of `lanes` and returns their number; the rest may hold
/// anything. `each(index, symbols, n_symbols)` is called with every result, in any order.
pub fn merge_group<const LANES: usize, const MAX: usize>(
    pairs: &PairTable,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    each: impl FnMut(usize, &[u32; LANES], usize),
) {
    // With AVX2 the minimum takes a few instructions; SSE2, which every x86-64 has, lacks one for 32 bits.
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Avx2::detect() {
        return avx2.run(Rounds::<LANES, MAX, _, _> { pairs, n, bytes, each });
    }
    merge_in_rounds::<LANES, MAX>(pairs, n, bytes, each);
}

#[cfg(target_arch = "x86_64")]
struct Rounds<'p, const LANES: usize, const MAX: usize, B, E> {
    pairs: &'p PairTable,
    n: usize,
    bytes: B,
    each: E,
}

#[cfg(target_arch = "x86_64")]
impl<const LANES: usize, const MAX: usize, B, E> Kernel<Avx2> for Rounds<'_, LANES, MAX, B, E>
where
    B: Fn(usize, &mut [u8; LANES]) -> usize,
    E: FnMut(usize, &[u32; LANES], usize),
{
    type Output = ();

    #[inline(always)]
    fn run(self, _: Avx2) {
        merge_in_rounds::<LANES, MAX>(self.pairs, self.n, self.bytes, self.each);
    }
}

#[inline(always)]
pub(super) fn merge_in_rounds<const LANES: usize, const MAX: usize>(
    pairs: &PairTable,
    n: usize,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
    mut each: impl FnMut(usize, &[u32; LANES], usize),
) {
    if n == 0 {
        // A short text that the cache holds would pay for initialising the rings.
        return;
    }
    let mut rings = [Ring::<LANES>::EMPTY; MAX];
    // Which pre-token each ring holds, and its lowest priority.
    let mut held = [0; MAX];
    let mut lowest = [NONE; MAX];
    let mut merges = [Merge::default(); MAX];
    // Rings without a pair that merges.
    let mut done = [0; MAX];
    let mut waiting = 0..n;
    let mut n_active = n.min(MAX);
    let mut symbols = [0; LANES];
    for (ring, held) in rings[..n_active].iter_mut().zip(&mut held) {
        fill_next(ring, held, &mut waiting, pairs, &bytes);
    }
    while n_active > 0 {
        let mut n_done = 0;
        // A pass of its own: loading priorities as a vector right after single ones were stored would stall.
        for (index, lowest) in lowest[..n_active].iter_mut().enumerate() {
            *lowest = rings[index].lowest();
            done[n_done % MAX] = index;
            n_done += usize::from(is_none(*lowest));
        }
        // The last ones first: if no pre-token is waiting, the last ring takes the place of a done one.
        for &index in done[..n_done].iter().rev() {
            while is_none(lowest[index]) {
                let n_symbols = rings[index].symbols(&mut symbols);
                each(held[index], &symbols, n_symbols);
                if fill_next(&mut rings[index], &mut held[index], &mut waiting, pairs, &bytes) {
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
            *merge = rings[index].merge(lowest[index], pairs);
        }
        for (index, merge) in merges[..n_active].iter().enumerate() {
            rings[index].look_up(merge, pairs);
        }
    }
}

/// Fills a ring with the next waiting pre-token; returns false if there is none.
#[inline(always)]
fn fill_next<const LANES: usize>(
    ring: &mut Ring<LANES>,
    held: &mut usize,
    waiting: &mut Range<usize>,
    pairs: &PairTable,
    bytes: impl Fn(usize, &mut [u8; LANES]) -> usize,
) -> bool {
    let Some(next) = waiting.next() else { return false };
    *held = next;
    let mut lanes = [0; LANES];
    let n_bytes = bytes(next, &mut lanes);
    ring.fill(pairs, &lanes, n_bytes);
    true
}

#[inline(always)]
fn is_none(lowest: u32) -> bool {
    lowest.cast_signed() < 0
}
