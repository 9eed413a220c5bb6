//! Tokens in the order of their bytes, so that those with a beginning are found.

use super::Vocab;
use std::collections::HashSet;

/// The ids of the ordinary tokens, in the order of their bytes.
#[derive(Clone, Debug)]
pub struct SortedTokens {
    ids: Vec<u32>,
    longest: usize,
}

impl SortedTokens {
    /// The tokens of a vocabulary but those that are special and nothing else.
    #[must_use]
    pub fn new(vocab: &Vocab) -> Self {
        let made: HashSet<u32> = vocab.symbol_ids().iter().copied().collect();
        let special: HashSet<u32> = vocab.special().iter().map(|(_, id)| *id).filter(|id| !made.contains(id)).collect();
        let mut tokens: Vec<(&[u8], u32)> = vocab.tokens().filter(|(_, id)| !special.contains(id)).collect();
        tokens.sort_unstable();
        let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        Self { ids: tokens.into_iter().map(|(_, id)| id).collect(), longest }
    }

    /// The ids, in the order of the tokens' bytes.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Bytes of the longest token.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The ids of the tokens that begin with `prefix`, itself included; `vocab` is the one that the tokens are from.
    #[must_use]
    pub fn beginning_with(&self, vocab: &Vocab, prefix: &[u8]) -> &[u32] {
        let token = |id: &u32| vocab.token(*id).unwrap_or_default();
        let from = &self.ids[self.ids.partition_point(|id| token(id) < prefix)..];
        &from[..from.partition_point(|id| token(id).starts_with(prefix))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        fn those_found_are_those_that_begin_so(
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
}
