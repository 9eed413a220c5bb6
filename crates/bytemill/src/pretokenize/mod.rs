//! Pre-tokenization: splitting a text into the pre-tokens inside which merges happen.
//!
//! The pre-tokens of a text tile it: text that a custom pattern does not match becomes pre-tokens, too, unless it is dropped on
//! request. Reading order:
//!
//! 1. `pattern`: the interface, and several patterns in a row. `named`: the table of patterns with a matcher of their own.
//! 2. `rules`: what these patterns differ in. `tests/reference`: their matcher one character at a time. `compile`: which
//!    other expressions have such rules.
//! 3. `classify`, `chars`, `block`, `blocks`: the matcher on bit masks of 64 or 512 bytes.
//! 4. `custom`, `automaton`: other expressions, and several in a row, by an automaton where that is possible. `spaces`: splitting
//!    before spaces. `expression`: reading expressions. `cut`: safe cuts of a text.

mod automaton;
mod block;
mod blocks;
mod chars;
mod classify;
mod compile;
mod custom;
mod cut;
mod expression;
mod named;
mod pattern;
mod rules;
pub mod shape;
mod spaces;

pub use blocks::MAX_ENDS;
pub use expression::{THEN, THEN_BYTES};
pub use named::{NAMED, NamedPattern};
pub use pattern::{Matcher, Pattern, RuledPattern, Splits};
pub use spaces::Spaces;

/// The names of the instruction sets that this processor has and the core uses, the fastest first.
pub fn instruction_sets() -> impl Iterator<Item = &'static str> {
    classify::InstructionSet::available().rev().map(classify::InstructionSet::name)
}

#[cfg(test)]
mod tests;
