//! Vocabularies from an ordered list of merges, and those whose ranks no list of merges represents.

use super::leftovers::Leftovers;
use super::pair_table::PairTable;
use super::tokens::{TokenIndex, TokenList};
use super::vocabulary::Vocab;
use crate::error::{Result, invalid, show};

/// The symbol of a token that no merge makes.
const NO_SYMBOL: u32 = u32::MAX;

/// The id of a byte that is no token.
pub(crate) const NO_ID: u32 = u32::MAX;

/// True for the bytes that UTF-8 never uses, so that no text needs tokens for them. Many published vocabularies lack them.
pub(crate) fn is_never_in_utf8(byte: u8) -> bool {
    matches!(byte, 0xC0 | 0xC1 | 0xF5..)
}

/// The first byte that UTF-8 uses and that is no token, by the ids of symbols.
fn missing_byte(symbol_ids: &[u32]) -> Option<u8> {
    (0..=255).find(|&byte| symbol_ids[usize::from(byte)] == NO_ID && !is_never_in_utf8(byte))
}

/// Tokens whose merges are added one by one, in order of rank.
///
/// A token that is neither a byte nor the result of a merge can be decoded, but no text encodes to it. (GPT-2's files have
/// one if the end-of-text token is not declared special.)
#[derive(Debug)]
pub struct MergedTokens {
    pub(super) tokens: TokenList,
    pub(super) index: TokenIndex,
    /// The symbol of each token, by position.
    pub(super) symbols: Vec<u32>,
    pub(super) symbol_ids: Vec<u32>,
    merges: Vec<(u32, u32)>,
    pairs: PairTable,
    /// Where the next result is looked for first: files list tokens in the order of their merges.
    next: usize,
}

impl MergedTokens {
    /// Tokens without merges so far. `number` is what their file calls an id, for messages.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an empty or repeated token, and if a byte that UTF-8 uses is not a token.
    pub fn new(tokens: TokenList, number: &str) -> Result<Self> {
        let merged = Self::with_any_bytes(tokens, number)?;
        match merged.missing_byte() {
            Some(byte) => invalid(format!("the byte {} is no token: all bytes of UTF-8 must be", show(&[byte]))),
            None => Ok(merged),
        }
    }

    /// The same if bytes may be missing.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an empty or repeated token.
    pub fn with_any_bytes(tokens: TokenList, number: &str) -> Result<Self> {
        let index = TokenIndex::new(&tokens, number)?;
        let mut symbols = vec![NO_SYMBOL; tokens.len()];
        let mut symbol_ids = Vec::with_capacity(tokens.len());
        for byte in 0..=255u8 {
            match index.get(&[byte], |position| tokens.token(position as usize)) {
                Some(position) => {
                    symbols[position as usize] = u32::from(byte);
                    symbol_ids.push(tokens.ids()[position as usize]);
                }
                None => symbol_ids.push(NO_ID),
            }
        }
        let n_merges = tokens.len().saturating_sub(256);
        let (merges, pairs) = (Vec::with_capacity(n_merges), PairTable::new(n_merges));
        Ok(Self { tokens, index, symbols, symbol_ids, merges, pairs, next: 0 })
    }

    /// The first byte that UTF-8 uses and that is no token.
    pub fn missing_byte(&self) -> Option<u8> {
        missing_byte(&self.symbol_ids)
    }

    /// Adds the merges of each byte with `end`, a byte of no text, whose results are written with a suffix.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if a byte that is a token is none with the suffix.
    pub fn add_ends(&mut self, suffix: &[u8], end: u8) -> Result<()> {
        for byte in (0..=255).filter(|&byte| !is_never_in_utf8(byte)) {
            let Some(position) = self.position(&[&[byte], suffix].concat()) else {
                return invalid(format!("the byte {} has no token at the end of a word", show(&[byte])));
            };
            self.add_symbols(u32::from(byte), u32::from(end), position)?;
        }
        Ok(())
    }

    /// The position of a token.
    #[inline]
    pub(crate) fn position(&self, token: &[u8]) -> Option<usize> {
        Some(self.index.get(token, |position| self.tokens.token(position as usize))? as usize)
    }

    /// The same for the result of a merge: of the last one again, or of the next one.
    #[inline]
    pub(crate) fn result_position(&self, joined: &[u8]) -> Option<usize> {
        let is_at = |position: usize| position < self.tokens.len() && self.tokens.token(position) == joined;
        let near = [self.next, self.next.wrapping_sub(1)].into_iter().find(|&position| is_at(position));
        near.or_else(|| self.position(joined))
    }

    /// The tokens.
    pub(crate) fn tokens(&self) -> &TokenList {
        &self.tokens
    }

    /// The pairs that merge so far.
    pub(crate) fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// Whether the token at a position is a byte or the result of a merge.
    pub(crate) fn is_made(&self, position: usize) -> bool {
        self.symbol_at(position).is_some()
    }

    /// Whether the token at a position is a byte that UTF-8 never uses, nor any merge.
    pub(crate) fn is_in_no_text(&self, position: usize) -> bool {
        let symbol = self.symbols[position];
        let is_part = |&(left, right): &(u32, u32)| left == symbol || right == symbol;
        u8::try_from(symbol).is_ok_and(is_never_in_utf8) && !self.merges.iter().any(is_part)
    }

    /// The merges so far, as pairs of symbols; the first one makes symbol 256.
    pub(crate) fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// Number of merges so far.
    pub(crate) fn n_merges(&self) -> usize {
        self.merges.len()
    }

    /// Adds the merge of the next rank: that of the two parts of `joined`, split after `n_left` bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a merge of unknown parts, whose result is not a token, or whose result an earlier merge
    /// makes.
    pub fn add(&mut self, joined: &[u8], n_left: usize) -> Result<()> {
        let (left, right) = joined.split_at(n_left);
        let name = || format!("merge {} ({} {})", self.merges.len(), show(left), show(right));
        let (left_symbol, right_symbol) = (self.symbol(left), self.symbol(right));
        let (Some(left_symbol), Some(right_symbol)) = (left_symbol, right_symbol) else {
            let (name, unknown) = (name(), show(if left_symbol.is_some() { right } else { left }));
            return invalid(format!("{name}: {unknown} is neither a byte nor the result of an earlier merge"));
        };
        let Some(position) = self.result_position(joined) else {
            return invalid(format!("{}: the vocabulary has no token {}", name(), show(joined)));
        };
        if self.is_made(position) {
            return invalid(format!("{}: an earlier merge makes {} already", name(), show(joined)));
        }
        self.add_symbols(left_symbol, right_symbol, position)
    }

    /// Adds a merge of two symbols, whose result is the token at `position`.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for too many tokens.
    pub(crate) fn add_symbols(&mut self, left: u32, right: u32, position: usize) -> Result<()> {
        self.pairs.insert(left, right, self.symbol_ids.len() as u32)?;
        self.next = position + 1;
        self.merges.push((left, right));
        self.make(position);
        Ok(())
    }

    /// Adds merges in the order of their ranks, of which each is the one that makes its token in any text. Its parts may be made by
    /// later ones.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a merge of unknown parts or whose result is not a token, and for too many tokens.
    pub(crate) fn add_in_any_order(&mut self, merges: &[(&[u8], &[u8])]) -> Result<()> {
        for (index, (left, right)) in merges.iter().enumerate() {
            let joined = [*left, *right].concat();
            let Some(position) = self.result_position(&joined) else {
                let merge = format!("merge {index} ({} {})", show(left), show(right));
                return invalid(format!("{merge}: the vocabulary has no token {}", show(&joined)));
            };
            self.next = position + 1;
            self.make(position);
        }
        for ((left, right), symbol) in merges.iter().zip(256..) {
            let (Some(left), Some(right)) = (self.symbol(left), self.symbol(right)) else {
                let merge = format!("the merge of {} and {}", show(left), show(right));
                return invalid(format!("{merge}: one of them is neither a byte nor the result of a merge"));
            };
            self.pairs.insert(left, right, symbol)?;
            self.merges.push((left, right));
        }
        Ok(())
    }

    /// Gives the next symbol to the token at `position`.
    pub(super) fn make(&mut self, position: usize) {
        self.symbols[position] = self.symbol_ids.len() as u32;
        self.symbol_ids.push(self.tokens.ids()[position]);
    }

    /// The symbol of a byte or of a merge's result.
    #[inline]
    fn symbol(&self, token: &[u8]) -> Option<u32> {
        if let [byte] = token {
            return Some(u32::from(*byte)).filter(|&symbol| self.symbol_ids[symbol as usize] != NO_ID);
        }
        self.symbol_at(self.position(token)?)
    }

    /// The symbol of the token at a position; `None` if it is neither a byte nor the result of a merge.
    #[inline]
    pub(crate) fn symbol_at(&self, position: usize) -> Option<u32> {
        Some(self.symbols[position]).filter(|&symbol| symbol != NO_SYMBOL)
    }

    /// The vocabulary without the tokens at the positions `left_out`, which no merges make and no texts have.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an id that two tokens have, and for one out of proportion to the number of tokens.
    pub fn finish(self, left_out: &[usize], special: Vec<(String, u32)>) -> Result<Vocab> {
        let Self { mut tokens, index, symbols, merges, mut symbol_ids, pairs, .. } = self;
        for &position in left_out {
            tokens.clear(position);
            if symbols[position] != NO_SYMBOL {
                symbol_ids[symbols[position] as usize] = NO_ID;
            }
        }
        Vocab::assemble(&tokens, index, None, special, merges, symbol_ids, pairs)
    }

    /// The vocabulary of characters with these merges.
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_characters(
        self,
        aliases: Vec<(u32, Vec<u8>)>,
        special: Vec<(String, u32)>,
        leftovers: Leftovers,
    ) -> Result<Vocab> {
        let Self { tokens, index, merges, symbol_ids, pairs, .. } = self;
        let vocab = Vocab::assemble(&tokens, index, Some(aliases), special, merges, symbol_ids, pairs)?;
        Ok(vocab.with_leftovers(leftovers))
    }
}

impl Vocab {
    /// The first byte that UTF-8 uses and that is no token.
    pub fn missing_byte(&self) -> Option<u8> {
        missing_byte(&self.symbol_ids)
    }

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
        let mut merged = MergedTokens::new(tokens, "id")?;
        for (left, right) in merges {
            merged.add(&[&left[..], right].concat(), left.len())?;
        }
        merged.finish(&[], special)
    }
}

impl MergedTokens {
    /// The vocabulary in which any two neighbours merge whose bytes together are a token, in place of the merges so far. The
    /// tokens are in the order of their ranks.
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_ranked(mut self, special: Vec<(String, u32)>) -> Result<Vocab> {
        self.merge_all_splits()?;
        self.finish_all_splits(special)
    }

    /// The same after [`MergedTokens::merge_all_splits`].
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_all_splits(self, special: Vec<(String, u32)>) -> Result<Vocab> {
        Ok(Vocab::assemble(&self.tokens, self.index, None, special, Vec::new(), self.symbol_ids, self.pairs)?
            .into_ranked())
    }

    /// Makes any two neighbours merge whose bytes together are a token, and returns these pairs with what they make, in the order of
    /// the tokens and of the lengths of the left parts. Symbols from 256 on are then in the order of the tokens too.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for too many tokens.
    pub(crate) fn merge_all_splits(&mut self) -> Result<Vec<(u32, u32, u32)>> {
        self.make_all();
        let splits = self.all_splits();
        self.pairs = PairTable::new(splits.len());
        for &(left, right, symbol) in &splits {
            self.pairs.insert(left, right, symbol)?;
        }
        Ok(splits)
    }

    /// The position of the token of each symbol. Bytes that are no token have that of another one.
    pub(crate) fn positions_of_symbols(&self) -> Vec<usize> {
        let mut positions = vec![0; self.symbol_ids.len()];
        for (position, &symbol) in self.symbols.iter().enumerate().filter(|&(_, &symbol)| symbol != NO_SYMBOL) {
            positions[symbol as usize] = position;
        }
        positions
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
