//! Tokenizer files, quickly: the large part of a file, its tokens and merges, straight into a vocabulary.
//!
//! A reader here takes only what is beyond doubt, and gives None for anything else: for what is damaged, and for what is
//! merely unusual. Whoever asks then reads the file the slow way, which knows every case and says what is wrong with a
//! damaged file. So a reader here must never take what the slow way refuses, and need not be able to explain itself.

mod rank_file;
mod spelling;
mod tokenizer_json;

pub use rank_file::read_ranks;
pub use tokenizer_json::{TokenizerJson, read_tokenizer_json};
