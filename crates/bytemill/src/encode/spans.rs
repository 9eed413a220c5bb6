//! The byte ranges of tokens in the text.

use super::encoder::{Allowed, Encoder};
use crate::error::{Error, Result};
use std::ops::Range;

impl Encoder {
    /// Calls `each` with the byte range of each of the `ids` that [`Encoder::encode`] returns for `text` with the same
    /// `allowed`.
    ///
    /// Tokens tile the text between special tokens, so their ranges follow from their lengths; a special token has the range
    /// where it was found.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bytes of a token are not at its position, because the encoded text differs from `text`.
    pub fn spans<T: Copy + Into<u32>>(
        &self,
        text: &str,
        allowed: Allowed,
        ids: &[T],
        mut each: impl FnMut(Range<usize>),
    ) -> Result<()> {
        let mut ids = ids.iter().map(|&id| id.into());
        let special = self.recognized(allowed);
        let mut at = 0;
        for found in special.find(text) {
            self.tile(&text.as_bytes()[..found.start], &mut at, &mut ids, &mut each)?;
            if ids.next() != Some(special.tokens()[found.index].1) {
                return changed(found.start);
            }
            each(found.start..found.end);
            at = found.end;
        }
        self.tile(text.as_bytes(), &mut at, &mut ids, &mut each)?;
        if ids.next().is_some() { changed(at) } else { Ok(()) }
    }

    /// The ranges of ordinary tokens, from `at` to the end of `bytes`.
    fn tile(
        &self,
        bytes: &[u8],
        at: &mut usize,
        ids: &mut impl Iterator<Item = u32>,
        each: &mut impl FnMut(Range<usize>),
    ) -> Result<()> {
        while *at < bytes.len() {
            let token = ids.next().and_then(|id| self.vocab().token(id));
            match token.filter(|token| bytes[*at..].starts_with(token)) {
                Some(token) => {
                    each(*at..*at + token.len());
                    *at += token.len();
                }
                None => return changed(*at),
            }
        }
        Ok(())
    }
}

fn changed(at: usize) -> Result<()> {
    Err(Error::Invalid(format!(
        "at byte {at} stands another text than the one encoded: this tokenizer normalizes texts or leaves some of it out, \
         so its tokens have no places in them"
    )))
}

#[cfg(test)]
#[path = "tests/spans.rs"]
mod tests;
