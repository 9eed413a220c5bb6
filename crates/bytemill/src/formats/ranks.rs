//! Vocabularies from ranks (tiktoken's rule), and the merges behind the ranks.

use crate::bpe::merge;
use crate::error::Result;
use crate::sys::interrupt::no_interrupt;
use crate::vocab::pair_table::PairTable;
use crate::vocab::{Fault, TokenIndex, TokenList, Vocab, invalid, show};

/// Merges that encode as ranks do.
struct Recovered {
    merges: Vec<(u32, u32)>,
    pairs: PairTable,
}

impl Vocab {
    /// A vocabulary from ranks: a token's id is its priority, and any two neighbours whose bytes together are a token may
    /// merge (tiktoken's rule).
    ///
    /// The merges are recovered by encoding each token with the tokens of lower rank. If that leaves two parts of every
    /// token, the recovered merges encode exactly as the ranks do. (Suppose all merges of rank below r are done in a pre-token
    /// and two neighbours x and y form the token t of rank r. No token crosses the ends of that stretch, so the merges inside it
    /// were those of t alone: the stretch is in the state of t encoded with lower ranks, which is the recovered pair.) If a
    /// token is left in one part or in more than two, it cannot be reached in that way; then every split of every token into two
    /// tokens is kept, and whole pre-tokens are looked up first, which is tiktoken's rule word for word.
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
    pub fn from_ranked(mut tokens: TokenList, special: Vec<(String, u32)>) -> Result<Self> {
        tokens.sort_by_id();
        let ids = tokens.ids();
        if let Some(position) = ids.windows(2).position(|two| two[0] == two[1]) {
            let (one, other) = (show(tokens.token(position)), show(tokens.token(position + 1)));
            return invalid(format!("rank {} belongs to two tokens, {one} and {other}", ids[position]));
        }
        let index = match TokenIndex::new(&tokens) {
            Ok(index) => index,
            Err(Fault::Empty(position)) => return invalid(format!("the token of rank {} is empty", ids[position])),
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
        if let Some(Recovered { merges, pairs }) = recover_merges(&tokens)? {
            return Self::assemble(&tokens, index, special, merges, symbol_ids, pairs);
        }
        let splits = all_splits(&tokens, &index);
        let mut pairs = PairTable::new(splits.len());
        for (left, right, symbol) in splits {
            pairs.insert(left, right, symbol)?;
        }
        let vocab = Self::assemble(&tokens, index, special, Vec::new(), symbol_ids, pairs)?;
        Ok(vocab.into_ranked().with_whole_pretoken_lookup(true))
    }
}

/// The merges behind tokens in the order of their ranks; `None` if the tokens before one do not leave it in two parts.
fn recover_merges(tokens: &TokenList) -> Result<Option<Recovered>> {
    let mut pairs = PairTable::new(tokens.len());
    let mut merges = Vec::with_capacity(tokens.len());
    let mut parts = Vec::new();
    for (_, token) in tokens.iter().filter(|(_, token)| token.len() > 1) {
        parts.clear();
        merge(&pairs, token, &mut parts, &no_interrupt)?;
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
#[path = "tests/ranks.rs"]
mod tests;
