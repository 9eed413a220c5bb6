use super::*;
use proptest::prelude::*;

/// Random elements, different for each seed.
fn elements(seed: u64, n: usize) -> Vec<u64> {
    (0..n as u64).map(|k| mix(mix(seed).wrapping_add(k))).collect()
}

/// The definition: for each bin the smallest value in the first round that puts an element into it.
fn reference(set: &[u64]) -> [u32; SIZE] {
    std::array::from_fn(|bin| {
        let rounds = (0..2 * SIZE).map(|round| {
            let hashes = set.iter().map(|&element| if round == 0 { element } else { hash_of(element, round as u64) });
            let hits = |hash: &u64| if round < SIZE { bin_of(*hash) == bin } else { round - SIZE == bin };
            hashes.filter(hits).map(value_of).min()
        });
        rounds.flatten().next().unwrap_or(EMPTY)
    })
}

/// Mean and variance of the shared bins of pairs of sets with `n_common` of `n_all` elements in common.
fn measured(n_common: usize, n_all: usize, n_pairs: u64) -> (f64, f64) {
    let shares: Vec<f64> = (0..n_pairs)
        .map(|seed| {
            let all = elements(seed, n_all);
            let middle = n_common + (n_all - n_common) / 2;
            let one = sketch(&all[..middle]);
            let other = sketch(&[&all[..n_common], &all[middle..]].concat());
            n_shared(&one, &other) as f64 / SIZE as f64
        })
        .collect();
    let mean = shares.iter().sum::<f64>() / n_pairs as f64;
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (n_pairs - 1) as f64;
    (mean, variance)
}

#[test]
fn shared_bins_estimate_the_similarity_without_bias_for_sets_of_every_size() {
    for (n_common, n_all) in [(1, 2), (8, 10), (16, 20), (50, 100), (80, 100), (270, 300), (450, 1000), (1600, 2000)] {
        let n_pairs = 2_000;
        let (mean, variance) = measured(n_common, n_all, n_pairs);
        let similarity = n_common as f64 / n_all as f64;
        // Independent bins would have this variance; those of a bound round have less, tiny sets a little more.
        let independent = similarity * (1.0 - similarity) / SIZE as f64;
        let error = (independent / n_pairs as f64).sqrt();
        assert!((mean - similarity).abs() < 4.0 * error, "{n_common} of {n_all}: {mean} ± {error}");
        assert!(variance < 1.2 * independent, "{n_common} of {n_all}: {variance} against {independent}");
    }
}

#[test]
fn only_the_empty_set_has_empty_bins() {
    assert_eq!(sketch(&[]), [EMPTY; SIZE]);
    for n in 1..50 {
        assert!(!sketch(&elements(7, n)).contains(&EMPTY));
    }
}

proptest! {
    #[test]
    fn sketches_are_those_of_the_definition(seed in any::<u64>(), n in prop_oneof![1..10_usize, 100..1000_usize]) {
        let mut set = elements(seed, n);
        let sketched = sketch(&set);
        prop_assert_eq!(sketched, reference(&set));
        set.reverse();
        prop_assert_eq!(sketch(&set), sketched);
    }
}
