//! Byte-level BPE: exact pre-tokenization, training, encoding and decoding.
//!
//! From the ground up: [`unicode`] classes and [`hash`]es; [`pretokenize`], [`special`] tokens and [`vocab`]; the
//! [`pairs`] table, [`bpe`] merging, the [`cache`]; and what users ask for, [`encode`], [`stream`], [`decode`],
//! [`count`] and [`merges`].

pub mod bpe;
pub mod cache;
mod cores;
pub mod count;
pub mod cutter;
pub mod decode;
pub mod documents;
pub mod encode;
pub mod error;
pub mod files;
pub mod formats;
pub mod hash;
mod huge;
mod joined;
mod lazy;
pub mod merges;
mod mix;
pub mod nfc;
pub mod pack;
pub mod pairs;
pub mod parallel;
pub mod prefetch;
pub mod pretokenize;
pub mod pulse;
mod seams;
pub mod special;
pub mod stream;
mod tally;
pub mod unicode;
pub mod utf8;
pub mod vocab;
pub mod words;

pub use error::{Error, Result};
