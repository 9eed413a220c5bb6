//! Custom patterns: any expression, matched by an automaton if possible, else by a regex engine with look-around and backtracking.

use super::automaton::{Automaton, Found};
use super::blocks::MAX_ENDS;
use super::needed_bytes::{ByteSet, needed_bytes};
use crate::error::{Error, Result};
use once_cell::race::OnceBox;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of text that are split without an automaton: building it takes as long as splitting some of them.
const N_BYTES_BEFORE: usize = 1 << 14;

/// An automaton that is built once there is enough text for it.
#[derive(Debug, Default)]
struct LazyAutomaton {
    built: OnceBox<Option<Automaton>>,
    n_bytes: AtomicUsize,
}

impl LazyAutomaton {
    fn build(&self, expression: &str) -> Option<&Automaton> {
        self.built.get_or_init(|| Box::new(Automaton::new(expression))).as_ref()
    }

    #[inline]
    fn for_text(&self, expression: &str, text: &str) -> Option<&Automaton> {
        if let Some(built) = self.built.get() {
            return built.as_ref();
        }
        let n_bytes = self.n_bytes.fetch_add(text.len(), Ordering::Relaxed) + text.len();
        if n_bytes > N_BYTES_BEFORE { self.build(expression) } else { None }
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CustomPattern {
    pub expression: String,
    /// The engine that knows all expressions.
    regex: fancy_regex::Regex,
    /// The fast one, which clones share.
    automaton: Arc<LazyAutomaton>,
    /// Every match has at least one of these bytes; `None` if they are not known.
    needed: Option<Box<ByteSet>>,
    /// Text between two matches belongs to no pre-token.
    pub drops_unmatched: bool,
}

/// Backtracking steps that one match may take. Lazy patterns reach the engine's default of a million on single words of a few hundred
/// kilobytes; a hundred million steps still end within seconds.
const BACKTRACK_LIMIT: usize = 100_000_000;

impl CustomPattern {
    pub fn new(expression: &str) -> Result<Self> {
        let regex = fancy_regex::RegexBuilder::new(expression)
            .backtrack_limit(BACKTRACK_LIMIT)
            .build()
            .map_err(|error| Error::Pattern(format!("the pattern {expression:?} does not compile: {error}")))?;
        Ok(Self {
            expression: expression.to_owned(),
            regex,
            automaton: Arc::default(),
            needed: needed_bytes(expression).map(Box::new),
            drops_unmatched: false,
        })
    }

    /// The same pattern without the automaton. For tests.
    #[cfg(test)]
    pub fn backtracking(expression: &str) -> Result<Self> {
        let pattern = Self::new(expression)?;
        pattern.automaton.built.set(Box::new(None)).unwrap();
        Ok(pattern)
    }

    /// Whether the pattern has an automaton.
    #[must_use]
    pub fn is_automaton(&self) -> bool {
        self.automaton.build(&self.expression).is_some()
    }

    /// Calls `each` with the ends of the pre-tokens of a short text.
    pub(super) fn for_each_end(&self, text: &str, mut each: impl FnMut(usize) -> Result<()>) -> Result<()> {
        if !self.needed.as_ref().is_none_or(|needed| text.bytes().any(|byte| needed.has(byte))) {
            return each(text.len());
        }
        let automaton = self.automaton.for_text(&self.expression, text);
        let mut done = 0;
        while done < text.len() {
            let (from, to) = self.find(automaton, text, done)?.unwrap_or((text.len(), text.len()));
            if from > done {
                each(from)?;
            }
            if to > from {
                each(to)?;
            }
            done = to;
        }
        Ok(())
    }

    /// The first match from `at` on that is not empty.
    #[inline]
    fn find(&self, automaton: Option<&Automaton>, text: &str, at: usize) -> Result<Option<(usize, usize)>> {
        match automaton.map_or(Found::Unknown(at), |automaton| automaton.find(text, at)) {
            Found::Match(from, to) => Ok(Some((from, to))),
            Found::None => Ok(None),
            Found::Unknown(at) => self.find_by_backtracking(text, at),
        }
    }

    fn find_by_backtracking(&self, text: &str, mut at: usize) -> Result<Option<(usize, usize)>> {
        let Self { expression, regex, .. } = self;
        loop {
            let failed = |why: &dyn std::fmt::Display| {
                Error::Pattern(format!("the pattern {expression:?} failed at byte {at} of a text: {why}"))
            };
            // The engine panics on some expressions that refer to a group from inside it.
            let found = catch_unwind(AssertUnwindSafe(|| regex.find_from_pos(text, at)))
                .map_err(|_| failed(&"the regex engine gave up"))?
                .map_err(|error| failed(&error))?;
            match found {
                Some(found) if found.end() > found.start() => return Ok(Some((found.start(), found.end()))),
                Some(empty) if empty.end() < text.len() => {
                    at = empty.end() + text[empty.end()..].chars().next().map_or(1, char::len_utf8);
                }
                _ => return Ok(None),
            }
        }
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> CustomSplits<'t> {
        let automaton = self.automaton.for_text(&self.expression, text);
        CustomSplits { pattern: self, automaton, text, start: 0, done: 0 }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct CustomSplits<'t> {
    pattern: &'t CustomPattern,
    automaton: Option<&'t Automaton>,
    text: &'t str,
    /// Start of the first pre-token of the last call.
    pub start: usize,
    /// End of the last pre-token returned.
    done: usize,
}

impl CustomSplits<'_> {
    /// Appends the ends of the next matches and of the text between them. Empty matches are ignored. Returns false at the end of the
    /// text.
    ///
    /// If unmatched text is dropped, a call ends before the next stretch of it, so that the pre-tokens of a call are contiguous from
    /// [`Self::start`] on.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        let Self { pattern, automaton, text, start, done } = self;
        if *done == text.len() {
            return Ok(false);
        }
        *start = *done;
        while ends.len() + 1 < MAX_ENDS && *done < text.len() {
            let (from, to) = pattern.find(*automaton, text, *done)?.unwrap_or((text.len(), text.len()));
            if from > *done {
                if !pattern.drops_unmatched {
                    ends.push(from);
                } else if ends.is_empty() {
                    *start = from;
                } else {
                    break;
                }
            }
            if to > from {
                ends.push(to);
            }
            *done = to;
        }
        Ok(true)
    }
}
