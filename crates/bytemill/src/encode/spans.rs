//! Where in the text the tokens stand.

use super::{Allowed, Encoder};
use crate::special::Found;
use std::ops::Range;

impl Encoder {
    /// The special tokens that encoding recognises in `text`, in order: the bytes that each stands for, and its id.
    pub fn find_special<'s>(
        &'s self,
        text: &'s str,
        allowed: Allowed<'s>,
    ) -> impl Iterator<Item = (Range<usize>, u32)> + 's {
        let recognised = match allowed {
            Allowed::All => Some(&self.special),
            Allowed::These(special) => Some(special),
            Allowed::None | Allowed::Refused => None,
        };
        recognised.into_iter().flat_map(move |special| {
            let id = |found: &Found| special.tokens()[found.index].1;
            special.find(text).map(move |found| (found.start..found.end, id(&found)))
        })
    }

    /// The bytes of `text` that each of its `ids` stands for, as [`Encoder::encode`] gives them with the same `allowed`.
    ///
    /// Tokens tile the text between special tokens, so they follow from the tokens' lengths; a special token has the
    /// bytes where it was found.
    pub fn spans<T: Copy + Into<u32>>(
        &self,
        text: &str,
        allowed: Allowed,
        ids: &[T],
        mut each: impl FnMut(Range<usize>),
    ) {
        let mut lengths = ids.iter().map(|&id| self.vocab.token(id.into()).map_or(0, <[u8]>::len));
        let mut at = 0;
        for (found, _) in self.find_special(text, allowed) {
            while at < found.start {
                let Some(n_bytes) = lengths.next() else { return };
                each(at..at + n_bytes);
                at += n_bytes;
            }
            if lengths.next().is_some() {
                each(found.clone());
            }
            at = found.end;
        }
        for n_bytes in lengths {
            each(at..at + n_bytes);
            at += n_bytes;
        }
    }
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
            encoder.spans(&text, allowed, &ids, |span| spans.push(span));
            prop_assert_eq!(spans.len(), ids.len());
            let mut at = 0;
            for (span, &id) in spans.iter().zip(&ids) {
                prop_assert_eq!(span.start, at);
                prop_assert_eq!(&text.as_bytes()[span.clone()], encoder.vocab().token(id).unwrap());
                at = span.end;
            }
            prop_assert_eq!(at, text.len());
        }
    }
}
