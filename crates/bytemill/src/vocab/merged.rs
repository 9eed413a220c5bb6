//! Vocabularies from an ordered list of merges.

use super::merge_list::MergeList;
use super::pair_table::PairTable;
use super::tokens::{Fault, TokenIndex, TokenList};
use super::vocabulary::{Vocab, invalid, show};
use crate::error::Result;

/// The symbol of a token that no merge makes.
const NO_SYMBOL: u32 = u32::MAX;

/// Tokens whose merges are added one by one, in order of rank.
///
/// A token that is neither a byte nor the result of a merge can be decoded, but no text encodes to it. (GPT-2's files have
/// one if the end-of-text token is not declared special.)
#[derive(Debug)]
pub struct MergedTokens {
    tokens: TokenList,
    index: TokenIndex,
    /// The symbol of each token, by position.
    symbols: Vec<u32>,
    symbol_ids: Vec<u32>,
    merges: Vec<(u32, u32)>,
    pairs: PairTable,
    /// Where the next result is looked for first: files list tokens in the order of their merges.
    next: usize,
}

impl MergedTokens {
    /// Tokens without merges so far.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an empty or repeated token, and if a byte is not a token.
    pub fn new(tokens: TokenList) -> Result<Self> {
        let ids = tokens.ids();
        let index = match TokenIndex::new(&tokens) {
            Ok(index) => index,
            Err(Fault::Empty(position)) => return invalid(format!("token {} is empty", ids[position])),
            Err(Fault::Twice(one, other)) => {
                return invalid(format!(
                    "token {} is there twice, with the ids {} and {}",
                    show(tokens.token(one)),
                    ids[one],
                    ids[other]
                ));
            }
        };
        let mut symbols = vec![NO_SYMBOL; tokens.len()];
        let mut symbol_ids = Vec::with_capacity(tokens.len());
        for byte in 0..=255u8 {
            let Some(position) = index.get(&[byte], |position| tokens.token(position as usize)) else {
                return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte])));
            };
            symbols[position as usize] = u32::from(byte);
            symbol_ids.push(ids[position as usize]);
        }
        let pairs = PairTable::new(tokens.len() - 256);
        Ok(Self { tokens, index, symbols, symbol_ids, merges: Vec::new(), pairs, next: 0 })
    }

    /// The position of a token.
    #[inline]
    pub(crate) fn position(&self, token: &[u8]) -> Option<usize> {
        Some(self.index.get(token, |position| self.tokens.token(position as usize))? as usize)
    }

    /// The tokens.
    pub(crate) fn tokens(&self) -> &TokenList {
        &self.tokens
    }

    /// Whether the token at a position is a byte or the result of a merge.
    pub(crate) fn is_made(&self, position: usize) -> bool {
        self.symbols[position] != NO_SYMBOL
    }

    /// Number of merges so far.
    pub(crate) fn n_merges(&self) -> usize {
        self.merges.len()
    }

    /// Adds the merge of the next rank.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a merge of unknown parts, whose result is not a token, or whose result an earlier merge
    /// makes.
    pub fn merge(&mut self, left: &[u8], right: &[u8]) -> Result<()> {
        self.add(&[left, right].concat(), left.len())
    }

    /// Adds all merges of a list.
    ///
    /// # Errors
    /// As [`MergedTokens::merge`].
    pub(crate) fn with_merges(mut self, merges: &MergeList) -> Result<Self> {
        self.merges.reserve_exact(merges.len());
        for (joined, n_left) in merges.iter() {
            self.add(joined, n_left)?;
        }
        Ok(self)
    }

    /// Adds a merge of `joined`, split after `n_left` bytes.
    fn add(&mut self, joined: &[u8], n_left: usize) -> Result<()> {
        let (left, right) = joined.split_at(n_left);
        let name = || format!("merge {} ({} {})", self.merges.len(), show(left), show(right));
        let (left_symbol, right_symbol) = (self.symbol(left), self.symbol(right));
        let (Some(left_symbol), Some(right_symbol)) = (left_symbol, right_symbol) else {
            let unknown = if left_symbol.is_some() { right } else { left };
            return invalid(format!(
                "{}: {} is neither a byte nor the result of an earlier merge",
                name(),
                show(unknown)
            ));
        };
        let position = if self.next < self.tokens.len() && self.tokens.token(self.next) == joined {
            self.next
        } else if let Some(position) = self.position(joined) {
            position
        } else {
            return invalid(format!("{}: the vocabulary has no token {}", name(), show(joined)));
        };
        if self.symbols[position] != NO_SYMBOL {
            return invalid(format!("{}: an earlier merge makes {} already", name(), show(joined)));
        }
        let symbol = self.symbol_ids.len() as u32;
        self.pairs.insert(left_symbol, right_symbol, symbol)?;
        self.next = position + 1;
        self.symbols[position] = symbol;
        self.symbol_ids.push(self.tokens.ids()[position]);
        self.merges.push((left_symbol, right_symbol));
        Ok(())
    }

    /// The symbol of a byte or of a merge's result.
    #[inline]
    fn symbol(&self, token: &[u8]) -> Option<u32> {
        if let [byte] = token {
            return Some(u32::from(*byte));
        }
        let symbol = self.symbols[self.position(token)?];
        (symbol != NO_SYMBOL).then_some(symbol)
    }

    /// The vocabulary.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an id that two tokens have, and for one out of proportion to the number of tokens.
    pub fn finish(self, special: Vec<(String, u32)>) -> Result<Vocab> {
        self.finish_without(&[], special)
    }

    /// The vocabulary without the tokens at the positions `left_out`, which no merges make.
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_without(self, left_out: &[usize], special: Vec<(String, u32)>) -> Result<Vocab> {
        let Self { mut tokens, mut index, merges, symbol_ids, pairs, .. } = self;
        for &position in left_out {
            index.remove(tokens.token(position), |position| tokens.token(position as usize));
        }
        for &position in left_out {
            tokens.clear(position);
        }
        Vocab::assemble(&tokens, index, special, merges, symbol_ids, pairs)
    }
}

impl Vocab {
    /// A vocabulary from an ordered list of merges, each given by the bytes of its two parts.
    ///
    /// `tokens` may include the special tokens.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], naming the first contradiction: a repeated id or token, a byte that is not a token, a merge
    /// of unknown parts or whose result is not a token, two merges with one result.
    pub fn from_merges(
        tokens: Vec<(u32, Vec<u8>)>,
        merges: &[(Vec<u8>, Vec<u8>)],
        special: Vec<(String, u32)>,
    ) -> Result<Self> {
        let tokens = TokenList::collect(tokens.iter().map(|(id, token)| (*id, &token[..])))?;
        let mut merged = MergedTokens::new(tokens)?;
        for (left, right) in merges {
            merged.merge(left, right)?;
        }
        merged.finish(special)
    }
}
