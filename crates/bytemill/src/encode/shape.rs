//! How pre-tokens change before they are merged.
//!
//! Some tokenizers leave out white space, put a space before each word, mark where words end, or lose characters that are no
//! tokens. All of that happens to a pre-token alone. So it happens when one is merged, and the caches know pre-tokens as they are in
//! the text.

use super::encoder::Encoder;
use crate::vocab::{NO_ID, Vocab};

/// The byte that stands for the end of a word. No text has it.
pub const END: u8 = 0xFF;

/// How pre-tokens change before they are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Pre-tokens of white space are left out.
    pub drops_white_space: bool,
    /// Each has a space before it, unless it begins with one.
    pub space_before: bool,
    /// What the vocabulary writes where a pre-token ends; [`END`] stands for it until then.
    pub suffix: Option<Box<[u8]>>,
    /// Bytes or characters that are no tokens vanish.
    pub drops_unknown: bool,
    /// Unknown characters are fused within a pre-token, not beyond.
    pub fuses_within: bool,
}

impl Shape {
    /// True if pre-tokens stay as they are.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// True for a pre-token before which a space is put.
    pub(super) fn adds_space(&self, pretoken: &[u8]) -> bool {
        self.space_before && !pretoken.starts_with(b" ")
    }

    /// True for a pre-token that is left out.
    pub(super) fn drops(&self, pretoken: &[u8]) -> bool {
        self.drops_white_space
            && pretoken.utf8_chunks().next().is_some_and(|chunk| chunk.valid().starts_with(char::is_whitespace))
    }
}

impl Encoder {
    /// The same encoder with this shape of pre-tokens.
    #[must_use]
    pub fn with_shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// How pre-tokens change.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The bytes that are merged for a pre-token.
    pub(super) fn shaped(&self, pretoken: &[u8]) -> Vec<u8> {
        let mut shaped = Vec::with_capacity(pretoken.len() + 2);
        if self.shape.drops(pretoken) {
            return shaped;
        }
        if self.shape.adds_space(pretoken) {
            shaped.push(b' ');
        }
        if self.shape.drops_unknown {
            known(self.vocab(), pretoken, &mut shaped)
        } else {
            shaped.extend_from_slice(pretoken)
        }
        if self.shape.suffix.is_some() {
            shaped.push(END);
        }
        shaped
    }
}

/// Appends what is a token: of bytes, or in a vocabulary of characters of these.
fn known(vocab: &Vocab, pretoken: &[u8], known: &mut Vec<u8>) {
    if vocab.leftovers().is_none() {
        known.extend(pretoken.iter().filter(|&&byte| vocab.symbol_ids()[usize::from(byte)] != NO_ID));
        return;
    }
    for chunk in pretoken.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            if vocab.id(bytes).is_some() {
                known.extend_from_slice(bytes);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/shape.rs"]
mod tests;
