//! Any other pattern, by a regex engine with look-around and backtracking.

use super::BLOCK;
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CustomPattern {
    expression: String,
    regex: fancy_regex::Regex,
    /// What lies between two matches is dropped: it belongs to no pre-token.
    pub drops_unmatched: bool,
}

/// Backtracking steps that one match may take. The engine's own default, a million, is reached by lazy patterns on
/// single "words" of a few hundred kilobytes; a hundred million still ends within seconds.
const BACKTRACK_LIMIT: usize = 100_000_000;

impl CustomPattern {
    pub fn new(expression: &str) -> Result<Self> {
        let regex = fancy_regex::RegexBuilder::new(expression)
            .backtrack_limit(BACKTRACK_LIMIT)
            .build()
            .map_err(|error| Error::Pattern(format!("the pattern {expression:?} does not compile: {error}")))?;
        Ok(Self { expression: expression.to_owned(), regex, drops_unmatched: false })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// As [`super::Splits::fill`], from `at` on: the matches, and what lies between them. Empty matches count for nothing.
    ///
    /// Gives where the first of these pre-tokens starts and where the last ends. Where text is dropped, they end before the
    /// next stretch of it: the pre-tokens of a block tile what lies between these two places.
    pub fn split(&self, text: &str, at: usize, ends: &mut Vec<usize>) -> Result<(usize, usize)> {
        let (mut start, mut done, mut search) = (at, at, at);
        while ends.len() < BLOCK && done < text.len() {
            let failed = |why: &dyn std::fmt::Display| {
                Error::Pattern(format!("the pattern {:?} failed at byte {search} of a text: {why}", self.expression))
            };
            // The engine panics on some expressions that refer to a group from inside it.
            let found = catch_unwind(AssertUnwindSafe(|| self.regex.find_from_pos(text, search)))
                .map_err(|_| failed(&"the regex engine gave up"))?
                .map_err(|error| failed(&error))?;
            match found {
                Some(found) if found.end() > found.start() => {
                    if found.start() > done {
                        if !self.drops_unmatched {
                            ends.push(found.start());
                        } else if ends.is_empty() {
                            start = found.start();
                        } else {
                            break;
                        }
                    }
                    ends.push(found.end());
                    (done, search) = (found.end(), found.end());
                }
                Some(empty) if empty.end() < text.len() => {
                    search = empty.end() + text[empty.end()..].chars().next().map_or(1, char::len_utf8);
                }
                _ if self.drops_unmatched && !ends.is_empty() => break,
                _ => {
                    if self.drops_unmatched {
                        start = text.len();
                    } else {
                        ends.push(text.len());
                    }
                    done = text.len();
                }
            }
        }
        Ok((start, done))
    }
}
