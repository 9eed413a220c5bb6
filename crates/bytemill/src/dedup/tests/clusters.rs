use super::*;
use crate::dedup::sketch::sketch;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

const MOST_SENSITIVE: Bands = Bands { n_bands: SIZE, n_rows: 1, threshold: 0.5 };

struct Sets {
    sketches: Vec<u32>,
    shingles: Vec<u64>,
    ends: Vec<u64>,
}

fn sets(documents: &[Vec<u64>]) -> Sets {
    let mut all = Sets { sketches: Vec::new(), shingles: Vec::new(), ends: Vec::new() };
    for document in documents {
        // As the hashes of shingles are.
        let mut set: Vec<u64> = document.iter().map(|&element| fold(element + 1, 0xA076_1D64_78BD_642F)).collect();
        set.sort_unstable();
        set.dedup();
        all.sketches.extend(sketch(&set));
        all.shingles.extend(set);
        all.ends.push(all.shingles.len() as u64);
    }
    all
}

fn clusters(documents: &[Vec<u64>], bands: Bands, n_threads: usize) -> Clusters {
    let Sets { sketches, shingles, ends } = sets(documents);
    find_clusters(&sketches, &shingles, &ends, bands, n_threads, &no_interrupt, |_| ()).unwrap()
}

/// Connected components of all pairs from the threshold on.
fn reference(documents: &[Vec<u64>], threshold: f64) -> Vec<u32> {
    let Sets { shingles, ends, .. } = sets(documents);
    let all = Documents { sketches: &[], shingles: &shingles, ends: &ends };
    let mut first: Vec<u32> = (0..documents.len() as u32).collect();
    for b in 0..documents.len() as u32 {
        for a in 0..b {
            if jaccard(all.set(a), all.set(b)) >= threshold {
                let (low, high) = (first[a as usize].min(first[b as usize]), first[a as usize].max(first[b as usize]));
                first.iter_mut().filter(|label| **label == high).for_each(|label| *label = low);
            }
        }
    }
    first
}

#[test]
fn chains_are_joined_and_measured_against_their_first_document() {
    let documents: Vec<Vec<u64>> = vec![(0..10).collect(), (3..13).collect(), (6..16).collect(), (100..110).collect()];
    let found = clusters(&documents, MOST_SENSITIVE, 1);
    assert_eq!(found.first, [0, 0, 0, 3]);
    assert_eq!(found.similarity, [1.0, 7.0 / 13.0, 4.0 / 16.0, 1.0]);
    assert!(found.pairs.iter().all(|&(_, _, similarity)| similarity >= 0.5));
}

#[test]
fn copies_belong_to_the_first_and_empty_documents_to_nobody() {
    let documents = vec![vec![], vec![1], vec![2, 3], vec![1], vec![], vec![3, 2], vec![1]];
    assert_eq!(clusters(&documents, Bands { n_bands: 1, n_rows: 128, threshold: 1.0 }, 2).first, [0, 1, 2, 1, 4, 2, 1]);
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let Sets { sketches, shingles, ends } = sets(&[vec![1, 2], vec![2, 3]]);
    let find = |sketches: &[u32], ends: &[u64], bands| {
        find_clusters(sketches, &shingles, ends, bands, 1, &no_interrupt, |_| ()).is_ok()
    };
    assert!(find(&sketches, &ends, MOST_SENSITIVE));
    assert!(!find(&sketches[1..], &ends, MOST_SENSITIVE));
    assert!(!find(&sketches, &ends[1..], MOST_SENSITIVE));
    assert!(!find(&sketches, &[ends[1], ends[0]], MOST_SENSITIVE));
    for (n_bands, n_rows, threshold) in
        [(0, 1, 0.5), (1, 0, 0.5), (16, 9, 0.5), (1, 1, 0.0), (1, 1, 1.1), (1, 1, f64::NAN)]
    {
        assert!(!find(&sketches, &ends, Bands { n_bands, n_rows, threshold }));
    }
}

#[test]
fn an_interrupt_ends_the_search() {
    let Sets { sketches, shingles, ends } = sets(&[vec![1, 2], vec![2, 3]]);
    let stop = || Err(Error::Interrupted);
    let found = find_clusters(&sketches, &shingles, &ends, MOST_SENSITIVE, 1, &stop, |_| ());
    assert!(matches!(found, Err(Error::Interrupted)));
}

/// Families of documents that differ in some of their elements.
fn families() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let document = (0..4_u64, prop::collection::vec(0..40_u64, 0..6));
    prop::collection::vec(document, 0..40).prop_map(|documents| {
        let family = |(family, changed): (u64, Vec<u64>)| {
            let mut elements: Vec<u64> = (100 * family..100 * family + 10).collect();
            for element in changed {
                elements[(element % 10) as usize] = 1000 + element;
            }
            elements
        };
        documents.into_iter().map(family).collect()
    })
}

proptest! {
    #[test]
    fn clusters_are_connected_components(documents in families()) {
        let found = clusters(&documents, MOST_SENSITIVE, 1);
        // With 128 bands of one row, a pair at the threshold is missed once in 2^128 times; the filter by sketches loses 3 of 100,000.
        prop_assert_eq!(&found.first, &reference(&documents, 0.5));
        prop_assert_eq!(&found, &clusters(&documents, MOST_SENSITIVE, 3));
    }

    #[test]
    fn every_joining_pair_is_confirmed_and_they_span_the_clusters(documents in families()) {
        let found = clusters(&documents, Bands { n_bands: 20, n_rows: 5, threshold: 0.7 }, 2);
        let Sets { shingles, ends, .. } = sets(&documents);
        let all = Documents { sketches: &[], shingles: &shingles, ends: &ends };
        let mut parents: Vec<u32> = (0..documents.len() as u32).collect();
        for &(a, b, similarity) in &found.pairs {
            prop_assert!(a < b && similarity >= 0.7);
            prop_assert_eq!(similarity, jaccard(all.set(a), all.set(b)));
            unite(&mut parents, a, b);
        }
        let spanned: Vec<u32> = (0..documents.len() as u32).map(|document| root(&mut parents, document)).collect();
        prop_assert_eq!(&found.first, &spanned);
    }
}
