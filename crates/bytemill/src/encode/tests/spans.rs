use super::*;
use crate::encode::no_interrupt;
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
        encoder.encode(&text, allowed, &mut ids, &no_interrupt).unwrap();
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
