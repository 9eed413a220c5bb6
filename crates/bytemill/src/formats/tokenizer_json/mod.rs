//! Hugging Face's `tokenizer.json`: `model.vocab` and `model.merges` are read here, the rest is returned as JSON.
//!
//! - `model`: [`TokenizerJson`], the tokens and merges of a file
//! - `reader`: the parser, a set of `serde` visitors from the document down to the single merge

mod model;
mod reader;

pub use model::TokenizerJson;
pub use reader::read_tokenizer_json;

#[cfg(test)]
#[path = "../tests/tokenizer_json.rs"]
mod tests;
