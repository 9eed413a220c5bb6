//! The named patterns: the one table to extend for another pattern.
//!
//! An entry consists of its rules and its spellings. The property tests compare every entry with a regex engine.

use super::blocks::Blocks;
use super::classify::InstructionSet;
use super::rules::{Contractions, Digits, Letters, Others, Rules, Spec, WhiteSpace};

/// A pattern with a matcher of its own.
#[derive(Clone, Debug)]
pub struct NamedPattern {
    /// The name, `gpt2` for example.
    pub name: &'static str,
    /// The expression, in the form that tiktoken uses if it has one.
    pub expression: &'static str,
    /// Other spellings of the expression. Each matches exactly the same.
    pub synonyms: &'static [&'static str],
    blocks: for<'t> fn(&'t [u8], InstructionSet) -> Blocks<'t>,
}

impl NamedPattern {
    pub(super) const fn new<R: Rules>(
        name: &'static str,
        expression: &'static str,
        synonyms: &'static [&'static str],
    ) -> Self {
        Self { name, expression, synonyms, blocks: |text, set| Blocks::new::<R>(text, set) }
    }

    /// Finds a pattern by its name or by any spelling of its expression.
    #[must_use]
    pub fn find(name_or_expression: &str) -> Option<&'static Self> {
        let is_spelling =
            |named: &&Self| named.expression == name_or_expression || named.synonyms.contains(&name_or_expression);
        NAMED.iter().find(|named| named.name == name_or_expression).or_else(|| NAMED.iter().find(is_spelling))
    }

    pub(super) fn blocks<'t>(&self, text: &'t str, instruction_set: InstructionSet) -> Blocks<'t> {
        (self.blocks)(text.as_bytes(), instruction_set)
    }
}

/// The named patterns.
pub static NAMED: [NamedPattern; 6] = [
    NamedPattern::new::<Gpt2>(
        "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        &[
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        ],
    ),
    NamedPattern::new::<Cl100k>(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        &[],
    ),
    NamedPattern::new::<Llama3>(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|'ſ)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    NamedPattern::new::<O200k>(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        &[],
    ),
    NamedPattern::new::<Qwen2>(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|'ſ)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
    NamedPattern::new::<Tekken>(
        "tekken",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        &[],
    ),
];

pub(super) struct Gpt2;

impl Rules for Gpt2 {
    const SPEC: Spec = Spec {
        contractions: Contractions::LowerCase,
        letters: Letters::AfterBlank,
        digits: Digits::AfterBlank,
        others: Others::Alone,
        white_space: WhiteSpace::Runs,
    };
}

pub(super) struct Cl100k;

impl Rules for Cl100k {
    const SPEC: Spec = Spec {
        contractions: Contractions::AnyCase,
        letters: Letters::AfterAny,
        digits: Digits::Groups(3),
        others: Others::WithNewlines,
        white_space: WhiteSpace::ToLastNewlineOrEnd,
    };
}

pub(super) struct Llama3;

impl Rules for Llama3 {
    const SPEC: Spec = Spec { white_space: WhiteSpace::ToLastNewline, ..Cl100k::SPEC };
}

pub(super) struct O200k;

impl Rules for O200k {
    const SPEC: Spec = Spec {
        contractions: Contractions::Suffix,
        letters: Letters::ByCase,
        others: Others::WithNewlinesAndSlashes,
        ..Llama3::SPEC
    };
}

pub(super) struct Qwen2;

impl Rules for Qwen2 {
    const SPEC: Spec = Spec { digits: Digits::Groups(1), ..Llama3::SPEC };
}

pub(super) struct Tekken;

impl Rules for Tekken {
    const SPEC: Spec = Spec { contractions: Contractions::None, digits: Digits::Groups(1), ..O200k::SPEC };
}
