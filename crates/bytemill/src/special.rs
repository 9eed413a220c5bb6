//! Special tokens: found in a text before anything else, the leftmost first and of those the longest.

use crate::error::{Error, Result};
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

/// A set of special tokens to look for.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    tokens: Vec<(String, u32)>,
    finder: Option<AhoCorasick>,
    longest: usize,
}

/// A special token found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Byte offset of its start.
    pub start: usize,
    /// Byte offset of its end.
    pub end: usize,
    /// Its place in [`SpecialTokens::tokens`].
    pub index: usize,
}

impl SpecialTokens {
    /// # Errors
    /// [`Error::Invalid`] for an empty token or one that is there twice.
    pub fn new(tokens: Vec<(String, u32)>) -> Result<Self> {
        for (place, (token, _)) in tokens.iter().enumerate() {
            if token.is_empty() {
                return Err(Error::Invalid("a special token is empty".to_owned()));
            }
            if tokens[..place].iter().any(|(earlier, _)| earlier == token) {
                return Err(Error::Invalid(format!("special token {token:?} is there twice")));
            }
        }
        let finder = if tokens.is_empty() {
            None
        } else {
            let built = AhoCorasickBuilder::new()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens.iter().map(|(token, _)| token.as_bytes()))
                .map_err(|error| Error::Invalid(format!("special tokens: {error}")))?;
            Some(built)
        };
        let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        Ok(Self { tokens, finder, longest })
    }

    /// The tokens and their ids, as given.
    #[must_use]
    pub fn tokens(&self) -> &[(String, u32)] {
        &self.tokens
    }

    /// True where there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Bytes of the longest special token, 0 without any.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The special tokens in `text`, from left to right, without overlap.
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        self.finder.iter().flat_map(move |finder| {
            finder.find_iter(text).map(|found| Found {
                start: found.start(),
                end: found.end(),
                index: found.pattern().as_usize(),
            })
        })
    }

    /// The text between special tokens (never empty) and the special tokens, in order.
    ///
    /// # Errors
    /// Whatever `each` returns.
    pub fn segments<'t>(&self, text: &'t str, mut each: impl FnMut(Segment<'t>) -> Result<()>) -> Result<()> {
        let mut at = 0;
        for found in self.find(text) {
            if found.start > at {
                each(Segment::Text(&text[at..found.start]))?;
            }
            each(Segment::Special(self.tokens[found.index].1))?;
            at = found.end;
        }
        if at < text.len() { each(Segment::Text(&text[at..])) } else { Ok(()) }
    }

    /// True where an occurrence of a special token, chosen or not, begins before `at` and ends after it.
    ///
    /// Where there is none, `text[..at]` and `text[at..]` hold the same special tokens as `text`: a search from the
    /// left that has come to `at` has chosen only tokens that end at or before it, and starts afresh there.
    #[must_use]
    pub fn straddle(&self, text: &str, at: usize) -> bool {
        let bytes = text.as_bytes();
        self.tokens.iter().any(|(token, _)| {
            (1..token.len().min(at + 1)).any(|before| bytes[at - before..].starts_with(token.as_bytes()))
        })
    }
}

/// A stretch of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'t> {
    /// Text without special tokens.
    Text(&'t str),
    /// The id of a special token.
    Special(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(tokens: &[&str]) -> SpecialTokens {
        SpecialTokens::new(tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect()).unwrap()
    }

    fn segments<'t>(special: &SpecialTokens, text: &'t str) -> Vec<Segment<'t>> {
        let mut all = Vec::new();
        special
            .segments(text, |segment| {
                all.push(segment);
                Ok(())
            })
            .unwrap();
        all
    }

    #[test]
    fn the_longer_of_two_that_start_together_wins() {
        let special = special(&["<a>", "<a><a>"]);
        assert_eq!(
            segments(&special, "x<a><a><a>y"),
            [Segment::Text("x"), Segment::Special(1), Segment::Special(0), Segment::Text("y")]
        );
    }

    #[test]
    fn the_leftmost_wins_over_a_longer_one_further_on() {
        assert_eq!(segments(&special(&["ab", "bcd"]), "abcd"), [Segment::Special(0), Segment::Text("cd")]);
    }

    #[test]
    fn a_cut_is_straddled_by_occurrences_that_were_not_chosen_too() {
        let special = special(&["ab", "bcd"]);
        let straddled: Vec<bool> = (0..=5).map(|at| special.straddle("abcdx", at)).collect();
        assert_eq!(straddled, [false, true, true, true, false, false]);
    }

    #[test]
    fn empty_and_repeated_tokens_are_refused() {
        assert!(SpecialTokens::new(vec![(String::new(), 0)]).is_err());
        assert!(SpecialTokens::new(vec![("a".into(), 0), ("a".into(), 1)]).is_err());
    }

    #[test]
    fn without_special_tokens_the_text_is_one_segment() {
        assert_eq!(segments(&special(&[]), "ab"), [Segment::Text("ab")]);
        assert_eq!(segments(&special(&["x"]), ""), []);
    }
}
