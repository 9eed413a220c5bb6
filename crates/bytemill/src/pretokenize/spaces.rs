//! Splitting before spaces, for vocabularies in which a space only begins a token.
//!
//! SentencePiece merges inside whole texts, but its tokens have spaces at their start only. No merge crosses the end of a run of
//! characters before a space then, so these runs can be merged one by one. That makes texts as fast as those with a pattern.

use super::blocks::MAX_ENDS;
use memchr::{memchr, memchr2};

/// Where a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spaces {
    /// Before every run of spaces.
    Runs,
    /// Before every run of spaces, and before and after every run of line feeds.
    RunsAndLines,
    /// Before every space (Metaspace with `split`).
    Each,
}

impl Spaces {
    const ALL: [Self; 3] = [Self::Runs, Self::RunsAndLines, Self::Each];

    /// The expression that splits the same way.
    pub fn expression(self) -> &'static str {
        match self {
            Self::Runs => " *[^ ]+| +",
            Self::RunsAndLines => r" *[^ \n]+| +|\n+",
            Self::Each => " ?[^ ]+| ",
        }
    }

    /// The way to split that an expression stands for.
    pub fn find(expression: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|spaces| spaces.expression() == expression)
    }

    /// The finest split that no token crosses, `None` if spaces are inside of tokens.
    pub fn of_tokens<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Option<Self> {
        let mut splits_lines = true;
        for token in tokens {
            if token.windows(2).any(|pair| pair[0] != b' ' && pair[1] == b' ') {
                return None;
            }
            splits_lines &= token.windows(2).all(|pair| (pair[0] == b'\n') == (pair[1] == b'\n'));
        }
        Some(if splits_lines { Self::RunsAndLines } else { Self::Runs })
    }

    /// The end of the first pre-token of a text that is not empty.
    #[inline]
    fn first_end(self, text: &[u8]) -> usize {
        let n_spaces = match self {
            Self::Each => usize::from(text[0] == b' '),
            _ => text.iter().position(|&byte| byte != b' ').unwrap_or(text.len()),
        };
        let rest = &text[n_spaces..];
        let end = match self {
            Self::Runs | Self::Each => memchr(b' ', rest),
            Self::RunsAndLines if rest.first() == Some(&b'\n') => {
                if n_spaces > 0 {
                    return n_spaces;
                }
                rest.iter().position(|&byte| byte != b'\n')
            }
            Self::RunsAndLines => memchr2(b' ', b'\n', rest),
        };
        n_spaces + end.unwrap_or(rest.len())
    }

    /// True if a text may be cut at `at`: before a run of spaces.
    pub fn cuts_at(text: &[u8], at: usize) -> bool {
        0 < at && at < text.len() && text[at] == b' ' && text[at - 1] != b' '
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct SpacesSplits<'t> {
    spaces: Spaces,
    text: &'t [u8],
    done: usize,
}

impl<'t> SpacesSplits<'t> {
    pub fn new(spaces: Spaces, text: &'t str) -> Self {
        Self { spaces, text: text.as_bytes(), done: 0 }
    }

    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    #[inline]
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> bool {
        while ends.len() < MAX_ENDS && self.done < self.text.len() {
            self.done += self.spaces.first_end(&self.text[self.done..]);
            ends.push(self.done);
        }
        !ends.is_empty()
    }
}

#[cfg(test)]
#[path = "tests/spaces.rs"]
mod tests;
