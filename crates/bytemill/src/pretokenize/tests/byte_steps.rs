//! Steps on bytes against the same steps on a text that has a character for each byte.

use super::super::{MAX_ENDS, Matcher, Pattern, THEN, THEN_BYTES};
use super::{character, pretokens};
use crate::text::byte_characters::{append_bytes, characters};
use proptest::prelude::*;

/// Falcon's steps on characters and on bytes, and others.
const STEPS: [(&str, &str); 6] = [
    (r"[[\p{P}&&\p{Age=8.0}]$+<=>^`|~]+(?#then)gpt2", r"\p{N}+(?#then)[0-9][0-9][0-9]"),
    ("gpt2", r"\p{N}"),
    ("", r"\p{L}+|[²³]"),
    (r"\S+", r"[a-zÃ]+(?#then)[°-²]a?"),
    (r"\p{L}+(?#then)é", r"Ã©|©+"),
    (r"\S+", "gpt2"),
];

/// The pre-tokens of all steps on characters, whose bytes become characters for the other steps.
fn one_by_one(before: &str, after: &str, text: &str) -> Vec<Vec<u8>> {
    let before = Pattern::new((!before.is_empty()).then_some(before)).unwrap();
    let after = Pattern::new(Some(after)).unwrap();
    let of_bytes = |pretoken: &str| pretoken.bytes().map(|byte| characters()[usize::from(byte)]).collect::<String>();
    let mut found = Vec::new();
    for pretoken in pretokens(&before, text) {
        for part in pretokens(&after, &of_bytes(pretoken)) {
            let mut bytes = Vec::new();
            assert!(append_bytes(part, &mut bytes));
            found.push(bytes);
        }
    }
    found
}

fn at_once(before: &str, after: &str, text: &str) -> Vec<Vec<u8>> {
    let pattern = Pattern::new(Some(&[before, after].join(THEN_BYTES))).unwrap();
    let mut found = Vec::new();
    pattern.for_each(text, |pretoken| found.push(pretoken.to_vec())).unwrap();
    found
}

proptest! {
    #[test]
    fn steps_on_bytes_split_as_on_their_characters(
        text in prop::collection::vec(prop_oneof![character(), prop::sample::select(vec!['ò', '²', '³', '¹', '¼', 'ó', 'ľ'])], 0..60)
            .prop_map(String::from_iter),
    ) {
        for (before, after) in STEPS {
            prop_assert_eq!(at_once(before, after, &text), one_by_one(before, after, &text), "{} {}", before, after);
        }
    }
}

#[test]
fn falcon_divides_characters() {
    let (before, after) = STEPS[0];
    let found = at_once(before, after, "ò 12345²!?");
    let expected: [&[u8]; 9] = [b"\xC3", b"\xB2", b" ", b"123", b"45", b"\xC2", b"\xB2", b"!?", b""];
    assert_eq!(found, expected[..8]);
    let pattern = Pattern::new(Some(&[before, after].join(THEN_BYTES))).unwrap();
    assert_eq!(pattern.matcher(), Matcher::Automaton);
    assert_eq!(pattern.expression(), Some([before, after].join(THEN_BYTES).as_str()));
    assert_eq!(before.split(THEN).count(), 2);
}

#[test]
fn a_long_pretoken_takes_several_calls() {
    let pattern = Pattern::new(Some(&["", "a"].join(THEN_BYTES))).unwrap();
    let text = "ab".repeat(MAX_ENDS);
    let (mut splits, mut ends, mut all) = (pattern.splits(&text), Vec::new(), Vec::new());
    while splits.fill(&mut ends).unwrap() {
        assert!(ends.len() <= MAX_ENDS);
        all.append(&mut ends);
    }
    assert!(all.into_iter().eq(1..=text.len()));
}

#[test]
fn steps_on_bytes_need_a_bounded_automaton() {
    for after in ["a*b", "(?=a)b", "(a"] {
        let refused = Pattern::new(Some(&["gpt2", after].join(THEN_BYTES))).unwrap_err().to_string();
        assert!(refused.contains("steps on bytes"), "{refused}");
    }
}
