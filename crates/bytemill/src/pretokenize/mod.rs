//! Pre-tokenization: cutting a text into the pieces inside which merges happen.
//!
//! The pre-tokens of a text tile it: what a custom pattern leaves out between two matches is a pre-token too, so
//! that no byte is ever lost, unless it is asked for that such text be dropped, as it is in tiktoken. The four patterns of the field are matched by hand: by [`blocks`] of 64 bytes, and where
//! those do not serve, character by character; each scalar matcher's file derives it from its expression.

mod blocks;
mod chars;
mod cl100k;
mod classify;
mod custom;
mod cut;
mod gpt2;
mod o200k;
mod rules;
mod scan;
mod steps;

use crate::error::Result;
use blocks::Blocks;
use classify::InstructionSet;
use custom::CustomPattern;
use rules::Rules;
pub use steps::THEN;
use steps::{StepSplits, Steps};

/// No call of [`Splits::fill`] gives more pre-tokens than this.
pub const BLOCK: usize = blocks::MOST_ENDS;

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
    /// Several patterns, each of which cuts the pre-tokens of the one before.
    Steps(Box<Steps>),
}

impl Pattern {
    /// The pattern of a name (`gpt2`, `cl100k`, `llama3`, `o200k`) or of an expression; `None` for no cuts. Several of
    /// them with [`THEN`] in between are taken one after the other.
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
            _ if pattern.contains(THEN) => Ok(Self::Steps(Box::new(Steps::new(pattern)?))),
            _ => Ok(Self::Custom(Box::new(CustomPattern::new(pattern)?))),
        }
    }

    /// The same pattern; with `yes`, what it does not match belongs to no pre-token, as in tiktoken. The named patterns match
    /// every character, and without a pattern all is one pre-token: there is nothing to drop.
    #[must_use]
    pub fn dropping_unmatched(mut self, yes: bool) -> Self {
        if let Self::Custom(custom) = &mut self {
            custom.drops_unmatched = yes;
        }
        self
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
            Self::Steps(steps) => Some(steps.expression()),
        }
    }

    /// The pre-tokens of `text`, to be asked for in blocks.
    #[must_use]
    pub fn splits<'t>(&'t self, text: &'t str) -> Splits<'t> {
        self.splits_with(text, InstructionSet::best())
    }

    /// [`Pattern::splits`] by each instruction set that this processor has, with its name, the slowest first: for tests
    /// and benchmarks, which hold them equal and say what each is worth.
    #[must_use]
    pub fn splits_by_instruction_set<'t>(&'t self, text: &'t str) -> Vec<(&'static str, Splits<'t>)> {
        InstructionSet::available().into_iter().map(|set| (set.name(), self.splits_with(text, set))).collect()
    }

    fn splits_with<'t>(&'t self, text: &'t str, instruction_set: InstructionSet) -> Splits<'t> {
        let blocks = |rules| Way::Blocks(Blocks::new(text.as_bytes(), rules, instruction_set));
        let way = match self {
            Self::Whole => Way::Whole,
            Self::Gpt2 => blocks(Rules::Gpt2),
            Self::Cl100k => blocks(Rules::Cl100k),
            Self::Llama3 => blocks(Rules::Llama3),
            Self::O200k => blocks(Rules::O200k),
            Self::Custom(custom) => Way::Custom(custom),
            Self::Steps(steps) => Way::Steps(Box::new(steps.splits(text, instruction_set))),
        };
        Splits { text, start: 0, done: 0, way }
    }

    /// Calls `each` with every pre-token of `text` in order.
    ///
    /// # Errors
    /// As [`Splits::fill`].
    pub fn for_each<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) -> Result<()> {
        let mut ends = Vec::with_capacity(BLOCK);
        let mut splits = self.splits(text);
        let mut start = 0;
        while splits.fill(&mut ends)? {
            start = splits.block_start(start);
            for &end in &ends {
                each(&text[start..end]);
                start = end;
            }
        }
        Ok(())
    }
}

/// A text on its way to pre-tokens.
pub struct Splits<'t> {
    text: &'t str,
    /// Start of the first pre-token of the block, of a custom pattern.
    start: usize,
    /// End of the last pre-token given.
    done: usize,
    way: Way<'t>,
}

enum Way<'t> {
    Whole,
    Blocks(Blocks<'t>),
    Custom(&'t CustomPattern),
    Steps(Box<StepSplits<'t>>),
}

impl Splits<'_> {
    /// Puts into `ends` where the next pre-tokens end, at most [`BLOCK`] of them; false where there are no more.
    ///
    /// True does not mean that there are any this time: a long pre-token may take several calls.
    ///
    /// # Errors
    /// [`crate::Error::Pattern`] where a custom pattern ran out of its backtracking allowance.
    #[inline]
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        ends.clear();
        match &mut self.way {
            Way::Blocks(blocks) => Ok(blocks.fill(ends)),
            Way::Steps(steps) => steps.fill(ends),
            _ if self.done == self.text.len() => Ok(false),
            Way::Whole => {
                ends.push(self.text.len());
                self.done = self.text.len();
                Ok(true)
            }
            Way::Custom(custom) => {
                (self.start, self.done) = custom.split(self.text, self.done, ends)?;
                Ok(true)
            }
        }
    }

    /// Where the first pre-token of the block that [`Splits::fill`] has given starts: where the one before it ends, which is
    /// at `done`, unless text between them is dropped.
    #[inline]
    #[must_use]
    pub fn block_start(&self, done: usize) -> usize {
        if let Way::Custom(_) = self.way { self.start } else { done }
    }
}

#[cfg(test)]
mod tests;
