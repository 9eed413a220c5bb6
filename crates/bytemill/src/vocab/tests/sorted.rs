use super::super::*;
use proptest::prelude::*;

/// All bytes, these tokens without merges, and special tokens of which one is listed among them.
fn vocab(tokens: &[Vec<u8>]) -> Vocab {
    let bytes = (0..=255).map(|byte| (1000 + u32::from(byte), vec![byte]));
    let listed: Vec<(u32, Vec<u8>)> = bytes.chain((0..).zip(tokens.iter().cloned())).collect();
    let listed = [listed, vec![(900, b"<s>".to_vec())]].concat();
    let special = vec![("<s>".to_owned(), 900), ("<e>".to_owned(), 901), ("a".to_owned(), 1097)];
    Vocab::from_merges(listed, &[], special).unwrap()
}

proptest! {
    #[test]
    fn tokens_with_a_prefix_are_found(
        tokens in prop::collection::hash_set("[ab<é]{2,4}", 0..40),
        prefix in "[ab<é]{0,3}",
        cut in 0usize..2,
    ) {
        let tokens: Vec<Vec<u8>> = tokens.into_iter().map(String::into_bytes).filter(|t| t.len() > 1).collect();
        let vocab = vocab(&tokens);
        let sorted = SortedTokens::new(&vocab);
        let prefix = &prefix.as_bytes()[..prefix.len().saturating_sub(cut)];
        let mut expected: Vec<Vec<u8>> = tokens.into_iter().chain((0..=255).map(|byte| vec![byte])).collect();
        prop_assert_eq!(sorted.longest(), expected.iter().map(Vec::len).max().unwrap());
        expected.retain(|token| token.starts_with(prefix));
        expected.sort();
        let found: Vec<&[u8]> =
            sorted.beginning_with(&vocab, prefix).iter().map(|&id| vocab.token(id).unwrap()).collect();
        prop_assert_eq!(found, expected);
    }
}
