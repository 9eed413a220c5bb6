//! The named patterns: the one table to extend for another pattern.
//!
//! An entry consists of its rules and an expression. The property tests compare every entry with a regex engine.

use super::blocks::Blocks;
use super::classify::InstructionSet;
use super::compile;
use super::rules::{Contractions, Digits, Letters, Others, Rules, Spec, Variant, WhiteSpace};

/// A pattern with a matcher of its own.
#[derive(Clone, Debug)]
pub struct NamedPattern {
    /// The name, `gpt2` for example.
    pub name: &'static str,
    /// The expression, in the form that tiktoken uses if it has one.
    pub expression: &'static str,
    rules: Rules,
    blocks: for<'t> fn(&'t [u8], &'t Rules, InstructionSet) -> Blocks<'t>,
}

impl NamedPattern {
    const fn new<V: Variant>(name: &'static str, expression: &'static str, spec: Spec) -> Self {
        let rules = Rules::new(spec);
        Self { name, expression, rules, blocks: |text, rules, set| Blocks::new::<V>(text, rules, set) }
    }

    /// Finds a pattern by its name or by any expression with the same rules.
    pub fn find(name_or_expression: &str) -> Option<&'static Self> {
        let named = |named: &&Self| [named.name, named.expression].contains(&name_or_expression);
        NAMED.iter().find(named).or_else(|| Self::with_rules(&compile::rules(&[name_or_expression])?))
    }

    /// The pattern with these rules.
    pub(super) fn with_rules(rules: &Rules) -> Option<&'static Self> {
        NAMED.iter().find(|named| named.rules == *rules)
    }

    pub(super) fn blocks<'t>(&'static self, text: &'t str, instruction_set: InstructionSet) -> Blocks<'t> {
        (self.blocks)(text.as_bytes(), &self.rules, instruction_set)
    }
}

/// The named patterns.
pub static NAMED: [NamedPattern; 6] = [
    NamedPattern::new::<Gpt2>("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", GPT2),
    NamedPattern::new::<Cl100k>(
        "cl100k",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        CL100K,
    ),
    NamedPattern::new::<Llama3>(
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        LLAMA3,
    ),
    NamedPattern::new::<O200k>(
        "o200k",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        O200K,
    ),
    NamedPattern::new::<Qwen2>(
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        QWEN2,
    ),
    NamedPattern::new::<Tekken>(
        "tekken",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        TEKKEN,
    ),
];

pub(super) const GPT2: Spec = Spec {
    contractions: Contractions::LowerCase,
    letters: Letters::AfterBlank,
    joins_marks: false,
    digits: Digits::AfterBlank,
    others: Others::Alone,
    white_space: WhiteSpace::Runs,
    isolates_digits: false,
    isolates_set: false,
};

pub(super) const CL100K: Spec = Spec {
    contractions: Contractions::AnyCase,
    letters: Letters::AfterAny,
    digits: Digits::Groups(3),
    others: Others::WithNewlines,
    white_space: WhiteSpace::ToLastNewlineOrEnd,
    ..GPT2
};

pub(super) const LLAMA3: Spec = Spec { white_space: WhiteSpace::ToLastNewline, ..CL100K };

pub(super) const O200K: Spec = Spec {
    contractions: Contractions::Suffix,
    letters: Letters::ByCase,
    others: Others::WithNewlinesAndSlashes,
    ..LLAMA3
};

pub(super) const QWEN2: Spec = Spec { digits: Digits::Groups(1), ..LLAMA3 };

pub(super) const TEKKEN: Spec = Spec { contractions: Contractions::None, digits: Digits::Groups(1), ..O200K };

/// The copies of the matcher that know their rules.
macro_rules! variants {
    ($($name:ident = $spec:ident),+) => {
        $(
            struct $name;

            impl Variant for $name {
                const KNOWN: Option<Spec> = Some($spec);
            }
        )+
    };
}

variants!(Gpt2 = GPT2, Cl100k = CL100K, Llama3 = LLAMA3, O200k = O200K, Qwen2 = QWEN2, Tekken = TEKKEN);
