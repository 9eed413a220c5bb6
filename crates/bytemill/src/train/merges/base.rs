//! The vocabulary that learning continues.
//!
//! Pre-tokens start as the symbols that the vocabulary gives them instead of as bytes, and new merges come after all of its
//! merges. So an encoder that has both does the old merges of a text first, and the new ones on what they leave over, which is
//! what was counted. A pair never makes a token that the vocabulary has already: the new merge would lead to a token that had
//! none, and old merges of that token would come before the new one.

use crate::encode::Encoder;
use crate::error::Result;

/// A vocabulary that learning continues.
pub trait Base: Sync {
    /// Number of symbols: the 256 bytes and a symbol for each merge.
    fn n_symbols(&self) -> usize;

    /// The bytes of a symbol.
    fn symbol(&self, symbol: u32) -> &[u8];

    /// Appends the symbols of a pre-token to `out`; any single one if the pre-token is one token.
    ///
    /// # Errors
    /// Those of encoding.
    fn segment(&self, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()>;

    /// True for a token of the vocabulary, special ones included.
    fn has(&self, token: &[u8]) -> bool;
}

impl Base for Encoder {
    fn n_symbols(&self) -> usize {
        self.vocab().symbol_ids().len()
    }

    fn symbol(&self, symbol: u32) -> &[u8] {
        self.vocab().symbol(symbol)
    }

    fn segment(&self, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()> {
        self.symbols_of(pretoken, out)
    }

    fn has(&self, token: &[u8]) -> bool {
        self.vocab().id(token).is_some() || self.special().tokens().iter().any(|(text, _)| text.as_bytes() == token)
    }
}
