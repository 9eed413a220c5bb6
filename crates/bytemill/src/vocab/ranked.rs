//! Vocabularies whose ranks no list of merges represents.

use super::merged::MergedTokens;
use super::pair_table::PairTable;
use super::vocabulary::Vocab;
use crate::error::Result;

impl MergedTokens {
    /// The vocabulary in which any two neighbours merge whose bytes together are a token, in place of the merges so far. The
    /// tokens are in the order of their ranks.
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_ranked(mut self, special: Vec<(String, u32)>) -> Result<Vocab> {
        self.make_all();
        let splits = self.all_splits();
        let mut pairs = PairTable::new(splits.len());
        for (left, right, symbol) in splits {
            pairs.insert(left, right, symbol)?;
        }
        Ok(Vocab::assemble(&self.tokens, self.index, None, special, Vec::new(), self.symbol_ids, pairs)?.into_ranked())
    }

    /// The number of ways to split the tokens into two, all tokens together.
    pub(crate) fn n_splits(&mut self) -> usize {
        self.make_all();
        self.all_splits().len()
    }

    /// Gives symbols to all tokens, in their order.
    fn make_all(&mut self) {
        self.symbol_ids.truncate(256);
        for position in 0..self.tokens.len() {
            if self.tokens.token(position).len() > 1 {
                self.make(position);
            }
        }
    }

    /// Every way to split every token into two, by symbols.
    ///
    /// The index is searched only where both parts have as many bytes as some token does. Tokens of B bytes together have at
    /// most √(2B) different lengths, so a long token costs that many lookups and not one for each of its bytes.
    fn all_splits(&self) -> Vec<(u32, u32, u32)> {
        let mut lengths: Vec<usize> = self.tokens.iter().map(|(_, token)| token.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let is_length = |n_bytes: usize| lengths.binary_search(&n_bytes).is_ok();
        let symbol = |part: &[u8]| self.position(part).map(|position| self.symbols[position]);
        let mut splits = Vec::new();
        for (made, (_, token)) in self.symbols.iter().zip(self.tokens.iter()) {
            for &at in lengths.iter().take_while(|&&at| at < token.len()).filter(|&&at| is_length(token.len() - at)) {
                if let (Some(left), Some(right)) = (symbol(&token[..at]), symbol(&token[at..])) {
                    splits.push((left, right, *made));
                }
            }
        }
        splits
    }
}

#[cfg(test)]
#[path = "tests/ranked.rs"]
mod tests;
