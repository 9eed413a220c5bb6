use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

type Merge = (Vec<u8>, Vec<u8>);

/// Reference: merge the pair of lowest rank, leftmost first, and start over.
fn merged(merges: &[Merge], bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = bytes.iter().map(|&byte| vec![byte]).collect();
    loop {
        let rank = |two: &[Vec<u8>]| merges.iter().position(|(left, right)| *left == two[0] && *right == two[1]);
        let found = parts.windows(2).enumerate().filter_map(|(at, two)| Some((rank(two)?, at))).min();
        let Some((_, at)) = found else { return parts };
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
}

fn borrowed(merges: &[Merge]) -> Vec<(&[u8], &[u8])> {
    merges.iter().map(|(left, right)| (&left[..], &right[..])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn dropping_unused_merges_changes_no_ids(
        tokens in prop::collection::vec("[abc]{2,6}", 1..10),
        order in any::<u64>(),
        by_token in any::<bool>(),
        texts in prop::collection::vec("[abc]{0,20}", 1..12),
    ) {
        // All splits of the tokens and their prefixes, in token order or shuffled.
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
            for at in (1..merges.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                merges.swap(at, (state >> 33) as usize % (at + 1));
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
fn unused_splits_are_dropped() {
    let merges: [(&[u8], &[u8]); 4] = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")];
    assert_eq!(needed_merges(&merges).unwrap(), [0, 1, 3]);
    assert_eq!(needed_merges(&[]).unwrap(), [0; 0]);
    assert_eq!(needed_merges(&[(b"ab", b"c"), (b"", b"c"), (b"a", b"")]).unwrap(), [0; 0]);
}

#[test]
fn a_repeated_merge_is_refused() {
    let merges: [(&[u8], &[u8]); 3] = [(b"a", b"b"), (b"b", b"c"), (b"a", b"b")];
    let refused = needed_merges(&merges).unwrap_err().to_string();
    assert!(refused.contains("merge 2 (b\"a\" b\"b\") is there twice"));
}
