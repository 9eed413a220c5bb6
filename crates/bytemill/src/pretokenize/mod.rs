//! Pre-tokenization: cutting a text into the pieces inside which merges happen.
//!
//! The pre-tokens of a text tile it: what a custom pattern leaves out between two matches is a pre-token too, so
//! that no byte is ever lost. The four patterns of the field are matched by hand, from left to right and without
//! backtracking; each matcher's file derives it from its expression.

mod cl100k;
mod custom;
mod cut;
mod gpt2;
mod o200k;
mod scan;

use crate::error::Result;
use custom::CustomPattern;

/// Most pre-tokens that one call of [`Pattern::split`] gives.
pub const BLOCK: usize = 256;

/// Name and expression of the patterns with a matcher of their own, the form tiktoken uses where it has one.
pub const NAMED: [(&str, &str); 4] = [
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    (
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
    (
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// Other ways in which the field writes the named patterns; each matches exactly what the named one does.
const SYNONYMS: [(&str, &str); 5] = [
    ("gpt2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    ("gpt2", r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"),
    (
        "llama3",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    (
        "llama3",
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|'ſ)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// How a text is cut into pre-tokens.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// No cut: the text is one pre-token.
    Whole,
    /// GPT-2's pattern.
    Gpt2,
    /// cl100k's pattern (GPT-4).
    Cl100k,
    /// Llama 3's pattern: cl100k's but for white space at the end of the text.
    Llama3,
    /// o200k's pattern (GPT-4o).
    O200k,
    /// Any other expression, by a regex engine.
    Custom(Box<CustomPattern>),
}

impl Pattern {
    /// The pattern of a name (`gpt2`, `cl100k`, `llama3`, `o200k`) or of an expression; `None` for no cuts.
    ///
    /// # Errors
    /// [`crate::Error::Pattern`] where the expression does not compile.
    pub fn new(pattern: Option<&str>) -> Result<Self> {
        let Some(pattern) = pattern else { return Ok(Self::Whole) };
        match Self::name_for(pattern) {
            Some("gpt2") => Ok(Self::Gpt2),
            Some("cl100k") => Ok(Self::Cl100k),
            Some("llama3") => Ok(Self::Llama3),
            Some("o200k") => Ok(Self::O200k),
            _ => Ok(Self::Custom(Box::new(CustomPattern::new(pattern)?))),
        }
    }

    /// The name of the hand-written matcher that serves a name or an expression.
    #[must_use]
    pub fn name_for(pattern: &str) -> Option<&'static str> {
        let by_name = NAMED.iter().find(|(name, _)| *name == pattern);
        let by_expression = || NAMED.iter().chain(&SYNONYMS).find(|(_, expression)| *expression == pattern);
        by_name.or_else(by_expression).map(|(name, _)| *name)
    }

    /// The expression, `None` for [`Pattern::Whole`].
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Gpt2 => Some(NAMED[0].1),
            Self::Cl100k => Some(NAMED[1].1),
            Self::Llama3 => Some(NAMED[2].1),
            Self::O200k => Some(NAMED[3].1),
            Self::Custom(custom) => Some(custom.expression()),
        }
    }

    /// Appends to `ends` where the next pre-tokens end, up to [`BLOCK`] of them, and gives the last of these ends.
    ///
    /// `at` is 0 or an end given earlier, and less than `text.len()`. The whole `text` decides: white space at its
    /// end is matched as the end of a text.
    ///
    /// # Errors
    /// [`crate::Error::Pattern`] where a custom pattern ran out of its backtracking allowance.
    #[inline]
    pub fn split(&self, text: &str, at: usize, ends: &mut Vec<usize>) -> Result<usize> {
        let bytes = text.as_bytes();
        Ok(match self {
            Self::Whole => {
                ends.push(text.len());
                text.len()
            }
            Self::Gpt2 => fill(bytes, at, ends, gpt2::end),
            Self::Cl100k => fill(bytes, at, ends, cl100k::end::<true>),
            Self::Llama3 => fill(bytes, at, ends, cl100k::end::<false>),
            Self::O200k => fill(bytes, at, ends, o200k::end),
            Self::Custom(custom) => custom.split(text, at, ends)?,
        })
    }

    /// Calls `each` with every pre-token of `text` in order.
    ///
    /// # Errors
    /// As [`Pattern::split`].
    pub fn for_each<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) -> Result<()> {
        let mut ends = Vec::with_capacity(BLOCK);
        let mut at = 0;
        while at < text.len() {
            ends.clear();
            let mut start = at;
            at = self.split(text, at, &mut ends)?;
            for &end in &ends {
                each(&text[start..end]);
                start = end;
            }
        }
        Ok(())
    }
}

#[inline]
fn fill(text: &[u8], mut at: usize, ends: &mut Vec<usize>, end: impl Fn(&[u8], usize) -> usize) -> usize {
    for _ in 0..BLOCK {
        if at >= text.len() {
            break;
        }
        at = end(text, at);
        ends.push(at);
    }
    at
}

#[cfg(test)]
mod tests;
