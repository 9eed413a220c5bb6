//! What the named patterns differ in, and the contractions that most of them have.
//!
//! Every named pattern is a choice between five alternatives, in this order except that a suffix contraction belongs to the letters:
//!
//! ```text
//! contraction | letters | digits | others | white space
//! ```
//!
//! [`Spec`] selects a variant of each. The rules on masks are generic over [`Variant`]: the named patterns get a copy each in which the
//! selection costs nothing, all others share one that looks the selection up.
//!
//! Several patterns in a row begin with steps that isolate a class of characters. Every run of the class, or a few digits of it, then
//! is a text of its own.

use crate::text::unicode::CharSet;

/// The rules of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub spec: Spec,
    pub sets: Sets,
}

/// Sets of characters outside ASCII that the rules distinguish beyond their classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// What a step isolates if [`Spec::isolates_set`].
    pub isolated: Option<CharSet>,
    /// What no alternative but the prefix of a word matches if [`Spec::has_strays`].
    pub strays: Option<CharSet>,
}

impl Rules {
    /// Rules without sets.
    pub const fn new(spec: Spec) -> Self {
        Self { spec, sets: Sets { isolated: None, strays: None } }
    }
}

/// A type that stands for rules known when the matcher is compiled, or for any rules.
pub trait Variant {
    /// The rules, if they are known.
    const KNOWN: Option<Spec> = None;

    /// The known rules, else those given.
    #[inline(always)]
    fn spec(rules: &Rules) -> Spec {
        match Self::KNOWN {
            Some(spec) => spec,
            None => rules.spec,
        }
    }
}

/// Any rules.
pub struct Any;

impl Variant for Any {}

/// The variants that a pattern selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub contractions: Contractions,
    pub letters: Letters,
    /// Marks are letters: `[\p{L}\p{M}]` in the place of `\p{L}`, and not in the class of others.
    pub joins_marks: bool,
    pub digits: Digits,
    pub others: Others,
    pub white_space: WhiteSpace,
    /// A step before isolates groups of digits.
    pub isolates_digits: bool,
    /// A step before isolates the runs of [`Sets::isolated`].
    pub isolates_set: bool,
}

impl Spec {
    /// Whether there are characters that no alternative but the prefix of a word matches. Several of them are one pre-token.
    #[inline(always)]
    pub const fn has_strays(&self) -> bool {
        matches!(self.others, Others::Punctuation)
    }
}

/// `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contractions {
    /// `'(?:[sdmt]|ll|ve|re)` is a pre-token.
    LowerCase,
    /// `'(?i:[sdmt]|ll|ve|re)` is a pre-token.
    AnyCase,
    /// `(?:'(?i:[sdmt]|ll|ve|re))?` ends a word.
    Suffix,
    /// An apostrophe is an other.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letters {
    /// ` ?\p{L}+`
    AfterBlank,
    /// `[^\r\n\p{L}\p{N}]?\p{L}+`
    AfterAny,
    /// `[^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*`, with U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and W = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
    ByCase,
    /// `[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?\p{L}+`
    AfterPunctuation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// ` ?\p{N}+`
    AfterBlank,
    /// `\p{N}{1,n}`, with n below 32.
    Groups(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// ` ?[^\s\p{L}\p{N}]+`
    Alone,
    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    WithNewlines,
    /// ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
    WithNewlinesAndSlashes,
    /// ` ?[\p{P}\p{S}]+[\r\n]*`
    Punctuation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhiteSpace {
    /// `\s+(?!\S)|\s+`
    Runs,
    /// `\s*[\r\n]+|\s+(?!\S)|\s+`
    ToLastNewline,
    /// `\s++$|\s*[\r\n]|\s+(?!\S)|\s`: as [`Self::ToLastNewline`], but a run at the end of the text stays whole.
    ToLastNewlineOrEnd,
}

// The contractions of English after an apostrophe.

/// Length of the contraction whose apostrophe is at `at`, 0 if there is none.
#[inline]
pub fn contraction_bytes(text: &[u8], at: usize, contractions: Contractions) -> usize {
    let any_case = contractions != Contractions::LowerCase;
    let byte = |k: usize| text.get(at + k).map_or(0, |byte| if any_case { byte.to_ascii_lowercase() } else { *byte });
    match byte(1) {
        b's' | b'd' | b'm' | b't' => 2,
        b'l' if byte(2) == b'l' => 3,
        b'v' | b'r' if byte(2) == b'e' => 3,
        // Of these letters only `s` has a case variant outside ASCII: `ſ` (U+017F, two bytes).
        0xC5 if any_case && byte(2) == 0xBF => 3,
        _ => 0,
    }
}
