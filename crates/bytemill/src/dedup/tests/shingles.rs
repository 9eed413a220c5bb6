use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;
use std::collections::HashSet;

fn of_words(text: &str, n: usize) -> Vec<u64> {
    let mut set = Vec::new();
    word_shingles(text, n, &mut set, &no_interrupt).unwrap();
    set
}

#[test]
fn a_short_text_is_one_shingle() {
    assert_eq!(of_words("one two", 5), of_words("One, two.", 5));
    assert_eq!(of_words("one two", 5).len(), 1);
    assert_ne!(of_words("one two", 5), of_words("two one", 5));
    assert_ne!(of_words("one", 5), of_words("one two", 5));
    assert!(of_words("... --- ...", 5).is_empty());
    assert_eq!(of_words("a b c d e f", 5).len(), 2);
}

#[test]
fn shingles_depend_on_nothing_but_their_words() {
    let of_part = of_words("c d e f g", 5)[0];
    assert!(of_words("a b c d e f g h i j", 5).contains(&of_part));
    assert!(!of_words("a b c d f e g h i j", 5).contains(&of_part));
}

proptest! {
    #[test]
    fn sets_are_those_of_windows(ids in prop::collection::vec(0..6_u32, 0..200), n in 1..8_usize) {
        let mut set = Vec::new();
        id_shingles(ids.iter().copied(), n, &mut set);
        let windows: HashSet<&[u32]> = if ids.len() < n && !ids.is_empty() {
            [&ids[..]].into()
        } else {
            ids.windows(n).collect()
        };
        prop_assert_eq!(set.len(), windows.len());
        prop_assert!(set.is_sorted());
    }

    #[test]
    fn similarities_are_those_of_hash_sets(
        a in prop::collection::btree_set(0..60_u64, 0..50),
        b in prop::collection::btree_set(0..60_u64, 0..50),
    ) {
        let n = a.intersection(&b).count();
        let expected = if a.is_empty() && b.is_empty() { 0.0 } else { n as f64 / a.union(&b).count() as f64 };
        let (a, b) = (a.into_iter().collect::<Vec<_>>(), b.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(jaccard(&a, &b), expected);
        prop_assert_eq!(n_common(&b, &a), n);
    }
}
