//! Fast readers for the large part of tokenizer files: tokens and merges, straight into a vocabulary.
//!
//! A reader returns `None` for everything it is not certain about, whether damaged or just unusual. The caller then falls
//! back to the slow reader in Python, which covers every case and explains errors. A fast reader must therefore never
//! accept what the slow one refuses.
//!
//! - `ranks`: tiktoken's rank files, Mistral's `tekken.json`, and [`Vocab::from_ranks`](crate::vocab::Vocab::from_ranks), the merges behind ranks
//! - `characters`: [`Vocab::from_characters`](crate::vocab::Vocab::from_characters), characters put together from bytes
//! - `tokenizer_json`: Hugging Face's `tokenizer.json`, on top of `text::byte_characters` (GPT-2's characters for bytes)
//! - `gguf`: the arrays of strings in GGUF files
//! - `pieces`: SentencePiece's models, and the merges behind scores
//! - `needed_merges`: drops the merges that are never applied from lists that name every split of a token

mod characters;
mod gguf;
mod needed_merges;
mod pieces;
mod ranks;
mod tokenizer_json;

pub use gguf::StringArray;
pub use needed_merges::{merged_in_any_order, needed_merges};
pub use pieces::{Pieces, piece_merges, read_pieces};
pub use ranks::{read_ranks, read_tekken};
pub use tokenizer_json::{CharacterJson, TokenizerJson, read_tokenizer_json};
