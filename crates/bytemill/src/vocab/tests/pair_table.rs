use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

proptest! {
    #[test]
    fn lookups_agree_with_a_hash_map(
        pairs in prop::collection::hash_map((0u32..2000, 0u32..2000), 0u32..OUTSIDE, 0..300),
        n_expected in 0usize..300,
        asked in prop::collection::vec((0u32..2000, 0u32..2000), 0..300),
    ) {
        let mut table = PairTable::new(n_expected);
        for (&(left, right), &symbol) in &pairs {
            table.insert(left, right, symbol).unwrap();
        }
        let expected: &HashMap<(u32, u32), u32> = &pairs;
        for (left, right) in asked.into_iter().chain(pairs.keys().copied()) {
            let expected = expected.get(&(left, right)).copied().unwrap_or(NONE);
            prop_assert_eq!(table.get(left, right), expected);
        }
    }
}

#[test]
fn a_full_table_grows_and_keeps_all_entries() {
    let mut table = PairTable::new(0);
    for symbol in 256..26_256 {
        table.insert(symbol, symbol % 300, symbol + 1).unwrap();
    }
    for symbol in 256..26_256 {
        assert_eq!(table.get(symbol, symbol % 300), symbol + 1);
        assert_eq!(table.get(symbol % 300, symbol), if symbol < 300 { symbol + 1 } else { NONE });
    }
}

#[test]
fn the_first_of_two_entries_stays() {
    let mut table = PairTable::new(2);
    for symbol in [700, 900] {
        table.insert(300, 5, symbol).unwrap();
        table.insert(5, 6, symbol).unwrap();
    }
    assert_eq!((table.get(300, 5), table.get(5, 6)), (700, 700));
}

#[test]
fn the_largest_symbols_fit_and_larger_ones_are_refused() {
    let largest = OUTSIDE - 1;
    let mut table = PairTable::new(1);
    table.insert(largest, largest - 1, largest).unwrap();
    assert_eq!(table.get(largest, largest - 1), largest);
    assert_eq!(table.get(largest - 1, largest), NONE);
    assert_eq!(table.get(OUTSIDE, largest), NONE);
    assert!(table.insert(1, 2, OUTSIDE).is_err());
}
