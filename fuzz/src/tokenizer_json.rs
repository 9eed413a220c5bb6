//! Loading `tokenizer.json` from any bytes: read or not, but no panic; and what is read makes a vocabulary that encodes.

use bytemill::encode::{Allowed, Encoder, no_interrupt};
use bytemill::formats::{CharacterJson, TokenizerJson, read_tokenizer_json};
use bytemill::pretokenize::Pattern;
use bytemill::vocab::{CompiledVocab, Fallback, Vocab};

const TEXT: &str = "abab é ab\n";

/// # Panics
/// Where the vocabulary read from `data` does not give the text back, or not the ids of the one that is compiled of it.
pub fn tokenizer_json(data: &[u8]) {
    let byte_level = || read_tokenizer_json::<TokenizerJson>(data)?.0.into_vocab(Vec::new(), false);
    let characters = |has_meta, unknown| {
        let file = read_tokenizer_json::<CharacterJson>(data)?.0;
        let fallback = match unknown {
            None => Fallback::Bytes,
            Some(fused) => Fallback::Unknown { id: file.id("<unk>")?, fused },
        };
        file.into_vocab(Vec::new(), false, has_meta, fallback)
    };
    for vocab in [byte_level(), characters(true, None), characters(false, None)].into_iter().flatten() {
        let ids = ids(&vocab);
        let mut bytes = Vec::new();
        vocab.decode(ids, &mut bytes).unwrap();
        assert_eq!(bytes, TEXT.as_bytes());
    }
    for vocab in [characters(true, Some(false)), characters(true, Some(true))].into_iter().flatten() {
        ids(&vocab);
    }
}

/// The ids of the text, from the vocabulary and from what is compiled of it.
fn ids(vocab: &Vocab) -> Vec<u32> {
    let encoder = Encoder::new(vocab.clone(), Pattern::GPT2).unwrap();
    let mut ids: Vec<u32> = Vec::new();
    encoder.encode(TEXT, Allowed::None, &mut ids, &no_interrupt).unwrap();
    let compiled = CompiledVocab::read(&encoder.compiled("{}", 0, 0)).unwrap().vocab;
    let mut again: Vec<u32> = Vec::new();
    Encoder::new(compiled, Pattern::GPT2).unwrap().encode(TEXT, Allowed::None, &mut again, &no_interrupt).unwrap();
    assert_eq!(again, ids);
    ids
}
