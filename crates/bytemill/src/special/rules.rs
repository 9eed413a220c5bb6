//! Special tokens that are found by more than their text: what Hugging Face's library calls the flags of an added token.

use super::{Found, finder};
use crate::error::Result;
use aho_corasick::AhoCorasick;

/// How one special token is found, beyond its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Only where no character of a word (letter, mark, digit, underscore) stands beside it.
    pub single_word: bool,
    /// With the white space before it, as far as no token before has taken it in.
    pub lstrip: bool,
    /// With the white space behind it.
    pub rstrip: bool,
    /// Only in what the tokens without this rule leave over (`normalized`).
    pub late: bool,
}

/// Tokens of which some have rules.
#[derive(Clone, Debug)]
pub struct Ruled {
    rules: Vec<Rules>,
    /// First the tokens that are looked for in the whole text, then those in what these leave over.
    rounds: [Round; 2],
}

/// Tokens that are looked for together.
#[derive(Clone, Debug)]
struct Round {
    finder: Option<AhoCorasick>,
    /// For each, its place among all.
    places: Vec<usize>,
}

impl Ruled {
    /// None where no rule changes anything.
    pub fn new(tokens: &[(String, u32)], rules: Vec<Rules>) -> Result<Option<Self>> {
        if rules.iter().all(|rule| *rule == Rules::default()) {
            return Ok(None);
        }
        let round = |late: bool| -> Result<Round> {
            let places: Vec<usize> = (0..rules.len()).filter(|&place| rules[place].late == late).collect();
            let finder = finder(places.iter().map(|&place| tokens[place].0.as_bytes()))?;
            Ok(Round { finder, places })
        };
        let rounds = [round(false)?, round(true)?];
        Ok(Some(Self { rules, rounds }))
    }

    pub fn rules(&self) -> &[Rules] {
        &self.rules
    }

    /// See [`super::SpecialTokens::find`].
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let mut first = self.search(0, text);
        let (mut at, mut is_over) = (0, false);
        let gaps = std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let found = first.next();
            is_over = found.is_none();
            let gap = at..found.map_or(text.len(), |found| found.start).max(at);
            at = found.map_or(text.len(), |found| found.end);
            Some((gap, found))
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
    /// The search goes on behind a token's own text, whatever it takes in and whether it counts: so does Hugging Face's.
    pub fn search<'s>(&'s self, round: usize, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let Round { finder, places } = &self.rounds[round];
        // Where the token before ends; the white space that was last measured, so that none is measured twice.
        let (mut done, mut space) = (0, 0..0);
        finder.iter().flat_map(move |finder| finder.find_iter(text)).filter_map(move |found| {
            let index = places[found.pattern().as_usize()];
            let rule = self.rules[index];
            let (mut start, mut end) = (found.start(), found.end());
            if rule.single_word
                && (text[..start].chars().next_back().is_some_and(is_of_word)
                    || text[end..].chars().next().is_some_and(is_of_word))
            {
                return None;
            }
            if rule.lstrip && start > done {
                start = done + text[done..start].trim_end().len();
            } else if rule.lstrip {
                start = done;
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
fn is_of_word(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}

#[cfg(test)]
mod tests;
