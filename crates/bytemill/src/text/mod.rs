//! Text: Unicode character classes, streamed UTF-8 validation, NFC.
//!
//! - [`unicode`]: classes and case of characters, from generated tables
//! - [`utf8`]: UTF-8 that arrives in chunks cut anywhere
//! - [`nfc`]: normalization, and where a text may be cut before it

pub mod nfc;
pub mod unicode;
pub mod utf8;
