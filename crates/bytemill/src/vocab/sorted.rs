//! Tokens in the order of their bytes, to find those with a given prefix.

use super::Vocab;
use std::collections::HashSet;

/// The ids of the ordinary tokens, in the order of their bytes.
#[derive(Clone, Debug)]
pub struct SortedTokens {
    ids: Vec<u32>,
    longest: usize,
}

impl SortedTokens {
    /// The tokens of a vocabulary, without those that are only special.
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

    /// Length of the longest token in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The ids of the tokens that start with `prefix`, itself included; `vocab` is the vocabulary that the tokens are from.
    #[must_use]
    pub fn beginning_with(&self, vocab: &Vocab, prefix: &[u8]) -> &[u32] {
        let token = |id: &u32| vocab.token(*id).unwrap_or_default();
        let from = &self.ids[self.ids.partition_point(|id| token(id) < prefix)..];
        &from[..from.partition_point(|id| token(id).starts_with(prefix))]
    }
}

#[cfg(test)]
#[path = "tests/sorted.rs"]
mod tests;
