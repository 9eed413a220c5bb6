//! Learning merges from counted pre-tokens.
//!
//! Each step merges the most frequent pair of adjacent symbols everywhere and adjusts the counts of the neighbouring
//! pairs. Reading order:
//!
//! 1. `learn`: the public functions and the main loop.
//! 2. `pretoken_slots`: a source of pre-tokens, and its pre-tokens as one array of slots with their counts.
//! 3. `learner`: the most frequent pair, one merge, and `apply_deltas` to the pair counts.
//! 4. `track`: finding the frequent pairs and their positions.
//! 5. `budget`: learning within a memory limit.
//! 6. `base`: the vocabulary that learning continues.
//! 7. `symbols`, `pairs`: the data structures.

mod base;
mod budget;
mod learn;
mod learner;
mod pairs;
mod pretoken_slots;
mod symbols;
mod track;

pub use base::{Base, Ruled};
pub use learn::{counts_bytes, learn, learn_from, learn_more, learn_within, least_bytes_within};
pub use learner::Merge;
pub use pretoken_slots::PretokenSource;
pub use symbols::Ties;

#[cfg(test)]
mod tests {
    mod learn;
}
