//! Byte-level BPE: exact pre-tokenization, training, encoding and decoding.

pub mod batch;
pub mod bpe;
pub mod decode;
pub mod dedup;
pub mod documents;
pub mod encode;
pub mod error;
pub mod formats;
pub mod lm_decode;
pub mod measure;
pub mod pretokenize;
pub mod special;
pub mod sys;
pub mod text;
pub mod train;
pub mod vocab;

pub use error::{Error, Result};
