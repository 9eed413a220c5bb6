//! Special tokens: found in a text before it is split into pre-tokens, leftmost first and longest among equals.
//!
//! Reading order:
//! - `search`: the multi-pattern search and what it returns
//! - `added_token_rules`: the flags of Hugging Face's added tokens (`single_word`, `lstrip`, `rstrip`, `normalized`)
//! - `tokens`: [`SpecialTokens`], which splits a text into segments and tells where a text may be cut

mod added_token_rules;
mod search;
mod tokens;

pub use added_token_rules::Rules;
pub use search::Found;
pub use tokens::{Segment, SpecialTokens};
