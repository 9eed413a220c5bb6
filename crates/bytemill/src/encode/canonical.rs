//! The canonical form of a tokenizer: bytes that determine its ids, and nothing else.
//!
//! Equal forms give equal ids for every text. Whatever encoding does not depend on is left out, so that files that differ only
//! in how they say something have one form.
//!
//! 1. A *pattern* is represented by its expression, a named pattern by one expression however it is written.
//! 2. *Merges* are in order, without those that no text needs (see [`live_merges`]). Leaving them out changes nothing, since
//!    at no moment is one of them the lowest.
//! 3. *Ranks* are merges too, even if they are not consecutive: a token always comes from the same two parts, those that its
//!    own bytes are in before the last merge.
//! 4. *Looking up whole pre-tokens* matters only for tokens that their own bytes do not merge to. So the form has these tokens
//!    and not whether there is a lookup.
//! 5. *Tokens that nothing leads to* can be decoded, but no text has their ids.
//! 6. *Special tokens* are a set.
//! 7. The *shape of pre-tokens* is there if they change before they are merged.

use super::encoder::Encoder;
use crate::bpe::live_merges::{live_merges, unreachable_tokens};
use crate::vocab::{Fallback, Leftovers};

/// Changes with the layout of what follows it, so that two versions never give one form for two tokenizers.
const FORMAT: &[u8] = b"bytemill tokenizer 2\n";

impl Encoder {
    /// The bytes that determine the ids. Two encoders with equal forms give equal ids for every text.
    ///
    /// The format; the pattern; the special tokens by id; the ids of the 256 bytes; the merges, three ids each; the tokens
    /// that are only looked up, by id. Numbers have 32 bits, little-endian; anything of variable length is preceded by its
    /// length.
    pub fn canonical_form(&self) -> Vec<u8> {
        let vocab = self.vocab();
        let ids = vocab.symbol_ids();
        let live = live_merges(vocab);
        let mut form = Form(Vec::with_capacity(12 * live.len() + (1 << 12)));
        form.0.extend_from_slice(FORMAT);
        match self.pattern().expression() {
            None => form.number(0),
            Some(expression) => {
                form.number(1);
                form.bytes(expression.as_bytes());
            }
        }
        let special = vocab.special().iter().map(|(token, id)| (*id, token.as_bytes()));
        form.tokens(special.collect());
        for &id in &ids[..256] {
            form.number(id);
        }
        form.length(live.len());
        for &(left, right, made) in &live {
            for symbol in [left, right, made] {
                form.number(ids[symbol as usize]);
            }
        }
        form.tokens(if vocab.ignore_merges() { unreachable_tokens(vocab, &live) } else { Vec::new() });
        // The merges tell which characters are tokens; what is left over depends on the kind of fallback.
        match vocab.leftovers().map(Leftovers::fallback) {
            None => {}
            Some(Fallback::Bytes) => form.number(1),
            Some(Fallback::Nothing) => form.number(3),
            Some(Fallback::Unknown { id, fused }) => {
                [2, id, u32::from(fused)].into_iter().for_each(|number| form.number(number))
            }
        }
        if !self.shape().is_plain() {
            form.bytes(format!("{:?}", self.shape()).as_bytes());
        }
        form.0
    }
}

struct Form(Vec<u8>);

impl Form {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Vocabularies and expressions are smaller than 2³².
    fn length(&mut self, length: usize) {
        self.number(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn tokens(&mut self, mut tokens: Vec<(u32, &[u8])>) {
        tokens.sort_unstable();
        self.length(tokens.len());
        for (id, token) in tokens {
            self.number(id);
            self.bytes(token);
        }
    }
}

#[cfg(test)]
#[path = "tests/canonical.rs"]
mod tests;
