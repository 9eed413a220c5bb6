//! Leftmost-longest search for several strings.

use crate::error::{Error, Result};
use aho_corasick::{AhoCorasick, MatchKind};

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

/// A leftmost-longest search for `tokens`, or `None` if there are none.
pub(super) fn finder<'t>(tokens: impl ExactSizeIterator<Item = &'t [u8]>) -> Result<Option<AhoCorasick>> {
    if tokens.len() == 0 {
        return Ok(None);
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tokens);
    built.map(Some).map_err(|error| Error::Invalid(format!("special tokens: {error}")))
}

/// The non-overlapping occurrences in `text`, from left to right.
pub(super) fn occurrences<'s>(finder: &'s AhoCorasick, text: &'s str) -> impl Iterator<Item = Found> + 's {
    finder.find_iter(text).map(|found| Found {
        start: found.start(),
        end: found.end(),
        index: found.pattern().as_usize(),
    })
}
