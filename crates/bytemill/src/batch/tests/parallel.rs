use super::*;
use crate::batch::tests::{encoder, texts};
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn batches_have_the_ids_of_their_texts_however_they_are_cut(
        texts in texts(), pattern in prop::sample::select(vec![Some("cl100k"), Some(r"\w+|\W")]),
        n_threads in 1usize..5, chunk_bytes in 1usize..400,
    ) {
        let encoder = encoder(pattern);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut expected = Encoded::<u16>::default();
        for text in &texts {
            encoder.encode(text, Allowed::All, &mut expected.ids, &no_interrupt).unwrap();
            expected.ends.push(expected.ids.len());
        }
        let batch = encoder.encode_chunks(&texts, 0, Allowed::All, n_threads, chunk_bytes, &no_interrupt).unwrap();
        prop_assert_eq!(batch, expected);
        // The first refused token of the first text that has one.
        let refused = texts.iter().find_map(|text| encoder.refuse_special(text).err());
        let batch: Result<Encoded<u16>> =
            encoder.encode_chunks(&texts, 0, Allowed::Refused, n_threads, chunk_bytes, &no_interrupt);
        prop_assert_eq!(batch.err().map(|error| error.to_string()), refused.map(|error| error.to_string()));
    }

    #[test]
    fn chunks_cover_a_batch_in_order(texts in texts(), chunk_bytes in 1usize..400) {
        let encoder = encoder(Some("gpt2"));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let cuts = encoder.cuts(&texts, Allowed::None, chunk_bytes);
        let offset = |cut: &Position| texts[..cut.text].iter().map(|text| text.len()).sum::<usize>() + cut.byte;
        prop_assert!(cuts.windows(2).all(|two| offset(&two[0]) <= offset(&two[1]) && two[0] != two[1]));
        prop_assert_eq!(cuts.last().map(offset), (!texts.is_empty()).then(|| texts.concat().len()));
        prop_assert!(cuts.iter().all(|cut| cut.byte == 0 || cut.byte < texts[cut.text].len()));
    }
}

#[test]
fn chunks_have_about_the_size_asked_for() {
    let encoder = encoder(Some("gpt2"));
    let long = "word ".repeat(20_000);
    let short = ["a document "; 9_000];
    for texts in [&[long.as_str()] as &[_], &short] {
        let offset = |cut: Position| texts[..cut.text].iter().map(|text| text.len()).sum::<usize>() + cut.byte;
        let cuts = encoder.cuts(texts, Allowed::None, 1_000);
        let mut start = 0;
        for cut in &cuts[..cuts.len() - 1] {
            let end = offset(*cut);
            assert!((980..1_020).contains(&(end - start)), "{start}..{end}");
            start = end;
        }
    }
}

#[test]
fn a_reservation_that_fails_is_no_error() {
    let mut ids: Vec<u32> = Vec::new();
    reserve_ids(&mut ids, usize::MAX);
    assert_eq!(ids.capacity(), 0);
}
