//! Lists of merges in which several make one token.
//!
//! Files that were made from ranks list every way to split a token into two. A token comes of one pair wherever it comes
//! about, that in which its own bytes are before their last merge (see [`super::Vocab::live_merges`]), so all merges but
//! that one can go. Which one it is, merging its bytes by the whole list says.

use super::{invalid, show};
use crate::error::Result;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The places of the merges that some text needs, in ascending order; no two of them make one token.
///
/// # Errors
/// [`crate::Error::Invalid`] for a merge that is there twice.
pub fn needed_merges(merges: &[(&[u8], &[u8])]) -> Result<Vec<usize>> {
    let mut numbers: HashMap<Vec<u8>, u32> = (0..=255u8).map(|byte| (vec![byte], u32::from(byte))).collect();
    let mut tokens: Vec<Vec<u8>> = Vec::new();
    for (left, right) in merges {
        let joined = [*left, *right].concat();
        let next = numbers.len() as u32;
        if !numbers.contains_key(&joined) {
            numbers.insert(joined.clone(), next);
            tokens.push(joined);
        }
    }
    let mut pairs = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        // With a part that nothing makes, a merge is never done.
        let (Some(&l), Some(&r)) = (numbers.get(*left), numbers.get(*right)) else { continue };
        if pairs.insert((l, r), (rank, numbers[&[*left, *right].concat()])).is_some() {
            return invalid(format!("merge {rank} ({} {}) is there twice", show(left), show(right)));
        }
    }
    let needed: HashSet<usize> = tokens.iter().filter_map(|token| last_merge(&pairs, token)).collect();
    Ok((0..merges.len()).filter(|rank| needed.contains(rank)).collect())
}

/// The rank of the last merge of a token's own bytes; None where they do not merge to one.
///
/// A queue of pairs by rank, then place, over a linked list; what an entry says counts only if it is still so.
fn last_merge(pairs: &HashMap<(u32, u32), (usize, u32)>, token: &[u8]) -> Option<usize> {
    const GONE: u32 = u32::MAX;
    let n = token.len();
    let mut symbols: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
    let mut next: Vec<usize> = (1..=n).collect();
    let mut previous: Vec<usize> = (0..n).map(|place| place.wrapping_sub(1)).collect();
    let mut waiting = BinaryHeap::new();
    let at = |symbols: &[u32], left: usize, right: usize| pairs.get(&(symbols[left], symbols[right])).copied();
    for place in 0..n.saturating_sub(1) {
        waiting.extend(at(&symbols, place, place + 1).map(|(rank, _)| Reverse((rank, place))));
    }
    let (mut n_left, mut last) = (n, None);
    while let Some(Reverse((rank, place))) = waiting.pop() {
        let right = next[place];
        if symbols[place] == GONE || right >= n {
            continue;
        }
        let Some((now, made)) = at(&symbols, place, right) else { continue };
        if now != rank {
            continue;
        }
        (symbols[place], symbols[right]) = (made, GONE);
        let behind = next[right];
        next[place] = behind;
        if behind < n {
            previous[behind] = place;
            waiting.extend(at(&symbols, place, behind).map(|(rank, _)| Reverse((rank, place))));
        }
        let before = previous[place];
        if before < n {
            waiting.extend(at(&symbols, before, place).map(|(rank, _)| Reverse((rank, before))));
        }
        (n_left, last) = (n_left - 1, Some(rank));
    }
    last.filter(|_| n_left == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Merge = (Vec<u8>, Vec<u8>);

    /// Lowest pair first, leftmost of equals, each time from the beginning.
    fn merged(merges: &[Merge], bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = bytes.iter().map(|&byte| vec![byte]).collect();
        loop {
            let rank = |two: &[Vec<u8>]| merges.iter().position(|(left, right)| *left == two[0] && *right == two[1]);
            let found = parts.windows(2).enumerate().filter_map(|(place, two)| Some((rank(two)?, place))).min();
            let Some((_, place)) = found else { return parts };
            let right = parts.remove(place + 1);
            parts[place].extend(right);
        }
    }

    fn borrowed(merges: &[Merge]) -> Vec<(&[u8], &[u8])> {
        merges.iter().map(|(left, right)| (&left[..], &right[..])).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_other_merges_change_nothing_in_any_text(
            tokens in prop::collection::vec("[abc]{2,6}", 1..10),
            order in any::<u64>(),
            by_token in any::<bool>(),
            texts in prop::collection::vec("[abc]{0,20}", 1..12),
        ) {
            // All ways to split the tokens and their parts, in the order of the tokens or in any.
            let mut all: Vec<Vec<u8>> = Vec::new();
            for token in tokens {
                for end in 2..=token.len() {
                    let part = token.as_bytes()[..end].to_vec();
                    if !all.contains(&part) {
                        all.push(part);
                    }
                }
            }
            let known = |part: &[u8]| part.len() == 1 || all.iter().any(|token| token == part);
            let mut merges: Vec<Merge> = Vec::new();
            for token in &all {
                for at in 1..token.len() {
                    let (left, right) = token.split_at(at);
                    if known(left) && known(right) {
                        merges.push((left.to_vec(), right.to_vec()));
                    }
                }
            }
            if !by_token {
                let mut state = order | 1;
                for place in (1..merges.len()).rev() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    merges.swap(place, (state >> 33) as usize % (place + 1));
                }
            }
            let needed: Vec<Merge> =
                needed_merges(&borrowed(&merges)).unwrap().into_iter().map(|rank| merges[rank].clone()).collect();
            let results: HashSet<Vec<u8>> = needed.iter().map(|(left, right)| [&left[..], &right[..]].concat()).collect();
            prop_assert_eq!(results.len(), needed.len());
            for result in &results {
                prop_assert_eq!(merged(&merges, result), vec![result.clone()]);
            }
            for text in texts.iter().map(String::as_bytes).chain(all.iter().map(|token| &token[..])) {
                prop_assert_eq!(merged(&merges, text), merged(&needed, text));
            }
        }
    }

    #[test]
    fn of_all_ways_to_split_a_token_the_one_that_happens_stays() {
        let merges: [(&[u8], &[u8]); 4] = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")];
        assert_eq!(needed_merges(&merges).unwrap(), [0, 1, 3]);
        assert_eq!(needed_merges(&[]).unwrap(), [0; 0]);
        assert_eq!(needed_merges(&[(b"ab", b"c"), (b"", b"c"), (b"a", b"")]).unwrap(), [0; 0]);
    }

    #[test]
    fn contradictions_are_named() {
        let merges: [(&[u8], &[u8]); 3] = [(b"a", b"b"), (b"b", b"c"), (b"a", b"b")];
        let refused = needed_merges(&merges).unwrap_err().to_string();
        assert!(refused.contains("merge 2 (b\"a\" b\"b\") is there twice"));
    }
}
