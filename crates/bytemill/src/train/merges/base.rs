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

    /// True for a token that no new merge may make: one of the vocabulary, special ones included, or one that is forbidden.
    fn excludes(&self, token: &[u8]) -> bool;
}

/// The symbols of the 256 bytes.
static BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = byte as u8;
        byte += 1;
    }
    bytes
};

/// A vocabulary, or the 256 bytes, with a rule about the tokens that merges make.
pub struct Ruled<'a> {
    /// The vocabulary; `None` for the bytes alone.
    pub base: Option<&'a dyn Base>,
    /// True for a token that no merge may make.
    pub forbids: &'a (dyn Fn(&[u8]) -> bool + Sync),
}

impl Base for Ruled<'_> {
    fn n_symbols(&self) -> usize {
        self.base.map_or(BYTES.len(), Base::n_symbols)
    }

    fn symbol(&self, symbol: u32) -> &[u8] {
        match self.base {
            Some(base) => base.symbol(symbol),
            None => &BYTES[symbol as usize..][..1],
        }
    }

    fn segment(&self, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()> {
        if let Some(base) = self.base {
            return base.segment(pretoken, out);
        }
        out.extend(pretoken.iter().map(|&byte| u32::from(byte)));
        Ok(())
    }

    fn excludes(&self, token: &[u8]) -> bool {
        self.base.is_some_and(|base| base.excludes(token)) || (self.forbids)(token)
    }
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

    fn excludes(&self, token: &[u8]) -> bool {
        self.vocab().id(token).is_some() || self.special().tokens().iter().any(|(text, _)| text.as_bytes() == token)
    }
}
