//! Where in the text the tokens stand.

use super::{Allowed, Encoder};
use crate::error::{Error, Result};
use std::ops::Range;

impl Encoder {
    /// The bytes of `text` that each of its `ids` stands for, as [`Encoder::encode`] gives them with the same `allowed`.
    ///
    /// Tokens tile the text between special tokens, so they follow from the tokens' lengths; a special token has the
    /// bytes where it was found.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the bytes of a token do not stand where it should: what is encoded is not the text as it
    /// is.
    pub fn spans<T: Copy + Into<u32>>(
        &self,
        text: &str,
        allowed: Allowed,
        ids: &[T],
        mut each: impl FnMut(Range<usize>),
    ) -> Result<()> {
        let mut ids = ids.iter().map(|&id| id.into());
        let recognised = match allowed {
            Allowed::All => Some(&self.special),
            Allowed::These(special) => Some(special),
            Allowed::None | Allowed::Refused => None,
        };
        let mut at = 0;
        for found in recognised.into_iter().flat_map(|special| special.find(text)) {
            self.tile(&text.as_bytes()[..found.start], &mut at, &mut ids, &mut each)?;
            if ids.next() != Some(self.id_of(allowed, found.index)) {
                return changed(found.start);
            }
            each(found.start..found.end);
            at = found.end;
        }
        self.tile(text.as_bytes(), &mut at, &mut ids, &mut each)?;
        if ids.next().is_some() { changed(at) } else { Ok(()) }
    }

    /// The spans of ordinary tokens, from `at` up to the end of `bytes`.
    fn tile(
        &self,
        bytes: &[u8],
        at: &mut usize,
        ids: &mut impl Iterator<Item = u32>,
        each: &mut impl FnMut(Range<usize>),
    ) -> Result<()> {
        while *at < bytes.len() {
            let token = ids.next().and_then(|id| self.vocab.token(id));
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

    fn id_of(&self, allowed: Allowed, index: usize) -> u32 {
        match allowed {
            Allowed::These(special) => special.tokens()[index].1,
            _ => self.special.tokens()[index].1,
        }
    }
}

fn changed(at: usize) -> Result<()> {
    Err(Error::Invalid(format!(
        "at byte {at} stands another text than the one encoded: this tokenizer normalizes texts or leaves some of it out, \
         so its tokens have no places in them"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::no_pulse;
    use crate::pretokenize::Pattern;
    use crate::special::SpecialTokens;
    use crate::vocab::Vocab;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_tile_the_text_and_have_the_bytes_of_their_tokens(
            text in "([abé]|ab|<s>|<s><e>|e>|一){0,20}",
            chosen in 0usize..3,
        ) {
            let bytes = (0..=255u8).map(|byte| vec![byte]);
            let more = ["ab", "é", "一", "abab"].map(|token| token.as_bytes().to_vec());
            let special = vec![("<s>".to_owned(), 1000), ("<s><e>".to_owned(), 1001), ("ab".to_owned(), 256)];
            let vocab = Vocab::from_ranks(bytes.chain(more).zip(0..).collect(), special.clone()).unwrap();
            let encoder = Encoder::new(vocab, Pattern::new(Some("gpt2")).unwrap()).unwrap();
            let some = SpecialTokens::new(special[1..].to_vec()).unwrap();
            let allowed = [Allowed::All, Allowed::None, Allowed::These(&some)][chosen];
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&text, allowed, &mut ids, &no_pulse).unwrap();
            let mut spans = Vec::new();
            encoder.spans(&text, allowed, &ids, |span| spans.push(span)).unwrap();
            prop_assert_eq!(spans.len(), ids.len());
            let mut at = 0;
            for (span, &id) in spans.iter().zip(&ids) {
                prop_assert_eq!(span.start, at);
                prop_assert_eq!(&text.as_bytes()[span.clone()], encoder.vocab().token(id).unwrap());
                at = span.end;
            }
            prop_assert_eq!(at, text.len());
            // Ids of another text: each has its bytes, or it is an error.
            for other in [&ids[..ids.len() / 2], &[&ids[..], &ids[..1.min(ids.len())]].concat()] {
                prop_assert_eq!(encoder.spans(&text, allowed, other, |_| ()).is_err(), other != ids);
            }
        }
    }
}
