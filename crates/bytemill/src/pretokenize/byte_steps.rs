//! Steps on bytes, after those on characters.
//!
//! Steps that follow `ByteLevel` in a `tokenizer.json`, as in Falcon's, see one character for each byte, those of GPT-2's table. Some of
//! the bytes that begin or continue a character outside ASCII stand for numbers there, `²` for example. So these steps may divide a
//! character.

use super::automaton::{Automaton, ByteAutomaton, ByteScan};
use super::named::NamedPattern;
use super::pattern::{Matcher, Pattern, Splits};
use super::steps::THEN;
use crate::error::{Error, Result};

/// Separates the steps on characters from those on bytes. A comment, as [`THEN`].
pub const THEN_BYTES: &str = "(?#bytes)";

/// Steps on characters, and then steps on bytes.
#[derive(Clone, Debug)]
pub struct ByteSteps {
    pub expression: String,
    before: Pattern,
    after: ByteAutomaton,
}

impl ByteSteps {
    /// Creates the steps from both lists of expressions. The first one may be empty.
    pub fn new(before: &str, after: &str) -> Result<Self> {
        let expression = [before, after].join(THEN_BYTES);
        let before = Pattern::new((!before.is_empty()).then_some(before))?;
        let by_name = |step| NamedPattern::find(step).map_or(step, |named| named.expression);
        let steps: Vec<&str> = after.split(THEN).map(by_name).collect();
        let after = Automaton::new(&steps).and_then(ByteAutomaton::new).ok_or_else(|| {
            Error::Pattern(format!("the steps on bytes {after:?} need backtracking, or look ahead without bound"))
        })?;
        Ok(Self { expression, before, after })
    }

    pub fn matcher(&self) -> Matcher {
        // With `max` instead, LLVM in Rust 1.95 takes it for certain that no pattern's matcher is the first one.
        match self.before.matcher() {
            Matcher::Masks | Matcher::Automaton => Matcher::Automaton,
            Matcher::Backtracking => Matcher::Backtracking,
        }
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> BytesSplits<'t> {
        BytesSplits {
            before: self.before.splits(text),
            pretoken_ends: Vec::new(),
            n_done: 0,
            scan: ByteScan::new(&self.after, text.as_bytes()),
        }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct BytesSplits<'t> {
    before: Splits<'t>,
    /// The ends of pre-tokens of the steps on characters, and how many of them are divided.
    pretoken_ends: Vec<usize>,
    n_done: usize,
    scan: ByteScan<'t>,
}

impl BytesSplits<'_> {
    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        if self.n_done == self.pretoken_ends.len() {
            self.n_done = 0;
            if !self.before.fill(&mut self.pretoken_ends)? {
                return Ok(false);
            }
        }
        while let Some(&end) = self.pretoken_ends.get(self.n_done) {
            if !self.scan.fill(end, ends) {
                break;
            }
            self.n_done += 1;
        }
        Ok(true)
    }
}
