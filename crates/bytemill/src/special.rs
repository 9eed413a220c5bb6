//! Special tokens: found in a text before anything else, the leftmost first and of those the longest.

mod rules;

use crate::error::{Error, Result};
use crate::nfc::{is_stable_about, normalize};
use crate::pulse::Pulse;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use rules::Ruled;
pub use rules::Rules;
use std::collections::HashSet;

/// A set of special tokens to look for.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    tokens: Vec<(String, u32)>,
    finder: Option<AhoCorasick>,
    /// Set where a token is looked for in another way than by its text alone.
    ruled: Option<Box<Ruled>>,
    longest: usize,
    /// True where what lies between the tokens is brought into NFC.
    nfc: bool,
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
        let mut seen = HashSet::with_capacity(tokens.len());
        for (token, _) in &tokens {
            if token.is_empty() {
                return Err(Error::Invalid("a special token is empty".to_owned()));
            }
            if !seen.insert(token.as_str()) {
                return Err(Error::Invalid(format!("special token {token:?} is there twice")));
            }
        }
        let finder = finder(tokens.iter().map(|(token, _)| token.as_bytes()))?;
        let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        Ok(Self { tokens, finder, ruled: None, longest, nfc: false })
    }

    /// As [`SpecialTokens::new`], with a rule for each token.
    ///
    /// # Errors
    /// As [`SpecialTokens::new`].
    pub fn with_rules(tokens: Vec<(String, u32)>, rules: Vec<Rules>) -> Result<Self> {
        let mut special = Self::new(tokens)?;
        special.ruled = Ruled::new(&special.tokens, rules)?.map(Box::new);
        Ok(special)
    }

    /// The same tokens in texts that are brought into NFC, or not.
    #[must_use]
    pub fn with_nfc(self, nfc: bool) -> Self {
        Self { nfc, ..self }
    }

    /// Those of the tokens that `chosen` accepts, with their rules.
    ///
    /// # Errors
    /// None but what the search itself gives.
    pub fn subset(&self, chosen: impl Fn(&str) -> bool) -> Result<Self> {
        let places: Vec<usize> = (0..self.tokens.len()).filter(|&place| chosen(&self.tokens[place].0)).collect();
        let tokens = places.iter().map(|&place| self.tokens[place].clone()).collect();
        let subset = match &self.ruled {
            None => Self::new(tokens),
            Some(ruled) => Self::with_rules(tokens, places.iter().map(|&place| ruled.rules()[place]).collect()),
        };
        Ok(subset?.with_nfc(self.nfc))
    }

    /// True where a text is a single segment as it is.
    #[must_use]
    pub fn leaves_texts(&self) -> bool {
        self.tokens.is_empty() && !self.nfc
    }

    /// True where texts are brought into NFC.
    #[must_use]
    pub fn nfc(&self) -> bool {
        self.nfc
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

    /// The special tokens in `text`, from left to right, without overlap, with the white space that they take in.
    ///
    /// Where a token begins inside the white space that the one before has taken in, both are found, as in Hugging
    /// Face's library: then they do overlap, and what follows the later one is text.
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        let finder = if self.ruled.is_none() { self.finder.as_ref() } else { None };
        let plainly = finder.into_iter().flat_map(move |finder| occurrences(finder, text));
        plainly.chain(self.ruled.iter().flat_map(move |ruled| ruled.find(text)))
    }

    /// The text between special tokens (never empty) and the special tokens, in order.
    ///
    /// # Errors
    /// Whatever `each` returns, and what `pulse` gives.
    pub fn segments(&self, text: &str, pulse: Pulse, mut each: impl FnMut(Segment<'_>) -> Result<()>) -> Result<()> {
        if !self.nfc {
            // Most texts are short, and of most tokenizers the special tokens have no rules.
            return match (&self.ruled, &self.finder) {
                (None, Some(finder)) => self.between(occurrences(finder, text), text, each),
                (None, None) => self.between(std::iter::empty(), text, each),
                (Some(ruled), _) => self.between(ruled.find(text), text, each),
            };
        }
        // Some tokens are looked for before the text is normalized, some behind that.
        let Some(ruled) = &self.ruled else {
            return self.between(self.find(text), text, |segment| match segment {
                Segment::Text(text) => each(Segment::Text(&normalize(text, pulse)?)),
                special => each(special),
            });
        };
        self.between(ruled.search(0, text), text, |segment| match segment {
            Segment::Text(text) => {
                let text = normalize(text, pulse)?;
                self.between(ruled.search(1, &text), &text, &mut each)
            }
            special => each(special),
        })
    }

    fn between(
        &self,
        all: impl Iterator<Item = Found>,
        text: &str,
        mut each: impl FnMut(Segment<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        for found in all {
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
    ///
    /// With rules, what stands beside a token counts too, so one that begins or ends at `at` is in the way as well. Then
    /// the same holds where a letter stands before `at`: no white space is taken in across it from the right, since the
    /// letter ends it, and none from the left, since it would have to pass the letter.
    ///
    /// With NFC, the text about `at` must be in it already, as far as a token reaches: then the tokens that straddle `at`
    /// once the text is normalized are those that do so now, and nothing combines across.
    #[must_use]
    pub fn straddle(&self, text: &str, at: usize) -> bool {
        let touching = usize::from(self.ruled.is_some());
        if self.nfc && !is_stable_about(text, at, self.longest + 8) {
            return true;
        }
        self.tokens.iter().any(|(token, _)| occurs(text, at, token, 1 - touching, token.len() + touching))
    }

    /// True where `text` may be cut behind `found`, so that the parts hold the same special tokens as `text`.
    ///
    /// With rules, that is where no white space is beside the cut to be taken in, something follows, and no other
    /// occurrence of a token touches it; which is known for places up to `ceiling`.
    #[must_use]
    pub fn may_cut_behind(&self, text: &str, found: &Found, ceiling: usize) -> bool {
        let Some(ruled) = &self.ruled else { return true };
        if self.nfc && ruled.rules()[found.index].late {
            return false;
        }
        let at = found.end;
        let is_space = |character: Option<char>| character.is_none_or(char::is_whitespace);
        let others = |(place, (token, _)): (usize, &(String, u32))| {
            occurs(text, at, token, 0, token.len() + usize::from(place != found.index))
        };
        at <= ceiling
            && !is_space(text[at..].chars().next())
            && !is_space(text[..at].chars().next_back())
            && !self.tokens.iter().enumerate().any(others)
    }

    /// Bytes that must be known behind a place before it can be said that no token straddles it.
    #[must_use]
    pub fn lookahead(&self) -> usize {
        if self.ruled.is_some() { self.longest } else { self.longest.saturating_sub(1) }
    }
}

/// What a search finds, without rules.
fn occurrences<'s>(finder: &'s AhoCorasick, text: &'s str) -> impl Iterator<Item = Found> + 's {
    finder.find_iter(text).map(|found| Found {
        start: found.start(),
        end: found.end(),
        index: found.pattern().as_usize(),
    })
}

/// True where `token` begins at least `nearest` and less than `farthest` bytes before `at`.
fn occurs(text: &str, at: usize, token: &str, nearest: usize, farthest: usize) -> bool {
    let bytes = text.as_bytes();
    (nearest..farthest.min(at + 1)).any(|before| bytes[at - before..].starts_with(token.as_bytes()))
}

/// A search for the leftmost, and of those the longest; None where there is nothing to look for.
fn finder<'t>(tokens: impl ExactSizeIterator<Item = &'t [u8]>) -> Result<Option<AhoCorasick>> {
    if tokens.len() == 0 {
        return Ok(None);
    }
    let built = AhoCorasickBuilder::new().match_kind(MatchKind::LeftmostLongest).build(tokens);
    built.map(Some).map_err(|error| Error::Invalid(format!("special tokens: {error}")))
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
    use crate::pulse::no_pulse;

    fn special(tokens: &[&str]) -> SpecialTokens {
        SpecialTokens::new(tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect()).unwrap()
    }

    fn segments<'t>(special: &SpecialTokens, text: &'t str) -> Vec<Segment<'t>> {
        let mut all = Vec::new();
        special
            .segments(text, &no_pulse, |segment| {
                all.push(match segment {
                    Segment::Text(part) => Segment::Text(&text[text.find(part).unwrap()..][..part.len()]),
                    Segment::Special(id) => Segment::Special(id),
                });
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
