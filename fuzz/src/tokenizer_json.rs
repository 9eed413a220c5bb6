//! Loading `tokenizer.json` from any bytes: read or not, but no panic; and what is read makes a vocabulary that encodes.

use bytemill::encode::{Allowed, Encoder, no_interrupt};
use bytemill::formats::read_tokenizer_json;
use bytemill::pretokenize::Pattern;

const TEXT: &str = "abab é ab\n";

/// # Panics
/// Where the vocabulary read from `data` does not give the text back.
pub fn tokenizer_json(data: &[u8]) {
    let Some((parts, _rest)) = read_tokenizer_json(data) else { return };
    let Some(vocab) = parts.into_vocab(Vec::new(), false) else { return };
    let Ok(encoder) = Encoder::new(vocab, Pattern::GPT2) else { return };
    let mut ids: Vec<u32> = Vec::new();
    encoder.encode(TEXT, Allowed::None, &mut ids, &no_interrupt).unwrap();
    let mut bytes = Vec::new();
    encoder.vocab().decode(ids, &mut bytes).unwrap();
    assert_eq!(bytes, TEXT.as_bytes());
}
