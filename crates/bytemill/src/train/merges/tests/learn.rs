//! Learning compared to a reference that counts all pairs again for every merge.

use crate::error::Error;
use crate::error::Result;
use crate::sys::interrupt::no_interrupt;
use crate::train::count::Counts;
use crate::train::merges::budget::{Budget, least_bytes};
use crate::train::merges::learner::{Learner, SMALL_SLOTS, Settings, check_n_merges};
use crate::train::merges::pretoken_slots::{PretokenSlots, Sizes, check_n_slots};
use crate::train::merges::symbols::huggingface_byte_order;
use crate::train::merges::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Reference implementation: symbols are byte strings, and all pairs are counted for every merge.
fn learn_reference(
    pretokens: &[(Vec<u8>, u64)],
    n_merges: usize,
    ties: Ties,
    min_count: u64,
) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    learn_reference_with(pretokens, n_merges, ties, min_count, |_| false)
}

/// The same without merges whose token is forbidden.
fn learn_reference_with(
    pretokens: &[(Vec<u8>, u64)],
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    forbids: impl Fn(&[u8]) -> bool,
) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let mut pretokens: Vec<(Vec<Vec<u8>>, u64)> =
        pretokens.iter().map(|(pretoken, count)| (pretoken.iter().map(|&byte| vec![byte]).collect(), *count)).collect();
    let byte_order = huggingface_byte_order();
    let mut made: Vec<Vec<u8>> = Vec::new();
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        let mut counts: HashMap<(&[u8], &[u8]), u64> = HashMap::new();
        for (pretoken, count) in &pretokens {
            for pair in pretoken.windows(2) {
                *counts.entry((&pair[0], &pair[1])).or_insert(0) += count;
            }
        }
        let order = |symbol: &[u8]| match symbol {
            [byte] => byte_order[usize::from(*byte)] as usize,
            _ => 256 + made.iter().position(|known| known == symbol).unwrap(),
        };
        let is_allowed =
            |((left, right), count): &((&[u8], &[u8]), u64)| *count >= min_count && !forbids(&[*left, *right].concat());
        let best = counts.into_iter().filter(is_allowed).max_by(|(p, m), (q, n)| {
            m.cmp(n).then_with(|| match ties {
                Ties::Bytes => p.cmp(q),
                Ties::HuggingFace => (order(q.0), order(q.1)).cmp(&(order(p.0), order(p.1))),
            })
        });
        let Some(((left, right), count)) = best else { break };
        let (left, right) = (left.to_vec(), right.to_vec());
        let joined = [left.clone(), right.clone()].concat();
        for (pretoken, _) in &mut pretokens {
            let mut at = 0;
            while at + 1 < pretoken.len() {
                if pretoken[at] == left && pretoken[at + 1] == right {
                    pretoken.splice(at..at + 2, [joined.clone()]);
                }
                at += 1;
            }
        }
        made.push(joined);
        merges.push((left, right, count));
    }
    merges
}

fn byte_strings(merges: &[Merge]) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let mut symbols: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut all = Vec::new();
    for merge in merges {
        let (left, right) = (symbols[merge.left as usize].clone(), symbols[merge.right as usize].clone());
        symbols.push([left.clone(), right.clone()].concat());
        all.push((left, right, merge.count));
    }
    all
}

fn counts_of(pretokens: &[(Vec<u8>, u64)]) -> Counts {
    Counts::from_items(pretokens.iter().cloned()).unwrap()
}

/// Pre-tokens of few letters, with many runs, overlaps and ties.
fn pretokens() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let pretoken = prop::collection::vec(prop::sample::select(b"aab\x80 ".to_vec()), 1..24);
    prop::collection::hash_map(pretoken, 1u64..6, 0..25).prop_map(|pretokens| pretokens.into_iter().collect())
}

/// Yields each pre-token of a list twice, with a part of its count.
struct Listed(Vec<(Vec<u8>, u64)>);

impl Listed {
    fn least_bytes(&self, n_merges: usize) -> u64 {
        let sizes = Sizes::of(&mut Self(self.0.clone()), &no_interrupt).unwrap();
        least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_merges, 0, 0)
    }
}

impl PretokenSource for Listed {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|(pretoken, count)| each(pretoken, count / 3))?;
        self.0.iter().rev().try_for_each(|(pretoken, count)| each(pretoken, count - count / 3))
    }
}

/// The first merges of a training as a vocabulary. It has the tokens `taken` too, which no merge makes.
struct Learned {
    merges: Vec<Merge>,
    symbols: Vec<Vec<u8>>,
    taken: Vec<Vec<u8>>,
}

impl Learned {
    fn new(merges: Vec<Merge>, taken: Vec<Vec<u8>>) -> Self {
        let mut symbols: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        for merge in &merges {
            symbols.push([symbols[merge.left as usize].clone(), symbols[merge.right as usize].clone()].concat());
        }
        Self { merges, symbols, taken }
    }
}

impl Base for Learned {
    fn n_symbols(&self) -> usize {
        self.symbols.len()
    }

    fn symbol(&self, symbol: u32) -> &[u8] {
        &self.symbols[symbol as usize]
    }

    fn segment(&self, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()> {
        let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
        for (merge, merged) in self.merges.iter().zip(256..) {
            let mut at = 0;
            while at + 1 < symbols.len() {
                if symbols[at] == merge.left && symbols[at + 1] == merge.right {
                    symbols.splice(at..at + 2, [merged]);
                }
                at += 1;
            }
        }
        out.extend(symbols);
        Ok(())
    }

    fn excludes(&self, token: &[u8]) -> bool {
        self.taken.iter().any(|taken| taken == token)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn learning_more_continues_where_learning_ended(
        pretokens in pretokens(),
        n_first in 0usize..80,
        n_more in 0usize..40,
        more_bytes in prop_oneof![Just(None), (0u64..20_000).prop_map(Some)],
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        n_threads in 1usize..4,
    ) {
        let expected = learn_reference(&pretokens, n_first + n_more, ties, min_count);
        let counts = counts_of(&pretokens);
        let first = learn(&counts, n_first, ties, min_count, n_threads, |_| Ok(())).unwrap();
        let base = Learned::new(first.clone(), Vec::new());
        let source = Listed(pretokens);
        let sizes = Sizes::of(&mut Listed(source.0.clone()), &no_interrupt).unwrap();
        let least = least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_more, 0, first.len());
        let max_bytes = more_bytes.map(|more| (least + more, 0));
        let more = learn_more(source, &base, n_more, ties, min_count, n_threads, max_bytes, |_| Ok(())).unwrap();
        let all: Vec<Merge> = first.into_iter().chain(more).collect();
        prop_assert_eq!(byte_strings(&all), expected);
    }

    #[test]
    fn no_merge_makes_a_forbidden_token(
        pretokens in pretokens(),
        n_merges in 0usize..60,
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        longest in 1usize..6,
        letter in prop::sample::select(b"ab\x80 ".to_vec()),
        more_bytes in prop_oneof![Just(None), (0u64..20_000).prop_map(Some)],
    ) {
        let forbids = |token: &[u8]| token.len() > longest || token.ends_with(&[letter, letter]);
        let ruled = Ruled { base: None, forbids: &forbids };
        let source = Listed(pretokens.clone());
        let least = source.least_bytes(n_merges);
        let max_bytes = more_bytes.map(|more| (least + more, 0));
        let learned = learn_more(source, &ruled, n_merges, ties, min_count, 2, max_bytes, |_| Ok(())).unwrap();
        let expected = learn_reference_with(&pretokens, n_merges, ties, min_count, forbids);
        prop_assert_eq!(byte_strings(&learned), expected);
    }

    #[test]
    fn no_merge_makes_a_token_that_the_vocabulary_has(
        pretokens in pretokens(),
        n_merges in 1usize..30,
        nth in 0usize..10,
        more_bytes in prop_oneof![Just(None), (0u64..5_000).prop_map(Some)],
    ) {
        let counts = counts_of(&pretokens);
        let free = byte_strings(&learn(&counts, n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap());
        let taken: Vec<Vec<u8>> =
            free.iter().skip(nth).take(1).map(|(left, right, _)| [&left[..], right].concat()).collect();
        let base = Learned::new(Vec::new(), taken.clone());
        let source = Listed(pretokens);
        let least = source.least_bytes(n_merges);
        let max_bytes = more_bytes.map(|more| (least + more, 0));
        let learned = learn_more(source, &base, n_merges, Ties::Bytes, 1, 2, max_bytes, |_| Ok(())).unwrap();
        let learned = byte_strings(&learned);
        prop_assert!(learned.iter().all(|(left, right, _)| !taken.contains(&[&left[..], right].concat())));
        let n_equal = nth.min(free.len()).min(learned.len());
        prop_assert_eq!(&learned[..n_equal], &free[..n_equal]);
    }

    #[test]
    fn merges_equal_the_reference(
        pretokens in pretokens(),
        n_merges in 0usize..60,
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..5,
        n_threads in 1usize..5,
    ) {
        let counts = counts_of(&pretokens);
        let learned = learn(&counts, n_merges, ties, min_count, n_threads, |_| Ok(())).unwrap();
        prop_assert_eq!(byte_strings(&learned), learn_reference(&pretokens, n_merges, ties, min_count));
    }

    #[test]
    fn merges_do_not_depend_on_the_memory_limit(
        pretokens in pretokens(),
        n_merges in 0usize..80,
        more_bytes in prop_oneof![0u64..100, 0u64..3_000, 0u64..20_000],
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        n_threads in 1usize..4,
        is_source in any::<bool>(),
    ) {
        let expected = learn_reference(&pretokens, n_merges, ties, min_count);
        let counts = counts_of(&pretokens);
        let learned = if is_source {
            let source = Listed(pretokens);
            let max_bytes = Some(source.least_bytes(n_merges) + more_bytes);
            learn_from(source, n_merges, ties, min_count, n_threads, max_bytes, |_| Ok(()))
        } else {
            let max_bytes = Some(least_bytes_within(&counts, n_merges) + more_bytes);
            learn_within(counts, n_merges, ties, min_count, n_threads, max_bytes, |_| Ok(()))
        };
        prop_assert_eq!(byte_strings(&learned.unwrap()), expected);
    }

    #[test]
    fn merges_do_not_depend_on_thresholds(
        pretokens in pretokens(),
        step in 1u64..4,
        ties in prop::sample::select(vec![Ties::Bytes, Ties::HuggingFace]),
        min_count in 1u64..4,
        n_threads in 1usize..4,
    ) {
        let counts = counts_of(&pretokens);
        let sizes = Sizes::of(&mut &counts, &no_interrupt).unwrap();
        let slots = PretokenSlots::new(&mut &counts, &sizes, &no_interrupt).unwrap();
        let budget = Budget::new(None, 0, 0, 60, 0, 0).unwrap();
        let settings = Settings { n_merges: 60, ties, min_count, n_threads };
        let mut learner = Learner::new(slots, settings, budget, None, &no_interrupt).unwrap();
        let mut threshold = 20;
        learner.track_from(threshold, &no_interrupt).unwrap();
        let mut merges = Vec::new();
        while merges.len() < 60 {
            if let Some(pair) = learner.take_most_frequent() {
                merges.push(learner.merge(pair));
            } else if threshold > min_count {
                threshold = threshold.saturating_sub(step).max(min_count);
                learner.track_from(threshold, &no_interrupt).unwrap();
            } else {
                break;
            }
        }
        prop_assert_eq!(byte_strings(&merges), learn_reference(&pretokens, 60, ties, min_count));
    }
}

#[test]
fn sennrichs_example() {
    let pretokens = [("low", 5), ("lower", 2), ("widest", 3), ("newest", 6)];
    let counts =
        Counts::from_items(pretokens.iter().map(|(pretoken, count)| (pretoken.as_bytes().to_vec(), *count))).unwrap();
    let merges = byte_strings(&learn(&counts, 12, Ties::Bytes, 1, 1, |_| Ok(())).unwrap());
    let text: Vec<String> = merges
        .iter()
        .map(|(left, right, _)| format!("{} {}", String::from_utf8_lossy(left), String::from_utf8_lossy(right)))
        .collect();
    assert_eq!(text.join(", "), "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r");
    assert_eq!(merges[0].2, 9);
}

#[test]
fn larger_inputs_use_several_thresholds() {
    let mut seed = 12345u64;
    let pretokens: Vec<(Vec<u8>, u64)> = (0..3_000)
        .map(|_| {
            let pretoken = (0..8)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    b'a' + ((seed >> 33) % 9).min((seed >> 40) % 9) as u8
                })
                .collect();
            (pretoken, 1 + (seed >> 50) % 100)
        })
        .collect::<HashMap<_, _>>()
        .into_iter()
        .collect();
    let counts = counts_of(&pretokens);
    assert!(counts.n_unique_bytes() > SMALL_SLOTS);
    for ties in [Ties::Bytes, Ties::HuggingFace] {
        let expected = learn_reference(&pretokens, 150, ties, 1);
        for n_threads in [1, 2, 3, 7] {
            let learned = learn(&counts, 150, ties, 1, n_threads, |_| Ok(())).unwrap();
            assert_eq!(byte_strings(&learned), expected);
            for more_bytes in [0, 2_000, 30_000, 200_000, 1_000_000] {
                let source = Listed(pretokens.clone());
                let max_bytes = Some(source.least_bytes(150) + more_bytes);
                let learned = learn_from(source, 150, ties, 1, n_threads, max_bytes, |_| Ok(())).unwrap();
                assert_eq!(byte_strings(&learned), expected);
            }
        }
    }
}

#[test]
fn an_interrupt_ends_learning() {
    let counts = Counts::from_items([(b"abababab".to_vec(), 3)].into_iter()).unwrap();
    let stopped = learn(&counts, 10, Ties::Bytes, 1, 1, |n| if n == 2 { Err(Error::Interrupted) } else { Ok(()) });
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn a_limit_that_is_too_small_is_rejected_with_the_required_one() {
    let pretokens: Vec<(Vec<u8>, u64)> = (0..500u64).map(|n| (format!("pretoken{n}").into_bytes(), n + 1)).collect();
    let expected = learn_reference(&pretokens, 20, Ties::Bytes, 1);
    let learn_in = |max_bytes| {
        let started = std::sync::atomic::AtomicBool::new(false);
        let learned = learn_within(counts_of(&pretokens), 20, Ties::Bytes, 1, 2, Some(max_bytes), |_| {
            started.store(true, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        (learned, started.into_inner())
    };
    let least = least_bytes_within(&counts_of(&pretokens), 20);
    let (rejected, was_started) = learn_in(least - 1);
    assert!(!was_started);
    assert!(matches!(rejected, Err(Error::Invalid(message)) if message.contains(&least.to_string())));
    assert_eq!(byte_strings(&learn_in(least).0.unwrap()), expected);
}

/// Yields the first list at the first visit and the second list at the second.
struct Changing(Vec<Vec<(&'static str, u64)>>);

impl PretokenSource for Changing {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.0.remove(0).into_iter().try_for_each(|(pretoken, count)| each(pretoken.as_bytes(), count))
    }
}

#[test]
fn a_source_that_changes_is_detected() {
    let first = vec![("abc", 3), ("de", 2), ("fgh", 3)];
    for second in [
        vec![("abc", 3), ("de", 2)],
        vec![("abc", 3), ("de", 2), ("fghi", 3)],
        vec![("abc", 3), ("de", 3), ("fgh", 3)],
        vec![("abc", 3), ("de", 2), ("fgh", 3), ("ij", 2)],
    ] {
        let source = Changing(vec![first.clone(), second]);
        let learned = learn_from(source, 5, Ties::Bytes, 1, 1, None, |_| Ok(()));
        assert!(matches!(learned, Err(Error::Invalid(message)) if message.contains("changed")));
    }
    let source = Changing(vec![first.clone(), vec![("fgh", 3), ("de", 2), ("abc", 3)]]);
    assert_eq!(learn_from(source, 5, Ties::Bytes, 1, 1, None, |_| Ok(())).unwrap().len(), 5);
}

#[test]
fn errors_of_a_source_and_of_the_interrupt_are_returned() {
    struct Broken(usize);
    impl PretokenSource for Broken {
        fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
            each(b"abc", 1)?;
            self.0 += 1;
            if self.0 == 2 { Err(Error::Io(std::io::Error::other("gone"))) } else { Ok(()) }
        }
    }
    let broken = learn_from(Broken(0), 5, Ties::Bytes, 1, 1, None, |_| Ok(()));
    assert!(matches!(broken, Err(Error::Io(_))));
    let stopped = learn_from(Broken(2), 5, Ties::Bytes, 1, 1, None, |_| Err(Error::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn inputs_beyond_32_bit_positions_and_symbols_are_rejected() {
    assert_eq!(check_n_slots(u64::from(u32::MAX)).unwrap(), u32::MAX as usize);
    let error = check_n_slots(1 << 32).unwrap_err().to_string();
    assert!(error.contains("4294967296 bytes") && error.contains("4 GiB"), "{error}");
    assert_eq!(check_n_merges((1 << 31) - 258).unwrap(), (1 << 31) - 258);
    assert!(check_n_merges((1 << 31) - 257).unwrap_err().to_string().contains("too many"));
}
