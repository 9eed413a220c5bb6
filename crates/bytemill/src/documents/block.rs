//! The documents of one block, and clean text: valid UTF-8 out of bytes that may be malformed.

use crate::error::{Error, Result};
use crate::text::utf8::{Malformed, Utf8Stream};
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

/// Clean a block of one long document.
///
/// A character cut off at the end of the block is not consumed, unless the block `is_last`. With [`Malformed::Refuse`]
/// the text ends before the first malformed sequence.
///
/// # Errors
/// [`Error::Memory`].
pub fn clean_block(block: &[u8], is_last: bool, malformed: Malformed) -> Result<Documents> {
    let consumed = if is_last { block.len() } else { block.len() - unfinished_bytes(block) };
    let region = &block[..consumed];
    let mut documents = Documents { consumed, is_open: !is_last, n_lines: count_lines(region), ..Documents::default() };
    if let Ok(text) = simdutf8::basic::from_utf8(region) {
        documents.ends.push(end_of(text));
        return Ok(documents);
    }
    let mut text = cleared(Vec::new(), region.len())?;
    if let Err(offset) = append_clean(region, malformed, &mut text, &mut documents) {
        let line = count_lines(&region[..offset]);
        documents.broken = Some(Broken { line, reason: Reason::NotUtf8(offset) });
        documents.is_open = true;
    }
    documents.ends.push(end_of(&text));
    documents.text = Some(text.into_bytes());
    Ok(documents)
}

/// Append `bytes` to `text` as UTF-8, and count malformed sequences in `documents`.
///
/// # Errors
/// With [`Malformed::Refuse`], the offset of the first malformed sequence. The bytes before it are appended.
pub(super) fn append_clean(
    bytes: &[u8],
    malformed: Malformed,
    text: &mut String,
    documents: &mut Documents,
) -> std::result::Result<(), usize> {
    let mut stream = Utf8Stream::new(malformed);
    let appended = stream.push(bytes, text).and_then(|()| stream.finish(text));
    documents.n_replaced += stream.n_replaced();
    documents.n_skipped_bytes += stream.n_skipped_bytes();
    match appended {
        Err(Error::Utf8 { start, .. }) => Err(start),
        _ => Ok(()),
    }
}

/// Like [`append_clean`], but appends nothing if it fails.
pub(super) fn append_document(
    bytes: &[u8],
    malformed: Malformed,
    text: &mut String,
    documents: &mut Documents,
) -> std::result::Result<(), usize> {
    let before = text.len();
    append_clean(bytes, malformed, text, documents).inspect_err(|_| text.truncate(before))
}

/// Number of bytes at the end of a block that start a character without completing it: at most 3.
pub(super) fn unfinished_bytes(block: &[u8]) -> usize {
    (1..=block.len().min(3))
        .find(|&n| block[block.len() - n] >= 0xC0)
        .filter(|&n| {
            std::str::from_utf8(&block[block.len() - n..])
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}
