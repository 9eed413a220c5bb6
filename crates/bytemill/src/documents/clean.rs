//! Clean text: valid UTF-8 out of bytes that may be malformed.

use super::block::{Broken, Documents, Reason, cleared, count_lines, end_of};
use crate::error::Error;
use crate::text::utf8::{Malformed, Utf8Stream};

/// Clean a block of one long document.
///
/// A character cut off at the end of the block is not consumed, unless the block `is_last`. With [`Malformed::Refuse`]
/// the text ends before the first malformed sequence.
///
/// # Errors
/// [`Error::Memory`].
pub fn clean_block(block: &[u8], is_last: bool, malformed: Malformed) -> Result<Documents, Error> {
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
) -> Result<(), usize> {
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
) -> Result<(), usize> {
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
