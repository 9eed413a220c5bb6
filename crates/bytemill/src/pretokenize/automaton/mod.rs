//! Custom patterns, and several in a row, by a finite automaton that reads each character once and never backtracks.
//!
//! An expression is divided at its top-level `|` into alternatives. Each must be a regular expression in the narrow sense, without
//! look-around, anchors, back-references and possessive quantifiers, except that one of them may be white space with a look-ahead,
//! `\s+(?!\S)`, which most published patterns have. If `\s+` has matched, the run of white space is known, and with it what the look-ahead
//! leaves of it: the whole run if nothing forbidden follows, else all but its last character, since white space is not forbidden. A run of
//! a single character leaves nothing: then the alternatives after it decide.
//!
//! The automaton is built in three steps, and used in a fourth:
//!
//! 1. `dfa`: characters between which no expression distinguishes become one symbol. Published patterns have 4 to 30 of them.
//! 2. `dfa`: each expression becomes a deterministic automaton over symbols.
//! 3. `step`: searching for its matches one after the other becomes a function of a small configuration, the state of the search and the
//!    symbols that it may have to read again. Each step passes cuts and symbols on to the next one, and what it does in
//!    each of its configurations is worked out once. `compose`: the configurations of all steps that occur together are numbered. Reading a symbol in one of them leads to another and ends some pre-tokens.
//! 4. `scan`: a text passes through the table of these transitions, one look-up per character.
//!
//! A search may have to remember any number of symbols, as that of `a*b` does in a run of `a`. Beyond some number the automaton gives up:
//! another engine finds the next pre-tokens, and the automaton continues after them.

mod compose;
mod dfa;
mod scan;
mod step;

pub use compose::Automaton;
pub use scan::{ByteAutomaton, ByteScan, LazyAutomaton, Scan, Stop};
