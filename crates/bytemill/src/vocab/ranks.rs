//! Vocabularies by ranks, and the merges behind them.

use super::helper::{Helper, with_helper};
use super::tokens::{Fault, TokenIndex, TokenList};
use super::whole::{Known, perfect_beside};
use super::{Vocab, invalid, show};
use crate::error::Result;
use crate::pairs::PairTable;
use crate::words::Words;
use std::sync::Arc;

/// Merges that encode as ranks do.
struct Recovered {
    merges: Vec<(u32, u32)>,
    pairs: PairTable,
}

impl Vocab {
    /// A vocabulary by ranks: each token's id is its priority, and any two neighbours whose bytes joined are a token
    /// may merge (the rule of tiktoken).
    ///
    /// The merges are recovered by encoding each token with the tokens of lower rank. Where that leaves two parts for
    /// every token, the recovered merges encode exactly as the ranks do. (Say all merges of rank below r are done in
    /// a pre-token and two neighbours x, y join to the token t of rank r. No token crosses the ends of that stretch,
    /// so the merges inside it were those of t alone: the stretch is in the state of t encoded with lower ranks,
    /// which is the recovered pair.) Where a token is left in one part or more than two, it cannot be reached in
    /// that way; then every split of every token into two tokens is kept, and a whole pre-token is looked up first,
    /// which is tiktoken's rule word for word.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] as for [`Vocab::from_merges`].
    pub fn from_ranks(ranks: Vec<(Vec<u8>, u32)>, special: Vec<(String, u32)>) -> Result<Self> {
        Self::from_ranked(TokenList::collect(ranks.iter().map(|(token, rank)| (*rank, &token[..])))?, special)
    }

    /// As [`Vocab::from_ranks`], without a copy of every token.
    ///
    /// # Errors
    /// As [`Vocab::from_ranks`].
    pub fn from_ranked(tokens: TokenList, special: Vec<(String, u32)>) -> Result<Self> {
        with_helper(|helper| Self::from_ranked_beside(tokens, special, helper))
    }

    fn from_ranked_beside(mut tokens: TokenList, special: Vec<(String, u32)>, helper: &Helper<'_>) -> Result<Self> {
        tokens.sort_by_id();
        let tokens = Arc::new(tokens);
        let ids = tokens.ids();
        if let Some(place) = ids.windows(2).position(|two| two[0] == two[1]) {
            let (one, other) = (show(tokens.token(place)), show(tokens.token(place + 1)));
            return invalid(format!("rank {} belongs to two tokens, {one} and {other}", ids[place]));
        }
        let all = Arc::clone(&tokens);
        let index_and_words = helper.ask(move || {
            let index = TokenIndex::new(&all)?;
            // Whether by merges or by looking up a whole pre-token, every token is what its own bytes encode to.
            let words = Words::new(all.iter().map(|(id, token)| (token, id)));
            Ok((index, words))
        });
        let recovered = recover(&tokens);
        let (index, words) = match index_and_words.wait() {
            Ok(both) => both,
            Err(Fault::Empty(place)) => return invalid(format!("the token of rank {} is empty", ids[place])),
            Err(Fault::Twice(one, other)) => {
                return invalid(format!(
                    "token {} is there twice, with the ranks {} and {}",
                    show(tokens.token(one)),
                    ids[one],
                    ids[other]
                ));
            }
        };
        let mut symbol_ids = vec![u32::MAX; 256];
        symbol_ids.reserve(tokens.len());
        let mut seen = [false; 256];
        for (rank, token) in tokens.iter() {
            if let [byte] = token {
                symbol_ids[usize::from(*byte)] = rank;
                seen[usize::from(*byte)] = true;
            } else {
                symbol_ids.push(rank);
            }
        }
        if let Some(byte) = seen.iter().position(|seen| !seen) {
            return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte as u8])));
        }
        if let Some(Recovered { merges, pairs }) = recovered? {
            let pairs = Arc::new(pairs);
            let perfect = perfect_beside(helper, &pairs);
            let mut vocab = Self::assemble(&tokens, index, special, merges, symbol_ids)?;
            let perfect = Some(perfect.wait()?);
            vocab.known = Known { pairs: Some(Arc::unwrap_or_clone(pairs)), perfect, words: Some(words) };
            vocab.all_made_whole = true;
            return Ok(vocab);
        }
        let splits = all_splits(&tokens, &index);
        let mut vocab = Self::assemble(&tokens, index, special, Vec::new(), symbol_ids)?;
        vocab.known.words = Some(words);
        vocab.other_splits = splits;
        vocab.ranked = true;
        Ok(vocab.with_whole_pretoken_lookup(true))
    }
}

/// The merges behind tokens in the order of their ranks; None where one is not left in two parts by those before it.
///
/// To look for the two parts among the splits of a token, by the condition in `whole.rs`, was predicted to take half the
/// time and took twice as much: finding the tokens at its ends misses the cache more often than merging it.
fn recover(tokens: &TokenList) -> Result<Option<Recovered>> {
    let mut pairs = PairTable::new(tokens.len());
    let mut merges = Vec::with_capacity(tokens.len());
    let mut parts = Vec::new();
    for (_, token) in tokens.iter().filter(|(_, token)| token.len() > 1) {
        parts.clear();
        crate::bpe::merge(&pairs, token, &mut parts, &crate::pulse::no_pulse)?;
        let [left, right] = parts[..] else { return Ok(None) };
        pairs.insert(left, right, 256 + merges.len() as u32)?;
        merges.push((left, right));
    }
    Ok(Some(Recovered { merges, pairs }))
}

/// Every way to split every token into two, by symbols.
///
/// Only where both parts have as many bytes as some token does is the index asked. Tokens of B bytes together have at
/// most √2B different lengths, so that a long token costs that many look-ups and not one for each of its bytes.
fn all_splits(tokens: &TokenList, index: &TokenIndex) -> Vec<(u32, u32, u32)> {
    let mut symbols = Vec::with_capacity(tokens.len());
    let mut next = 256;
    for (_, token) in tokens.iter() {
        symbols.push(if let [byte] = token {
            u32::from(*byte)
        } else {
            next += 1;
            next - 1
        });
    }
    let mut lengths: Vec<usize> = tokens.iter().map(|(_, token)| token.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let is_length = |n_bytes: usize| lengths.binary_search(&n_bytes).is_ok();
    let symbol = |part: &[u8]| Some(symbols[index.get(part, |place| tokens.token(place as usize))? as usize]);
    let mut splits = Vec::new();
    for (made, (_, token)) in symbols.iter().zip(tokens.iter()) {
        for &at in lengths.iter().take_while(|&&at| at < token.len()).filter(|&&at| is_length(token.len() - at)) {
            if let (Some(left), Some(right)) = (symbol(&token[..at]), symbol(&token[at..])) {
                splits.push((left, right, *made));
            }
        }
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_of_long_tokens_are_all_there() {
        let runs = (2..=300).map(|n| vec![b'a'; n]);
        let all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).chain(runs).chain([b"xyz".to_vec()]).collect();
        let tokens = TokenList::collect((0..).zip(all.iter().map(|token| &token[..]))).unwrap();
        let index = TokenIndex::new(&tokens).unwrap();
        let mut splits = all_splits(&tokens, &index);
        splits.sort_unstable();
        let symbol = |n: u32| if n == 1 { 97 } else { 254 + n };
        let mut expected: Vec<(u32, u32, u32)> =
            (2..=300).flat_map(|n| (1..n).map(move |at| (symbol(at), symbol(n - at), symbol(n)))).collect();
        expected.sort_unstable();
        assert_eq!(splits, expected);
    }
}
