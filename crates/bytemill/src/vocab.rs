//! What a vocabulary is: tokens, their ids, and the merges that make them.
//!
//! Inside, a token is a *symbol*: the bytes are 0 to 255 and merge number k makes symbol 256 + k, so that a symbol
//! is also a priority: of two merges the one whose result is the smaller symbol comes first. Outside, a token has
//! whatever id its file gives it.

use crate::error::{Error, Result};
use std::collections::HashMap;

/// Tokens by id and merges by rank, checked against each other.
#[derive(Clone, Debug)]
pub struct Vocab {
    /// All token bytes, one after the other, in the order of the ids.
    bytes: Vec<u8>,
    /// Where the bytes of each id start; one more entry at the end. Ids that no token has are empty.
    starts: Vec<u32>,
    /// Tokens of the vocabulary as given: the ordinary ones, and special ones where it lists them.
    ids: HashMap<Box<[u8]>, u32>,
    special: Vec<(String, u32)>,
    /// The two symbols that each merge joins, in order of rank.
    merges: Vec<(u32, u32)>,
    /// The id of each symbol.
    symbol_ids: Vec<u32>,
    /// Pairs of symbols that become a symbol, beyond `merges`: other ways to split a token in two (rank files only).
    other_splits: Vec<(u32, u32, u32)>,
    ranked: bool,
    whole_pretoken_lookup: bool,
}

/// Symbols must fit 21 bits, so that a pair and its result fit one word of the pair table.
pub const MAX_SYMBOLS: usize = 1 << 21;

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

fn show(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}

impl Vocab {
    /// A vocabulary by an ordered list of merges, each given by the bytes of its two parts.
    ///
    /// `tokens` may hold the special tokens too. A token that is neither a byte nor made by a merge is decoded, but no
    /// text encodes to it (GPT-2's files have such a one where its end-of-text token is not named as special).
    ///
    /// # Errors
    /// [`Error::Invalid`], naming the first contradiction: an id or a token that is there twice, a byte that is no
    /// token, a merge of unknown parts or whose result is no token, two merges with one result.
    pub fn from_merges(
        tokens: Vec<(u32, Vec<u8>)>,
        merges: &[(Vec<u8>, Vec<u8>)],
        special: Vec<(String, u32)>,
    ) -> Result<Self> {
        let mut ids: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(tokens.len());
        for (id, token) in &tokens {
            if token.is_empty() {
                return invalid(format!("token {id} is empty"));
            }
            if let Some(earlier) = ids.insert(token.as_slice().into(), *id) {
                return invalid(format!("token {} is there twice, with the ids {earlier} and {id}", show(token)));
            }
        }
        let mut symbol_ids = Vec::with_capacity(ids.len());
        let mut symbols: HashMap<&[u8], u32> = HashMap::with_capacity(ids.len());
        let all_bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        for (byte, symbol) in all_bytes.iter().zip(0..) {
            let Some(&id) = ids.get(&byte[..]) else {
                return invalid(format!("the byte {} is no token: all 256 bytes must be", show(byte)));
            };
            symbol_ids.push(id);
            symbols.insert(byte, symbol);
        }
        let mut pairs = Vec::with_capacity(merges.len());
        let mut joined = Vec::new();
        for (rank, (left, right)) in merges.iter().enumerate() {
            let name = || format!("merge {rank} ({} {})", show(left), show(right));
            let (Some(&left_symbol), Some(&right_symbol)) = (symbols.get(&left[..]), symbols.get(&right[..])) else {
                let unknown = if symbols.contains_key(&left[..]) { right } else { left };
                return invalid(format!(
                    "{}: {} is neither a byte nor the result of an earlier merge",
                    name(),
                    show(unknown)
                ));
            };
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let Some((token, &id)) = ids.get_key_value(&joined[..]) else {
                return invalid(format!("{}: the vocabulary has no token {}", name(), show(&joined)));
            };
            let symbol = symbol_ids.len() as u32;
            if symbols.insert(token, symbol).is_some() {
                return invalid(format!("{}: an earlier merge makes {} already", name(), show(&joined)));
            }
            symbol_ids.push(id);
            pairs.push((left_symbol, right_symbol));
        }
        drop(symbols);
        Self::assemble(ids, special, pairs, symbol_ids)
    }

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
    /// [`Error::Invalid`] as for [`Vocab::from_merges`].
    pub fn from_ranks(mut ranks: Vec<(Vec<u8>, u32)>, special: Vec<(String, u32)>) -> Result<Self> {
        ranks.sort_by_key(|(_, rank)| *rank);
        let mut ids: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(ranks.len());
        for window in ranks.windows(2) {
            if window[0].1 == window[1].1 {
                return invalid(format!(
                    "rank {} belongs to two tokens, {} and {}",
                    window[0].1,
                    show(&window[0].0),
                    show(&window[1].0)
                ));
            }
        }
        for (token, rank) in &ranks {
            if token.is_empty() {
                return invalid(format!("the token of rank {rank} is empty"));
            }
            if let Some(earlier) = ids.insert(token.as_slice().into(), *rank) {
                return invalid(format!("token {} is there twice, with the ranks {earlier} and {rank}", show(token)));
            }
        }
        let mut symbol_ids = vec![u32::MAX; 256];
        for (token, rank) in &ranks {
            match token[..] {
                [byte] => symbol_ids[usize::from(byte)] = *rank,
                _ => symbol_ids.push(*rank),
            }
        }
        if let Some(byte) = symbol_ids[..256].iter().position(|&id| id == u32::MAX) {
            return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte as u8])));
        }

        let mut table = crate::pairs::PairTable::new(ranks.len());
        let mut merges = Vec::with_capacity(ranks.len() - 256);
        let mut consistent = true;
        let mut parts = Vec::new();
        for (token, _) in ranks.iter().filter(|(token, _)| token.len() > 1) {
            parts.clear();
            crate::bpe::merge(&table, token, &mut parts, &crate::pulse::no_pulse)?;
            if let [left, right] = parts[..] {
                let symbol = 256 + merges.len() as u32;
                table.insert(left, right, symbol)?;
                merges.push((left, right));
            } else {
                consistent = false;
                break;
            }
        }
        if consistent {
            return Self::assemble(ids, special, merges, symbol_ids);
        }

        let symbols: HashMap<&[u8], u32> = {
            let mut next = 256;
            ranks
                .iter()
                .map(|(token, _)| match token[..] {
                    [byte] => (&token[..], u32::from(byte)),
                    _ => {
                        next += 1;
                        (&token[..], next - 1)
                    }
                })
                .collect()
        };
        let mut splits = Vec::new();
        for (token, _) in ranks.iter().filter(|(token, _)| token.len() > 1) {
            let symbol = symbols[&token[..]];
            for at in 1..token.len() {
                if let (Some(&left), Some(&right)) = (symbols.get(&token[..at]), symbols.get(&token[at..])) {
                    splits.push((left, right, symbol));
                }
            }
        }
        drop(symbols);
        let mut vocab = Self::assemble(ids, special, Vec::new(), symbol_ids)?;
        vocab.other_splits = splits;
        vocab.ranked = true;
        Ok(vocab.with_whole_pretoken_lookup(true))
    }

    fn assemble(
        ids: HashMap<Box<[u8]>, u32>,
        special: Vec<(String, u32)>,
        merges: Vec<(u32, u32)>,
        symbol_ids: Vec<u32>,
    ) -> Result<Self> {
        let mut by_id: Vec<(u32, &[u8])> = ids.iter().map(|(token, id)| (*id, &token[..])).collect();
        by_id.extend(special.iter().map(|(token, id)| (*id, token.as_bytes())));
        by_id.sort_unstable();
        // A vocabulary may list its special tokens, with the ids they have.
        by_id.dedup();
        for window in by_id.windows(2) {
            if window[0].0 == window[1].0 {
                return invalid(format!(
                    "the id {} belongs to two tokens, {} and {}",
                    window[0].0,
                    show(window[0].1),
                    show(window[1].1)
                ));
            }
        }
        let n_ids = by_id.last().map_or(0, |(id, _)| *id as usize + 1);
        // A file may name any id; an array over ids must not let one line of it take gigabytes.
        if n_ids > MAX_SYMBOLS.max(16 * by_id.len()) {
            return invalid(format!("the id {} is out of all proportion to {} tokens", n_ids - 1, by_id.len()));
        }
        let n_bytes: usize = by_id.iter().map(|(_, token)| token.len()).sum();
        if n_bytes > u32::MAX as usize {
            return invalid(format!("the tokens are {n_bytes} bytes together; at most 4 GiB are supported"));
        }
        let mut bytes = Vec::with_capacity(n_bytes);
        let mut starts = Vec::with_capacity(n_ids + 1);
        for &(id, token) in &by_id {
            starts.resize(id as usize + 1, bytes.len() as u32);
            bytes.extend_from_slice(token);
        }
        starts.push(bytes.len() as u32);
        Ok(Self {
            bytes,
            starts,
            ids,
            special,
            merges,
            symbol_ids,
            other_splits: Vec::new(),
            ranked: false,
            whole_pretoken_lookup: false,
        })
    }

    /// Highest id + 1.
    #[must_use]
    pub fn n_ids(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of a token, special ones included; `None` for an id that no token has.
    #[inline]
    #[must_use]
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        let (start, end) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        if start == end { None } else { Some(&self.bytes[start as usize..end as usize]) }
    }

    /// The id of a token of the vocabulary.
    #[must_use]
    pub fn id(&self, token: &[u8]) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// The tokens of the vocabulary and their ids, in no order.
    pub fn tokens(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.ids.iter().map(|(token, id)| (&token[..], *id))
    }

    /// Special tokens and their ids.
    #[must_use]
    pub fn special(&self) -> &[(String, u32)] {
        &self.special
    }

    /// The pairs of symbols of the merges, in order of rank.
    #[must_use]
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// The id of each symbol.
    #[must_use]
    pub fn symbol_ids(&self) -> &[u32] {
        &self.symbol_ids
    }

    /// The bytes of a symbol.
    #[must_use]
    pub fn symbol(&self, symbol: u32) -> &[u8] {
        self.token(self.symbol_ids[symbol as usize]).unwrap_or_default()
    }

    /// Pairs and results beyond [`Vocab::merges`].
    #[must_use]
    pub fn other_splits(&self) -> &[(u32, u32, u32)] {
        &self.other_splits
    }

    /// True where the ids are priorities that no list of merges stands for.
    #[must_use]
    pub fn is_ranked(&self) -> bool {
        self.ranked
    }

    /// True where a pre-token that is a token is that token even if no merges lead there.
    #[must_use]
    pub fn whole_pretoken_lookup(&self) -> bool {
        self.whole_pretoken_lookup
    }

    /// Sets [`Vocab::whole_pretoken_lookup`].
    #[must_use]
    pub fn with_whole_pretoken_lookup(mut self, yes: bool) -> Self {
        self.whole_pretoken_lookup = yes;
        self
    }
}

#[cfg(test)]
mod tests;
