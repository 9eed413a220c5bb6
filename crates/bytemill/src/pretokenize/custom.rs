//! Custom patterns: any expression, matched by an automaton if possible, else by a regex engine with look-around and backtracking.

use super::automaton::{LazyAutomaton, Scan, Stop};
use super::blocks::MAX_ENDS;
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CustomPattern {
    pub expression: String,
    /// The engine that knows all expressions.
    regex: fancy_regex::Regex,
    /// The fast one.
    automaton: LazyAutomaton,
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
            automaton: LazyAutomaton::default(),
            drops_unmatched: false,
        })
    }

    /// The same pattern without the automaton. For tests.
    #[cfg(test)]
    pub fn backtracking(expression: &str) -> Result<Self> {
        Ok(Self { automaton: LazyAutomaton::never(), ..Self::new(expression)? })
    }

    /// Whether an automaton finds the matches.
    pub fn has_automaton(&self) -> bool {
        self.automaton.get(&self.expression).is_some()
    }

    /// The end of the first pre-token of a text that is not empty.
    pub fn first_end(&self, text: &str) -> Result<usize> {
        let found = self.find(text, 0)?;
        Ok(found.map_or(text.len(), |(from, to)| if from > 0 { from } else { to }))
    }

    /// The first match from `at` on that is not empty.
    fn find(&self, text: &str, mut at: usize) -> Result<Option<(usize, usize)>> {
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
        let automaton = automaton.filter(|automaton| !(self.drops_unmatched && automaton.has_gaps));
        let scan = automaton.map(|automaton| Scan::new(automaton, text));
        CustomSplits { pattern: self, scan, text, start: 0, done: 0 }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct CustomSplits<'t> {
    pattern: &'t CustomPattern,
    scan: Option<Scan<'t>>,
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
        let Self { pattern, scan, text, start, done } = self;
        if *done == text.len() {
            return Ok(false);
        }
        *start = *done;
        while ends.len() + 1 < MAX_ENDS && *done < text.len() {
            if let Some(scan) = scan {
                let stop = scan.fill(ends);
                *done = scan.last_end;
                if stop != Stop::Lost {
                    break;
                }
            }
            let (from, to) = pattern.find(text, *done)?.unwrap_or((text.len(), text.len()));
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
            if let Some(scan) = scan {
                scan.restart(to);
            }
        }
        Ok(true)
    }
}
