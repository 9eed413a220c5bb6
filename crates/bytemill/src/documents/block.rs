//! The documents of one block.

use crate::error::{Error, Result};
use std::ops::ControlFlow;

/// Why a document is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Malformed UTF-8 at this offset in the block.
    NotUtf8(usize),
    /// Any other reason, as a message.
    Other(String),
}

/// A broken document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Number of lines in the block before it (packed documents: number of documents).
    pub line: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// The documents of a block.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Documents {
    /// Their text, valid UTF-8. `None` if it equals the block up to `consumed`.
    pub text: Option<Vec<u8>>,
    /// End of each document in the text.
    pub ends: Vec<i64>,
    /// True if the last document continues in the next block.
    pub is_open: bool,
    /// Bytes of the block that were processed. The next block starts after them.
    pub consumed: usize,
    /// Number of line ends among them.
    pub n_lines: u64,
    /// Number of malformed sequences replaced by U+FFFD.
    pub n_replaced: u64,
    /// Number of malformed bytes dropped.
    pub n_skipped_bytes: u64,
    /// Number of broken documents.
    pub n_broken: u64,
    /// The broken document at which reading stopped.
    pub broken: Option<Broken>,
}

impl Documents {
    /// Count a broken document, and stop there unless `skip_broken`.
    pub(super) fn reject(&mut self, skip_broken: bool, broken: impl FnOnce() -> Broken) -> ControlFlow<()> {
        self.n_broken += 1;
        if skip_broken {
            return ControlFlow::Continue(());
        }
        self.broken = Some(broken());
        ControlFlow::Break(())
    }
}

/// An empty string in the memory of `buffer`, with room for `n_bytes`.
pub(super) fn cleared(mut buffer: Vec<u8>, n_bytes: usize) -> Result<String> {
    buffer.clear();
    buffer.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(n_bytes))?;
    // Empty bytes are UTF-8.
    Ok(String::from_utf8(buffer).unwrap_or_default())
}

/// Number of line ends.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// End of a document that is the last one in `text`.
pub(super) fn end_of(text: &str) -> i64 {
    // No string is longer than isize::MAX bytes.
    text.len() as i64
}
