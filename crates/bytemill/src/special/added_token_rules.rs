//! The flags of Hugging Face's added tokens: special tokens that match depending on their context.

use super::search::{Found, finder, occurrences};
use crate::error::Result;
use aho_corasick::AhoCorasick;

/// Matching rules of one special token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Match only if no word character (letter, mark, digit, underscore) is adjacent.
    pub single_word: bool,
    /// Include the preceding white space, as far as the previous token has not taken it.
    pub lstrip: bool,
    /// Include the following white space.
    pub rstrip: bool,
    /// Match only in the text left over by the tokens without this rule (`normalized`).
    pub late: bool,
}

/// A set of tokens of which some have rules.
#[derive(Clone, Debug)]
pub struct Ruled {
    rules: Vec<Rules>,
    /// Tokens searched in the whole text, then tokens searched in the text left over (`late`).
    rounds: [Round; 2],
}

/// Tokens that are searched together.
#[derive(Clone, Debug)]
struct Round {
    finder: Option<AhoCorasick>,
    /// For each token of the round, its index in the whole set.
    indices: Vec<usize>,
}

impl Ruled {
    /// Returns `None` if all rules are the default.
    pub fn new(tokens: &[(String, u32)], rules: Vec<Rules>) -> Result<Option<Self>> {
        if rules.iter().all(|rule| *rule == Rules::default()) {
            return Ok(None);
        }
        let round = |late: bool| -> Result<Round> {
            let indices: Vec<usize> = (0..rules.len()).filter(|&index| rules[index].late == late).collect();
            let finder = finder(indices.iter().map(|&index| tokens[index].0.as_bytes()))?;
            Ok(Round { finder, indices })
        };
        let rounds = [round(false)?, round(true)?];
        Ok(Some(Self { rules, rounds }))
    }

    pub fn rules(&self) -> &[Rules] {
        &self.rules
    }

    /// See [`super::SpecialTokens::find`].
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let mut at = 0;
        // Each token of the first round with the gap before it, then the gap at the end.
        let gaps = self.search(0, text).map(Some).chain([None]).map(move |found| {
            let gap = at..found.map_or(text.len(), |found| found.start).max(at);
            at = found.map_or(text.len(), |found| found.end);
            (gap, found)
        });
        gaps.flat_map(move |(gap, found)| {
            let start = gap.start;
            let late = self.search(1, &text[gap]).map(move |late| Found {
                start: start + late.start,
                end: start + late.end,
                index: late.index,
            });
            late.chain(found)
        })
    }

    /// The tokens of one round in `text`.
    ///
    /// The search resumes after a token's own text, whatever white space it strips and whether its rules accept it, as
    /// in Hugging Face's library.
    pub fn search<'s>(&'s self, round: usize, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let Round { finder, indices } = &self.rounds[round];
        // The end of the previous token; the white space measured last, so that none is measured twice.
        let (mut done, mut space) = (0, 0..0);
        finder.iter().flat_map(move |finder| occurrences(finder, text)).filter_map(move |found| {
            let index = indices[found.index];
            let rule = self.rules[index];
            let Found { mut start, mut end, .. } = found;
            if rule.single_word
                && (text[..start].chars().next_back().is_some_and(is_word_character)
                    || text[end..].chars().next().is_some_and(is_word_character))
            {
                return None;
            }
            if rule.lstrip {
                start = if start > done { done + text[done..start].trim_end().len() } else { done };
            }
            if rule.rstrip {
                if !(space.start <= end && end <= space.end) {
                    space = end..text.len() - text[end..].trim_start().len();
                }
                end = space.end;
            }
            done = end;
            Some(Found { start, end, index })
        })
    }
}

/// `\w` of Rust's regular expressions.
fn is_word_character(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}

#[cfg(test)]
#[path = "tests/added_token_rules.rs"]
mod tests;
