use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::Strategy;

#[test]
fn normalizing_in_chunks_equals_normalizing_at_once() {
    let text = "e\u{301} >\u{338} \u{212B}日本 \u{1100}\u{1161}\u{11A8} a\u{301}\u{323}".repeat(90_000);
    assert!(text.len() > 2 * CHUNK * N_CHUNKS);
    let whole: String = text.nfc().map(|(character, _)| character).collect();
    assert_eq!(normalize(&text, &no_interrupt).unwrap(), whole);
    assert_eq!(normalize(&whole, &no_interrupt).unwrap(), whole);
    assert!(matches!(normalize("naïve日本", &no_interrupt).unwrap(), Cow::Borrowed(_)));
}

#[test]
fn plain_characters_are_stable() {
    let characters = Characters::get();
    for character in (0..=0x10_FFFF).filter_map(char::from_u32) {
        let text = character.to_string();
        let is_plain = characters.plain.has(character.into());
        if is_plain || characters.normalized.has(character.into()) {
            assert_eq!(is_nfc_quick(text.chars()), IsNormalized::Yes, "{character:?}");
        }
        if is_plain {
            assert_eq!(canonical_combining_class(character), 0, "{character:?}");
        }
    }
}

proptest::proptest! {
    #[test]
    fn stability_is_that_of_the_whole_text(
        text in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select("aé’—日語がか\u{3099}\u{302A}Ж\u{483}한\u{1161}\u{300}\u{301}\u{316}\u{323}\u{212B}\u{94d}क\u{e38}ก\u{64b}ب\u{1e947}\u{2f800}\u{20000}😀ÅÅ".chars().collect::<Vec<_>>()),
                proptest::char::any(),
            ],
            0..12,
        ).prop_map(String::from_iter)
    ) {
        proptest::prop_assert_eq!(is_stable(&text), is_nfc_quick(text.chars()) == IsNormalized::Yes);
        let whole: String = text.nfc().map(|(character, _)| character).collect();
        proptest::prop_assert_eq!(normalize(&text, &no_interrupt).unwrap(), whole);
    }
}
