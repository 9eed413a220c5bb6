//! Vocabularies: tokens, ids, and the merges that make them.
//!
//! Two kinds of number stand for a token. Inside the core a token is a *symbol*: the bytes are 0 to 255 and merge number k
//! makes symbol 256 + k, so that a symbol is also a priority: of two merges, the one whose result is the smaller symbol comes
//! first. Outside, a token has the *id* that its file gives it. [`Vocab`] translates.
//!
//! In reading order: `vocabulary` (what a vocabulary is; tokens by prefix), `tokens` (token bytes and their index), `pair_table` (which symbol
//! two symbols merge to), `leftovers` (what stands for symbols that are no token), `merged` (a vocabulary from an ordered list of
//! merges, or one whose ranks no merges represent), `compiled` (one as a block of bytes).
//! Vocabularies from ranks and those of characters are made by merging, so they are in [`crate::formats`].

mod compiled;
mod leftovers;
mod merged;
pub mod pair_table;
mod tokens;
mod vocabulary;

pub use compiled::CompiledVocab;
pub(crate) use leftovers::META;
pub use leftovers::{Fallback, Leftovers};
pub use merged::MergedTokens;
pub(crate) use merged::NO_ID;
pub(crate) use tokens::TokenIndex;
pub use tokens::TokenList;
pub use vocabulary::{SortedTokens, Vocab};
