//! The bytes that an encoder merges for a pre-token; see [`crate::pretokenize::shape`].

use super::encoder::Encoder;
use crate::pretokenize::shape::{END, Shape};
use crate::vocab::{NO_ID, Vocab};

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
