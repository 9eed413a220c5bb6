use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Rules with one key, "a", that becomes "bc".
fn one_rule() -> Vec<u8> {
    // The root's children are at 0 ^ 64; the one of "a" (97) is at 64 ^ 97 = 33 and has a leaf at 33 ^ 1 = 32.
    let mut units = [0_u32; 34];
    units[0] = 64 << 10;
    units[33] = 1 << 10 | 1 << 8 | u32::from(b'a');
    units[32] = 1 << 31;
    let size = (4 * units.len() as u32).to_le_bytes();
    let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    [&size[..], &units, b"bc\0"].concat()
}

#[test]
fn the_longest_key_is_replaced() {
    let rules = CharsMap::new(&one_rule()).unwrap();
    assert_eq!(rules.first("ab"), (1, "bc"));
    assert_eq!(rules.first("é"), (2, "é"));
    assert_eq!(rules.first(""), (0, ""));
    assert_eq!(rules.to_bytes(), one_rule());
}

#[test]
fn kept_texts_come_before_keys_the_longest_first() {
    let kept = ["aé", "aéb", ""].map(str::to_owned).to_vec();
    let rules = CharsMap::new(&one_rule()).unwrap().keeping(kept);
    assert_eq!(rules.first("aéb"), (4, "aéb"));
    assert_eq!(rules.first("aéa"), (3, "aé"));
    assert_eq!(rules.first("ab"), (1, "bc"));
    assert_eq!(rules.kept(), ["aéb", "aé"]);
}

#[test]
fn characters_without_keys_stay_before_ascii() {
    let rules = CharsMap::new(&one_rule()).unwrap().keeping(vec!["d".to_owned()]);
    for (text, limit, n_bytes) in
        [("bcab", 9, 2), ("bcb", 9, 3), ("bcb", 2, 2), ("bcé", 9, 1), ("é", 9, 0), ("bd", 9, 1)]
    {
        assert_eq!(rules.n_staying(text.as_bytes(), limit), n_bytes, "{text}");
    }
}

#[test]
fn damaged_rules_are_refused() {
    let rules = one_rule();
    for data in [&rules[..2], &rules[..40], &rules[..rules.len() - 1], &[0; 4], &[3, 0, 0, 0, 1, 2, 3]] {
        assert!(CharsMap::new(data).is_err(), "{data:?}");
    }
}

proptest! {
    #[test]
    fn any_trie_ends(units in vec(any::<u32>(), 1..64), text in "[a-f é]{0,30}", tail in "[a-z\0]{0,20}\0") {
        let size = (4 * units.len() as u32).to_le_bytes();
        let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let rules = CharsMap::new(&[&size[..], &units, tail.as_bytes()].concat()).unwrap();
        for at in 0..rules.n_staying(text.as_bytes(), 100) {
            prop_assert_eq!(rules.first(&text[at..]), (1, &text[at..=at]));
        }
        let mut rest = &*text;
        while !rest.is_empty() {
            let (n_bytes, _) = rules.first(rest);
            prop_assert!(n_bytes > 0 && rest.is_char_boundary(n_bytes));
            rest = &rest[n_bytes..];
        }
    }
}
