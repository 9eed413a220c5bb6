use super::*;
use crate::encode::no_interrupt;
use crate::pretokenize::Pattern;
use crate::vocab::Vocab;
use proptest::prelude::*;
use std::collections::BTreeSet;

const TOKENS: [&[u8]; 16] = [
    b"ab",
    b"abc",
    b" a",
    b" ab",
    b"  ",
    b"   ",
    b"\n\n",
    b"\n ",
    b"bc",
    b"\xC3\xA9",
    b"a\xC3",
    b"\xA9b",
    b"cab",
    b" abcab",
    b"aaaa",
    b"aa",
];

fn encoder(pattern: Option<&str>, drops_unmatched: bool) -> Encoder {
    let tokens = (0..=255).map(|byte| vec![byte]).chain(TOKENS.map(<[u8]>::to_vec));
    let vocab = Vocab::from_ranks(tokens.zip(0..).collect(), vec![("<s>".to_owned(), 999)]).unwrap();
    Encoder::new(vocab, Pattern::new(pattern).unwrap().dropping_unmatched(drops_unmatched)).unwrap()
}

fn bytes_of(encoder: &Encoder, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| encoder.vocab().token(id).unwrap()).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_encoding_of_a_longer_text_in_one_pretoken_begins_with_a_completion(
        text in "[abcé]{1,8}",
        more in "[abcé]{0,4}",
    ) {
        let encoder = encoder(Some(r"(?s).+"), false);
        let found = encoder.encode_with_unstable(&text, Allowed::All, &no_interrupt).unwrap();
        prop_assert!(found.stable.is_empty());
        let mut ids: Vec<u32> = Vec::new();
        encoder.encode(&format!("{text}{more}"), Allowed::All, &mut ids, &no_interrupt).unwrap();
        // The first ids that reach the end of the text: if they go beyond it by bytes that are no text, by a token that was tried.
        let reach = (0..=ids.len()).find(|&n| bytes_of(&encoder, &ids[..n]).len() >= text.len()).unwrap();
        if bytes_of(&encoder, &ids[..reach]) == text.as_bytes() {
            prop_assert!(found.completions.contains(&ids[..reach].to_vec()), "{:?} in {:?}", ids, found);
        }
    }

    #[test]
    fn completions_are_sorted_and_begin_with_the_rest_of_the_text(
        text in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", " ", "\n", "é", "<s>", "!"]), 0..10),
        pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\S+|\s+"), None]),
    ) {
        let (encoder, text) = (encoder(pattern, false), text.concat());
        let found = encoder.encode_with_unstable(&text, Allowed::All, &no_interrupt).unwrap();
        let stable = bytes_of(&encoder, &found.stable);
        let rest = text.as_bytes().strip_prefix(&stable[..]).unwrap();
        prop_assert_eq!(found.completions.is_empty(), rest.is_empty());
        for ids in &found.completions {
            prop_assert!(bytes_of(&encoder, ids).starts_with(rest));
            prop_assert!(bytes_of(&encoder, &ids[..ids.len() - 1]).len() < rest.len());
        }
        let unique: BTreeSet<_> = found.completions.iter().cloned().collect();
        prop_assert_eq!(unique.into_iter().collect::<Vec<_>>(), found.completions);
    }
}

#[test]
fn nothing_is_unstable_after_a_special_token_or_where_nothing_matches() {
    let plain = encoder(Some("gpt2"), false);
    let found = plain.encode_with_unstable("ab<s>", Allowed::All, &no_interrupt).unwrap();
    assert_eq!(found, Unstable { stable: vec![256, 999], completions: vec![] });
    let dropping = encoder(Some(r"\w+"), true);
    let found = dropping.encode_with_unstable("ab<s>!!", Allowed::All, &no_interrupt).unwrap();
    assert_eq!(found, Unstable { stable: vec![256, 999], completions: vec![] });
    // What is dropped leaves the last pre-token before it the last one.
    let found = dropping.encode_with_unstable("ab!!", Allowed::All, &no_interrupt).unwrap();
    assert_eq!((found.stable.len(), found.completions), (0, vec![vec![256], vec![257]]));
}

#[test]
fn a_last_pretoken_with_too_many_completions_is_an_error() {
    let encoder = encoder(None, false);
    let error = encoder.encode_with_unstable(&"a".repeat(1 << 18), Allowed::None, &no_interrupt).unwrap_err();
    assert!(error.to_string().contains("too many for all its completions"));
}
