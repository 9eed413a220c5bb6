//! Text: Unicode character classes, streamed UTF-8 validation, normalization.
//!
//! - `byte_characters`: GPT-2's characters for bytes
//! - [`unicode`]: classes and case of characters, from generated tables
//! - [`utf8`]: UTF-8 that arrives in chunks cut anywhere
//! - [`normalize`]: what changes a text before it is encoded, and where a text may be cut before that

pub(crate) mod byte_characters;
pub mod normalize;
pub mod unicode;
pub mod utf8;
