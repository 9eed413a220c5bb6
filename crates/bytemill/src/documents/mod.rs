//! Documents out of raw bytes: valid UTF-8, one after another, with the places where they end.
//!
//! A corpus is read in blocks; each function here takes one and gives the documents in it. [`clean`] and [`split`] are
//! for plain text, [`jsonl`] for JSON lines, [`packed`] for documents whose ends somebody else knows.

pub mod clean;
mod field;
pub mod jsonl;
pub mod packed;
mod repair;
pub mod split;

/// What to do with bytes that are not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The document is broken.
    Refuse,
    /// U+FFFD for each maximal malformed sequence, as `bytes.decode(errors="replace")` does in Python.
    Replace,
    /// Nothing in their place, as `bytes.decode(errors="ignore")` does.
    Skip,
}

/// Why a document is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Bytes that are not UTF-8, from this offset in the block on.
    NotUtf8(usize),
    /// Anything else, in words.
    Other(String),
}

/// A document that is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// How many lines of the block are before it (of packed documents: how many documents).
    pub line: u64,
    /// What is wrong.
    pub reason: Reason,
}

/// The documents of a block.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Documents {
    /// Their text, valid UTF-8; None where it is the block as far as it is `consumed`.
    pub text: Option<Vec<u8>>,
    /// Where each document ends in the text.
    pub ends: Vec<i64>,
    /// True where the last document goes on in the next block.
    pub is_open: bool,
    /// Bytes of the block that are done with; the next block begins behind them.
    pub consumed: usize,
    /// Line ends among them.
    pub n_lines: u64,
    /// Malformed sequences that became U+FFFD.
    pub n_replaced: u64,
    /// Bytes of malformed sequences that were left out.
    pub n_skipped_bytes: u64,
    /// Documents that were left out.
    pub n_broken: u64,
    /// The broken document at which reading stopped, where it is to stop there.
    pub broken: Option<Broken>,
}
