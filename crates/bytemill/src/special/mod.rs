//! Special tokens: found in a text before it is split into pre-tokens, leftmost first and longest among equals.
//!
//! Reading order:
//! - `search`: the search for several tokens, with the flags of Hugging Face's added tokens (`single_word`, `lstrip`, `rstrip`,
//!   `normalized`)
//! - `tokens`: [`SpecialTokens`], which splits a text into segments and tells where a text may be cut

mod search;
mod tokens;

pub use search::{Found, Rules};
pub use tokens::{AlignedSegment, Segment, SpecialTokens};
