//! Offsets in a pre-token that no token crosses.
//!
//! A merge makes a token of neighbouring bytes. Where no token of the vocabulary could lie across an offset, whatever it was
//! merged from, the bytes on both sides never meet and can be encoded apart. Long runs of letters without blanks (Chinese,
//! Japanese, Thai) fall into parts of a few characters, which occur again and again.

use crate::sys::hash::fold;
use std::ops::Range;

/// Which neighbourhoods of an offset some token covers.
///
/// A token that crosses the boundary between b and c in `a b c d` is `b c`, or begins with `b c d`, or ends with `a b c`, or
/// contains all four. There is a set for each; those of three and four bytes are hashed to bits, so two neighbourhoods that
/// share a bit cost a cut and nothing else.
pub struct MergeBarriers {
    pairs: Box<[u64]>,
    wider: Box<[u64]>,
}

/// 2²⁰ bits, 128 KB: cl100k has 88,000 neighbourhoods, o200k 155,000.
const WIDER_LOG2: u32 = 20;

#[derive(Clone, Copy)]
enum Kind {
    Begins = 1,
    Ends,
    Contains,
}

#[inline]
fn bit_of(bytes: u32, kind: Kind) -> usize {
    (fold(u64::from(bytes) | (kind as u64) << 32, 0x9E37_79B9_7F4A_7C15) >> (64 - WIDER_LOG2)) as usize
}

fn set(bits: &mut [u64], bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

#[inline]
fn is_set(bits: &[u64], bit: usize) -> bool {
    bits[bit / 64] >> (bit % 64) & 1 == 1
}

#[inline]
fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

impl MergeBarriers {
    /// The barriers that `tokens` leave.
    pub fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut pairs = vec![0; (1 << 16) / 64].into_boxed_slice();
        let mut wider = vec![0; (1 << WIDER_LOG2) / 64].into_boxed_slice();
        for token in tokens {
            if let &[left, right] = token {
                set(&mut pairs, usize::from(left) << 8 | usize::from(right));
            }
            if let (Some(first), Some(last)) = (token.first_chunk::<3>(), token.last_chunk::<3>()) {
                set(&mut wider, bit_of(big_endian(first), Kind::Begins));
                set(&mut wider, bit_of(big_endian(last), Kind::Ends));
            }
            for four in token.windows(4) {
                set(&mut wider, bit_of(big_endian(four), Kind::Contains));
            }
        }
        Self { pairs, wider }
    }

    /// Calls `each` with the offsets of characters outside ASCII before which there is a barrier, in order.
    ///
    /// (Between ASCII characters barriers are rare, inside a character of several bytes rarer still.)
    pub fn for_each(&self, pretoken: &[u8], each: &mut dyn FnMut(usize)) {
        for offset in 1..pretoken.len() {
            if pretoken[offset] >= 0xC0 && self.is_barrier(pretoken, offset) {
                each(offset);
            }
        }
    }

    /// Whether no token that lies in `text` crosses `offset`, which is inside `text`.
    #[inline]
    fn is_barrier(&self, text: &[u8], offset: usize) -> bool {
        let is_covered = |neighbours: Range<usize>, kind| {
            text.get(neighbours).is_some_and(|bytes| is_set(&self.wider, bit_of(big_endian(bytes), kind)))
        };
        // Offset 1 has no byte a; the range that wraps around is none either.
        let (a, b) = (offset.wrapping_sub(2), offset - 1);
        !(is_set(&self.pairs, big_endian(&text[b..=offset]) as usize)
            || is_covered(b..offset + 2, Kind::Begins)
            || is_covered(a..offset + 1, Kind::Ends)
            || is_covered(a..offset + 2, Kind::Contains))
    }
}

#[cfg(test)]
#[path = "tests/merge_barriers.rs"]
mod tests;
