use super::super::tests::character;
use super::*;
use proptest::prelude::*;

const EXPRESSIONS: [&str; 12] = [
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"\s+(?=\n|\z)",
    "[\r\n]",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
    "a|b?c|[é-ÿ]",
    "(?:ab)+x?",
    "(a)b*|c",
    "(?i:ab|k)",
    "[^a]b",
    r"\p{N}{2}",
];

#[test]
fn the_bytes_are_those_of_the_rarest_part() {
    let set = |expression: &str| needed_bytes(expression).unwrap();
    assert_eq!(set(r"\s?\p{N}+"), set(r"\p{N}"));
    assert_eq!(set("[\r\n]"), ByteSet::of(*b"\r\n"));
    assert_eq!(set(r"\p{L}+x"), ByteSet::of(*b"x"));
    assert_eq!(set("[é-\u{800}]"), ByteSet::of(0xC3..=0xE0));
    for unknown in ["a*", "a?|b", "", "(?:a|b*)c*", "(?=a)", "(unclosed"] {
        assert_eq!(needed_bytes(unknown), None, "{unknown}");
    }
}

proptest! {
    #[test]
    fn every_match_has_one_of_the_bytes(
        text in prop::collection::vec(character(), 0..30).prop_map(String::from_iter),
        expression in prop::sample::select(EXPRESSIONS.to_vec()),
    ) {
        let needed = needed_bytes(expression).unwrap();
        for found in fancy_regex::Regex::new(expression).unwrap().find_iter(&text) {
            prop_assert!(found.unwrap().as_str().bytes().any(|byte| needed.has(byte)));
        }
    }
}
