use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

fn packed(texts: &[String]) -> (String, Vec<usize>) {
    let ends = texts.iter().scan(0, |end, text| {
        *end += text.len();
        Some(*end)
    });
    (texts.concat(), ends.collect())
}

fn sketched(texts: &[String], n_threads: usize) -> ShingleSets {
    let (text, ends) = packed(texts);
    sketch_texts(&text, &ends, 3, n_threads, &no_interrupt).unwrap()
}

#[test]
fn ends_that_do_not_divide_the_text_are_refused() {
    for (text, ends) in [("abc", vec![1]), ("abc", vec![2, 1, 3]), ("abc", vec![4]), ("é", vec![1, 2]), ("a", vec![])]
    {
        let found = sketch_texts(text, &ends, 5, 1, &no_interrupt);
        assert!(matches!(found, Err(Error::Invalid(_))), "{text:?} {ends:?}");
    }
    assert!(sketch_texts("a", &[1], 0, 1, &no_interrupt).is_err());
    assert!(sketch_texts("a", &[1], MAX_N + 1, 1, &no_interrupt).is_err());
    assert!(sketch_ids(&[1_u16, 2], &[1], 5, 1, &no_interrupt).is_err());
    assert!(sketch_texts("", &[], 5, 2, &no_interrupt).unwrap().ends.is_empty());
}

#[test]
fn many_chunks_are_in_the_order_of_the_documents() {
    let texts: Vec<String> = (0..400).map(|k| format!("document {k} of {} ", k * 7).repeat(k % 90 + 1)).collect();
    let (one, two) = (sketched(&texts, 1), sketched(&texts, 3));
    assert_eq!((&one.sketches, &one.shingles, &one.ends), (&two.sketches, &two.shingles, &two.ends));
    let alone = sketched(&texts[399..], 1);
    assert_eq!(one.sketches[399 * SIZE..], alone.sketches);
}

proptest! {
    #[test]
    fn documents_have_the_sets_that_each_has_alone(texts in prop::collection::vec("[a-c .é]{0,40}", 0..12)) {
        let all = sketched(&texts, 2);
        let alone: Vec<ShingleSets> = texts.iter().map(|text| sketched(std::slice::from_ref(text), 1)).collect();
        prop_assert_eq!(all.shingles, alone.iter().flat_map(|sets| sets.shingles.clone()).collect::<Vec<_>>());
        prop_assert_eq!(all.sketches, alone.iter().flat_map(|sets| sets.sketches.clone()).collect::<Vec<_>>());
    }
}
