//! Words against a splitter that looks at one character after the other.

use super::*;
use crate::sys::interrupt::no_interrupt;
use proptest::prelude::*;

fn hashes(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for_each_word(text, &no_interrupt, |hash| found.push(hash)).unwrap();
    found
}

fn hash_of(word: &str) -> u64 {
    let mut hash = WordHash::new();
    hash.push_slice(word.as_bytes());
    hash.finish()
}

fn words(text: &str) -> Vec<String> {
    let text = nfc::normalize(text, &no_interrupt).unwrap();
    let mut words: Vec<String> = Vec::new();
    // Whether the last word may continue with letters, and with marks.
    let (mut open, mut marks) = (false, false);
    for c in text.chars() {
        let class = class_of(c.into());
        let lower: String = if class == Class::Upper { c.to_lowercase().collect() } else { c.into() };
        if is_unspaced(c.into()) {
            words.push(lower);
            (open, marks) = (false, true);
        } else if class.is_letter() || class == Class::Number {
            if open {
                words.last_mut().unwrap().push_str(&lower)
            } else {
                words.push(lower)
            }
            (open, marks) = (true, true);
        } else if class == Class::Mark && marks {
            words.last_mut().unwrap().push_str(&lower);
        } else {
            (open, marks) = (false, false);
        }
    }
    words
}

fn assert_words(text: &str) {
    let expected: Vec<u64> = words(text).iter().map(|word| hash_of(word)).collect();
    assert_eq!(hashes(text), expected, "{text:?} {:?}", words(text));
}

#[test]
fn words_are_lower_cased_letters_and_numbers() {
    assert_eq!(words("Don't PANIC, 42nd_time!"), ["don", "t", "panic", "42nd", "time"]);
    assert_eq!(words("Ünïcode ǅ E\u{301}tude"), ["ünïcode", "ǆ", "étude"]);
    assert_eq!(words("東京へ行く２０日 ❤\u{FE0F} ไทย"), ["東", "京", "へ", "行", "く", "２０", "日", "ไ", "ท", "ย"]);
    for text in ["Don't PANIC, 42nd_time!", "Ünïcode ǅ E\u{301}tude", "東京へ行く２０日 ❤\u{FE0F} ไทย", "", " ", "é"]
    {
        assert_words(text);
    }
}

#[test]
fn every_byte_is_classified_at_every_position() {
    for byte in 0..=0x7F_u8 {
        for at in 0..9 {
            let mut bytes = b"abcdefgh9".to_vec();
            bytes.insert(at, byte);
            assert_words(std::str::from_utf8(&bytes).unwrap());
        }
    }
}

#[test]
fn words_of_any_length_have_different_hashes() {
    let words: Vec<String> = (1..100).map(|n| "a".repeat(n)).collect();
    let hashes: std::collections::HashSet<u64> = words.iter().map(|word| hashes(word)[0]).collect();
    assert_eq!(hashes.len(), words.len());
}

proptest! {
    #[test]
    fn words_are_those_of_the_reference(text in "([a-zA-Z0-9]{0,20}|[ .\n]|[éÉßΣǅ]|[東京ก๑ๅิ]|\u{301}|\\PC){0,30}") {
        assert_words(&text);
    }

    #[test]
    fn any_text_has_the_words_of_the_reference(text in any::<String>()) {
        assert_words(&text);
    }
}
