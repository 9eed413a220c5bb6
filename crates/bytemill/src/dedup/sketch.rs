//! MinHash sketches: 128 numbers of a set. Two sets share each of them with a probability that is their Jaccard similarity.
//!
//! Fast similarity sketching (Dahlgaard, Knudsen, Thorup, 2017). In a round, every element falls into one of the 128 bins with a
//! random value, and the bin keeps the smallest. Bins that stay empty are filled in further rounds with other random numbers, the
//! last rounds put every element into a certain bin, so that no bin stays empty.
//!
//! **Unbiased.** Consider the union of two sets, and the first round in which one of its elements falls into the bin. The smallest
//! such element is equally likely to be any element of the union. If it is in both sets, both keep its value. If it is in one
//! only, the other keeps another value, of this round or a later one. So the bins agree exactly if the element is in both.
//!
//! One round takes one hash an element, where 128 hash functions would take 128. A set of n elements takes about
//! max(n, 128 ln 128) steps.

use super::shingles::mix;

/// Numbers in a sketch.
pub const SIZE: usize = 128;

/// The number of a bin that no element fell into: every sketch of the empty set, no other.
pub const EMPTY: u32 = u32::MAX;

/// The sketch of a set of well-mixed hashes.
pub fn sketch(set: &[u64]) -> [u32; SIZE] {
    let mut bins = [EMPTY; SIZE];
    if set.is_empty() {
        return bins;
    }
    for &element in set {
        let bin = &mut bins[bin_of(element)];
        *bin = value_of(element).min(*bin);
    }
    let mut open = bins.iter().enumerate().fold(0_u128, |open, (bin, &value)| open | u128::from(value == EMPTY) << bin);
    for round in 1..SIZE as u64 {
        if open == 0 {
            return bins;
        }
        let before = open;
        for &element in set {
            let hash = hash_of(element, round);
            let bin = bin_of(hash);
            if before >> bin & 1 == 1 {
                bins[bin] = value_of(hash).min(bins[bin]);
                open &= !(1 << bin);
            }
        }
    }
    for (bin, value) in bins.iter_mut().enumerate().filter(|(bin, _)| open >> bin & 1 == 1) {
        let hash = |&element| value_of(hash_of(element, (SIZE + bin) as u64));
        *value = set.iter().map(hash).min().unwrap_or(EMPTY);
    }
    bins
}

/// The hash of an element in a round after the first.
#[inline]
fn hash_of(element: u64, round: u64) -> u64 {
    mix(element ^ round.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[inline]
fn bin_of(hash: u64) -> usize {
    (hash >> 57) as usize
}

#[inline]
fn value_of(hash: u64) -> u32 {
    (hash as u32).min(EMPTY - 1)
}

/// Number of bins that two sketches share.
#[inline]
pub fn n_shared(a: &[u32; SIZE], b: &[u32; SIZE]) -> usize {
    a.iter().zip(b).map(|(a, b)| u32::from(a == b)).sum::<u32>() as usize
}

#[cfg(test)]
#[path = "tests/sketch.rs"]
mod tests;
