//! What the boundaries of tokens cut: words, characters, numbers, indentation. This is what comparing tokenizers counts.
//!
//! - [`bits`]: sets of offsets, and the runs in them that a boundary cuts
//! - [`marks`]: the spans of a text that are counted, found once for all tokenizers
//! - [`counts`]: the boundaries of one tokenizer's tokens, and the counts per document

pub mod bits;
pub mod counts;
pub mod marks;

pub use bits::Bits;
pub use counts::{Counts, Tokens};
pub use marks::Marks;

#[cfg(test)]
mod tests;
