//! Hugging Face's `tokenizer.json`: `model.vocab` and `model.merges` are read here, the rest is returned as JSON.
//!
//! - `model`: [`TokenizerJson`], the tokens and merges of a file of byte-level BPE
//! - `characters`: [`CharacterJson`], those of a file of BPE over characters, as SentencePiece makes it
//! - `reader`: the parser, a set of `serde` visitors from the document down to the single merge

mod characters;
mod model;
mod reader;

pub use characters::CharacterJson;
pub use model::TokenizerJson;
pub use reader::read_tokenizer_json;

#[cfg(test)]
#[path = "../tests/tokenizer_json.rs"]
mod tests;
