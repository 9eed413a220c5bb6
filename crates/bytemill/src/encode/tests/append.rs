use super::super::tests::{PIECES, encoder};
use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

fn ids_of(encoder: &Encoder, text: &str, allowed: Allowed) -> Vec<u32> {
    let mut ids = Vec::new();
    encoder.encode(text, allowed, &mut ids, &no_interrupt).unwrap();
    ids
}

fn pieces(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = String> {
    let more = ["<", "<s", "s>", " ", "  ", "\n", "\u{301}", "😀"];
    let all: Vec<&str> = PIECES.into_iter().chain(more).collect();
    prop::collection::vec(prop::sample::select(all), n).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn appending_gives_the_ids_of_the_whole_text(
        old in pieces(0..80),
        new in pieces(0..8),
        n_merges in 0usize..60,
        pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
        is_allowed: bool,
        first in any::<prop::sample::Index>(),
    ) {
        let encoder = encoder(&PIECES, n_merges, pattern);
        let allowed = if is_allowed { Allowed::All } else { Allowed::None };
        let ids = ids_of(&encoder, &old, allowed);
        let first = if ids.is_empty() { 0 } else { first.index(ids.len()) };
        if let Some(appended) = encoder.append(&ids[first..], &new, allowed, &no_interrupt).unwrap() {
            let whole = [&ids[..first + appended.n_kept], &appended.ids].concat();
            prop_assert_eq!(whole, ids_of(&encoder, &(old + &new), allowed));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_beginning_keeps_its_ids_whatever_follows(
        old in pieces(0..60),
        new in pieces(0..8),
        pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
    ) {
        let encoder = encoder(&PIECES, 60, pattern);
        let found = encoder.encode_beginning(&old, true, Allowed::All, &no_interrupt).unwrap();
        prop_assert_eq!([&found.ids[..], &found.rest].concat(), ids_of(&encoder, &old, Allowed::All));
        let whole = ids_of(&encoder, &[&old[..], &new].concat(), Allowed::All);
        prop_assert_eq!(&whole[..found.ids.len()], &found.ids[..]);
    }
}

#[test]
fn words_are_cut_within_a_few_hundred_bytes_and_spaces_are_not() {
    let encoder = encoder(&PIECES, 60, "gpt2");
    let ids = ids_of(&encoder, &"low lower ".repeat(40), Allowed::All);
    let appended = encoder.append(&ids, "newest", Allowed::All, &no_interrupt).unwrap().unwrap();
    assert!(appended.n_kept + 3 >= ids.len() && appended.ids.len() < 10, "{appended:?}");
    let spaces = ids_of(&encoder, &" ".repeat(400), Allowed::All);
    assert_eq!(encoder.append(&spaces, "x", Allowed::All, &no_interrupt).unwrap(), None);
}

#[test]
fn ids_of_another_division_are_refused_where_they_are_seen() {
    let encoder = encoder(&PIECES, 60, "gpt2");
    let mut ids = ids_of(&encoder, &"low ".repeat(60), Allowed::All);
    ids.extend(b"low\xC3".iter().map(|&byte| u32::from(byte)));
    let error = encoder.append(&ids, "x", Allowed::All, &no_interrupt).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
}
