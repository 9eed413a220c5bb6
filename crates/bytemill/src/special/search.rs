//! The search for special tokens, leftmost first and longest among equals, with the flags of Hugging Face's added tokens.

use crate::error::{Error, Result};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Failure transitions per byte class that making a deterministic automaton may follow: some milliseconds.
const MAX_DFA_STEPS: usize = 1_000_000;

/// Matching rules of one special token: it may match depending on its context.
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
    /// Search normalized text for the token itself, which is not normalized (SentencePiece's user-defined symbols).
    pub verbatim: bool,
    /// Part of the text: recognised whatever is allowed, and never refused (a token added with `special: false`).
    pub ordinary: bool,
}

/// An occurrence of a special token in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Byte offset of its start.
    pub start: usize,
    /// Byte offset of its end.
    pub end: usize,
    /// Its index in [`super::SpecialTokens::tokens`].
    pub index: usize,
}

/// A leftmost-longest search for a set of tokens, each with its rules.
#[derive(Clone, Debug, Default)]
pub struct Search {
    pub rules: Vec<Rules>,
    /// Some rules are not the default.
    pub has_rules: bool,
    /// The texts that are searched.
    texts: Vec<String>,
    /// Tokens searched in the whole text, then tokens searched in the text left over (`late`).
    rounds: [Round; 2],
}

/// Tokens that are searched together.
#[derive(Clone, Debug, Default)]
struct Round {
    /// `None` without tokens.
    finder: Option<AhoCorasick>,
    /// For each token of the round, its index in the whole set.
    indices: Vec<usize>,
}

impl Search {
    /// # Errors
    /// [`Error::Invalid`] if the search cannot be built.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>, rules: Vec<Rules>) -> Result<Self> {
        let texts: Vec<String> = texts.into_iter().map(str::to_owned).collect();
        let round = |late: bool| -> Result<Round> {
            let indices: Vec<usize> = (0..rules.len()).filter(|&index| rules[index].late == late).collect();
            let build = || {
                let of_round = || indices.iter().map(|&index| &texts[index]);
                // None lets the library choose.
                let kind = is_slow_as_dfa(of_round()).then_some(AhoCorasickKind::ContiguousNFA);
                AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(of_round())
            };
            let finder = (!indices.is_empty()).then(build).transpose();
            let finder = finder.map_err(|error| Error::Invalid(format!("special tokens: {error}")))?;
            Ok(Round { finder, indices })
        };
        let rounds = [round(false)?, round(true)?];
        let has_rules = rules.iter().any(|rule| Rules { ordinary: false, ..*rule } != Rules::default());
        Ok(Self { rules, has_rules, texts, rounds })
    }

    /// The texts that are searched, in the order of the tokens.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// The texts of tokens that are searched in normalized text.
    pub fn changed_texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().zip(&self.rules).filter(|(_, rule)| rule.late).map(|(text, _)| text.as_str())
    }

    /// The search of [`Search::find`] if no token has rules.
    pub fn without_rules(&self) -> Option<&AhoCorasick> {
        if self.has_rules { None } else { self.rounds[0].finder.as_ref() }
    }

    /// See [`super::SpecialTokens::find`].
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let mut at = 0;
        // Each token of the first round with the gap before it, then the gap at the end.
        let gaps = self.round(0, text).map(Some).chain([None]).map(move |found| {
            let gap = at..found.map_or(text.len(), |found| found.start).max(at);
            at = found.map_or(text.len(), |found| found.end);
            (gap, found)
        });
        gaps.flat_map(move |(gap, found)| {
            let start = gap.start;
            let late = self.round(1, &text[gap]).map(move |late| Found {
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
    pub fn round<'s>(&'s self, round: usize, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let Round { finder, indices } = &self.rounds[round];
        // The end of the previous token; the white space measured last, so that none is measured twice.
        let (mut done, mut space) = (0, 0..0);
        finder.iter().flat_map(move |finder| finder.find_iter(text)).filter_map(move |found| {
            let (mut start, mut end) = (found.start(), found.end());
            let index = indices[found.pattern()];
            let rule = self.rules[index];
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
            if start >= end {
                return None; // nothing is left of it, inside white space that the previous token stripped
            }
            done = end;
            Some(Found { start, end, index })
        })
    }
}

/// True if making a deterministic automaton might take long.
///
/// Its states are the prefixes of the tokens. Each transition of a state may have to follow one failure transition per byte of
/// its prefix: in a token of n equal bytes, n² / 2 of them. Other automata are made in linear time.
fn is_slow_as_dfa<'t>(texts: impl Iterator<Item = &'t String>) -> bool {
    texts.map(|text| text.len().saturating_pow(2)).fold(0, usize::saturating_add) > MAX_DFA_STEPS
}

/// `\w` of Rust's regular expressions.
fn is_word_character(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}

#[cfg(test)]
#[path = "tests/search.rs"]
mod tests;
