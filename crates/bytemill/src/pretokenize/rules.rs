//! What the named patterns differ in.
//!
//! Every named pattern is a choice between five alternatives, in this order except that a suffix contraction belongs to the letters:
//!
//! ```text
//! contraction | letters | digits | others | white space
//! ```
//!
//! [`Spec`] selects a variant of each. The rules on masks, and the reference implementation in the tests, are generic over [`Rules`], so
//! each pattern gets its own copy in which the selection costs nothing.

/// A type that stands for the rules of one pattern.
pub trait Rules {
    const SPEC: Spec;
}

pub struct Spec {
    pub contractions: Contractions,
    pub letters: Letters,
    pub digits: Digits,
    pub others: Others,
    pub white_space: WhiteSpace,
}

/// `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d`.
#[derive(Clone, Copy, PartialEq, Eq)]
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// ` ?\p{L}+`
    AfterBlank,
    /// `[^\r\n\p{L}\p{N}]?\p{L}+`
    AfterAny,
    /// `[^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*`, with U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and W = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
    ByCase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// ` ?\p{N}+`
    AfterBlank,
    /// `\p{N}{1,n}`, with n below 32.
    Groups(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// ` ?[^\s\p{L}\p{N}]+`
    Alone,
    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    WithNewlines,
    /// ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
    WithNewlinesAndSlashes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WhiteSpace {
    /// `\s+(?!\S)|\s+`
    Runs,
    /// `\s*[\r\n]+|\s+(?!\S)|\s+`
    ToLastNewline,
    /// `\s++$|\s*[\r\n]|\s+(?!\S)|\s`: as [`Self::ToLastNewline`], but a run at the end of the text stays whole.
    ToLastNewlineOrEnd,
}
