//! Merging one pre-token: the pair of lowest rank first, the leftmost of equal ones.
//!
//! In reading order:
//!
//! 1. `limits`: every limit on a pre-token's length, in one table;
//! 2. `merger`: which strategy merges a pre-token;
//! 3. `heap`: the plain way, for any length, and the steps for explanations;
//! 4. `lockstep`: many short pre-tokens at once, waiting for memory together;
//! 5. `live_merges`: which merges some text needs, and which symbols can be adjacent;
//! 6. `backtrack`: long pre-tokens in linear time.

mod backtrack;
pub mod heap;
pub mod limits;
pub mod live_merges;
mod lockstep;
mod merger;
#[cfg(test)]
mod tests;

pub use heap::{Step, steps};
pub use lockstep::{GROUP, merge_group};
pub use merger::{Merger, merge};
