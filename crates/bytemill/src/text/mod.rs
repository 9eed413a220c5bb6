//! Text: Unicode character classes, streamed UTF-8 validation, normalization.
//!
//! - [`unicode`]: classes and case of characters, from generated tables
//! - [`utf8`]: UTF-8 that arrives in chunks cut anywhere
//! - [`normalize`]: what changes a text before it is encoded, and where a text may be cut before that

pub mod normalize;
pub mod unicode;
pub mod utf8;
