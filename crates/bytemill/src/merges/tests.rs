//! The incremental merge loop against one that counts everything again for every merge.

use super::learner::SMALL;
use super::symbols::huggingface_byte_order;
use super::*;
use crate::error::Error;
use crate::pulse::no_pulse;
use proptest::prelude::*;
use std::collections::HashMap;

/// Symbols as byte strings; all pairs counted afresh at each merge.
fn learn_plainly(
    words: &[(Vec<u8>, u64)],
    n_merges: usize,
    ties: Ties,
    min_count: u64,
) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let mut words: Vec<(Vec<Vec<u8>>, u64)> =
        words.iter().map(|(word, count)| (word.iter().map(|&byte| vec![byte]).collect(), *count)).collect();
    let byte_order = huggingface_byte_order();
    let mut made: Vec<Vec<u8>> = Vec::new();
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        let mut counts: HashMap<(&[u8], &[u8]), u64> = HashMap::new();
        for (word, count) in &words {
            for pair in word.windows(2) {
                *counts.entry((&pair[0], &pair[1])).or_insert(0) += count;
            }
        }
        let order = |symbol: &[u8]| match symbol {
            [byte] => byte_order[usize::from(*byte)] as usize,
            _ => 256 + made.iter().position(|known| known == symbol).unwrap(),
        };
        let best = counts.into_iter().filter(|(_, count)| *count >= min_count).max_by(|(p, m), (q, n)| {
            m.cmp(n).then_with(|| match ties {
                Ties::Bytes => p.cmp(q),
                Ties::HuggingFace => (order(q.0), order(q.1)).cmp(&(order(p.0), order(p.1))),
            })
        });
        let Some(((left, right), count)) = best else { break };
        let (left, right) = (left.to_vec(), right.to_vec());
        let joined = [left.clone(), right.clone()].concat();
        for (word, _) in &mut words {
            let mut at = 0;
            while at + 1 < word.len() {
                if word[at] == left && word[at + 1] == right {
                    word.splice(at..at + 2, [joined.clone()]);
                }
                at += 1;
            }
        }
        made.push(joined);
        merges.push((left, right, count));
    }
    merges
}

fn spelled(merges: &[Merge]) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let mut symbols: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut all = Vec::new();
    for merge in merges {
        let (left, right) = (symbols[merge.left as usize].clone(), symbols[merge.right as usize].clone());
        symbols.push([left.clone(), right.clone()].concat());
        all.push((left, right, merge.count));
    }
    all
}

fn counts_of(words: &[(Vec<u8>, u64)]) -> Counts {
    Counts::from_items(words.iter().cloned()).unwrap()
}

/// Few letters, so that runs, overlaps and ties abound.
fn words() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let word = prop::collection::vec(prop::sample::select(b"aab\x80 ".to_vec()), 1..24);
    prop::collection::hash_map(word, 1u64..6, 0..25).prop_map(|words| words.into_iter().collect())
}

/// Words of a list, each given twice, with a part of its count.
struct Listed(Vec<(Vec<u8>, u64)>);

impl Listed {
    fn least_bytes(&self, n_merges: usize) -> u64 {
        let sizes = Sizes::of(&mut Self(self.0.clone()), &no_pulse).unwrap();
        budget::least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_merges, 0)
    }
}

impl WordSource for Listed {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|(word, count)| each(word, count / 3))?;
        self.0.iter().rev().try_for_each(|(word, count)| each(word, count - count / 3))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn merges_equal_those_counted_afresh(
        words in words(),
        n_merges in 0usize..60,
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..5,
        n_threads in 1usize..5,
    ) {
        let counts = counts_of(&words);
        let learnt = learn(&counts, n_merges, ties, min_count, n_threads, |_| Ok(())).unwrap();
        prop_assert_eq!(spelled(&learnt), learn_plainly(&words, n_merges, ties, min_count));
    }

    #[test]
    fn merges_are_the_same_in_every_budget(
        words in words(),
        n_merges in 0usize..80,
        more_bytes in prop_oneof![0u64..100, 0u64..3_000, 0u64..20_000],
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        n_threads in 1usize..4,
        is_source in any::<bool>(),
    ) {
        let expected = learn_plainly(&words, n_merges, ties, min_count);
        let counts = counts_of(&words);
        let learnt = if is_source {
            let source = Listed(words);
            let max_bytes = Some(source.least_bytes(n_merges) + more_bytes);
            learn_from(source, n_merges, ties, min_count, n_threads, max_bytes, |_| Ok(()))
        } else {
            let max_bytes = Some(least_bytes_within(&counts, n_merges) + more_bytes);
            learn_within(counts, n_merges, ties, min_count, n_threads, max_bytes, |_| Ok(()))
        };
        prop_assert_eq!(spelled(&learnt.unwrap()), expected);
    }

    #[test]
    fn thresholds_on_the_way_change_nothing(
        words in words(),
        step in 1u64..4,
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        n_threads in 1usize..4,
    ) {
        let counts = counts_of(&words);
        let slots = Words::new(&counts, n_threads, &no_pulse).unwrap();
        let budget = Budget::new(None, 0, 0, 60).unwrap();
        let mut learner = Learner::new(slots, 60, ties, min_count, n_threads, budget);
        let mut threshold = 20;
        learner.track_from(threshold, &no_pulse).unwrap();
        let mut merges = Vec::new();
        while merges.len() < 60 {
            if let Some(pair) = learner.take_most_frequent() {
                merges.push(learner.merge(pair));
            } else if threshold > min_count {
                threshold = threshold.saturating_sub(step).max(min_count);
                learner.track_from(threshold, &no_pulse).unwrap();
            } else {
                break;
            }
        }
        prop_assert_eq!(spelled(&merges), learn_plainly(&words, 60, ties, min_count));
    }
}

#[test]
fn sennrichs_example() {
    let words = [("low", 5), ("lower", 2), ("widest", 3), ("newest", 6)];
    let counts = Counts::from_items(words.iter().map(|(word, count)| (word.as_bytes().to_vec(), *count))).unwrap();
    let merges = spelled(&learn(&counts, 12, Ties::Bytes, 1, 1, |_| Ok(())).unwrap());
    let text: Vec<String> = merges
        .iter()
        .map(|(left, right, _)| format!("{} {}", String::from_utf8_lossy(left), String::from_utf8_lossy(right)))
        .collect();
    assert_eq!(text.join(", "), "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r");
    assert_eq!(merges[0].2, 9);
}

#[test]
fn larger_words_go_through_thresholds_of_their_own() {
    let mut seed = 12345u64;
    let words: Vec<(Vec<u8>, u64)> = (0..3_000)
        .map(|_| {
            let word = (0..8)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    b'a' + ((seed >> 33) % 9).min((seed >> 40) % 9) as u8
                })
                .collect();
            (word, 1 + (seed >> 50) % 100)
        })
        .collect::<HashMap<_, _>>()
        .into_iter()
        .collect();
    let counts = counts_of(&words);
    assert!(counts.n_unique_bytes() > SMALL);
    for ties in [Ties::Bytes, Ties::HuggingFace] {
        let expected = learn_plainly(&words, 150, ties, 1);
        for n_threads in [1, 2, 3, 7] {
            let learnt = learn(&counts, 150, ties, 1, n_threads, |_| Ok(())).unwrap();
            assert_eq!(spelled(&learnt), expected);
            for more_bytes in [0, 2_000, 30_000, 200_000, 1_000_000] {
                let source = Listed(words.clone());
                let max_bytes = Some(source.least_bytes(150) + more_bytes);
                let learnt = learn_from(source, 150, ties, 1, n_threads, max_bytes, |_| Ok(())).unwrap();
                assert_eq!(spelled(&learnt), expected);
            }
        }
    }
}

#[test]
fn an_error_of_the_pulse_ends_learning() {
    let counts = Counts::from_items([(b"abababab".to_vec(), 3)].into_iter()).unwrap();
    let stopped = learn(&counts, 10, Ties::Bytes, 1, 1, |n| if n == 2 { Err(Error::Interrupted) } else { Ok(()) });
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
