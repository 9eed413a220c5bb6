use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_symbol_is_reachable_if_its_bytes_merge_to_it(
        choices in prop::collection::vec((any::<u32>(), any::<u32>()), 0..80),
        n_letters in 1u32..4,
    ) {
        let mut bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut known: Vec<u32> = (97..97 + n_letters).collect();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut merges = Vec::new();
        let mut pairs = PairTable::new(choices.len());
        for (left, right) in choices {
            let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
            let token = [&bytes[left as usize][..], &bytes[right as usize][..]].concat();
            if token.len() <= 64 && seen.insert(token.clone()) {
                let symbol = bytes.len() as u32;
                pairs.insert(left, right, symbol).unwrap();
                merges.push((left, right));
                known.push(symbol);
                bytes.push(token);
            }
        }
        for (symbol, is_reachable) in reachable_symbols(&merges, &pairs).into_iter().enumerate() {
            let mut symbols = Vec::new();
            crate::bpe::merge(&pairs, &bytes[symbol], &mut symbols, &crate::sys::interrupt::no_interrupt).unwrap();
            prop_assert_eq!(is_reachable, symbols == [symbol as u32], "{:?}", bytes[symbol]);
        }
    }
}
