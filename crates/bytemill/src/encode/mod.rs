//! Encoding: text to ids.
//!
//! In reading order:
//!
//! 1. `encoder`: what a tokenizer is; `session`: encoding one text after another;
//! 2. `segment`: the loop over blocks of pre-tokens (split, hash, look up, resolve);
//! 3. `workspace`: the buffers of a thread, and the two passes that every pre-token takes (hash and look up); `workspace_pool`: idle ones;
//! 4. `short_cache` (with `key_hash`) and `long_cache`: ids of recently seen pre-tokens;
//! 5. `pending`: pre-tokens that the cache does not hold, merged many at a time; `shape`: how they change before that;
//! 6. `merge_barriers`: where long pre-tokens are cut before merging;
//! 7. `cutter`, `stream`: cutting a text so that its parts encode to the same ids; text that arrives in chunks; `append`: text behind ids;
//! 8. `spans`, `canonical`, `dropout`: offsets of tokens, fingerprints, merges left out by chance.
//!
//! What is called `encode` takes less and less, from the outside in: `Encoder::encode_batch` and `encode_parallel` (in `batch`) take
//! texts and cut them for threads, [`Session::encode`] takes a text or a chunk of one and normalizes it, `encode_with_special` finds the
//! special tokens, `encode_segment` takes the text between two of them and splits it, and `encode_pretoken` takes one pre-token.
//! `merge_pretoken` is what is left where the vocabulary itself is not looked up.

mod append;
mod canonical;
pub mod cutter;
pub mod dropout;
mod encoder;
mod id;
mod key_hash;
mod long_cache;
mod merge_barriers;
mod pending;
mod segment;
mod session;
mod shaped;
mod short_cache;
mod spans;
pub mod stream;
#[cfg(test)]
mod tests;
mod workspace;
mod workspace_pool;

pub use crate::pretokenize::shape::{END, Shape};
pub use crate::sys::interrupt::{Interrupt, no_interrupt};
pub use append::{Appended, Beginning};
pub use encoder::{Allowed, Encoder};
pub use id::Id;
pub use session::Session;
