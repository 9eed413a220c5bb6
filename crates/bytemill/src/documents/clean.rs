//! Bytes that should be UTF-8.

use super::{Broken, Documents, Malformed, Reason};

/// A block of one long document.
///
/// A character that the block cuts off at its end is not consumed, unless it `is_last`. With [`Malformed::Refuse`] the
/// text ends before what is no UTF-8.
#[must_use]
pub fn clean_block(block: &[u8], is_last: bool, malformed: Malformed) -> Documents {
    let consumed = if is_last { block.len() } else { block.len() - unfinished_bytes(block) };
    let region = &block[..consumed];
    let mut documents = Documents { consumed, is_open: !is_last, ..Documents::default() };
    if simdutf8::basic::from_utf8(region).is_err() {
        let mut text = Vec::with_capacity(region.len());
        if let Err(offset) = append_clean(region, malformed, &mut text, &mut documents) {
            let line = count_lines(&region[..offset]);
            documents.broken = Some(Broken { line, reason: Reason::NotUtf8(offset) });
            documents.is_open = true;
        }
        documents.ends.push(end_of(&text));
        documents.text = Some(text);
    } else {
        documents.ends.push(end_of(region));
    }
    documents.n_lines = count_lines(region);
    documents
}

/// Appends `bytes` as UTF-8 to `text`, and counts what was malformed in `documents`.
///
/// # Errors
/// The offset of the first malformed sequence, with [`Malformed::Refuse`]; what is before it is appended.
pub(super) fn append_clean(
    mut bytes: &[u8],
    malformed: Malformed,
    text: &mut Vec<u8>,
    documents: &mut Documents,
) -> Result<(), usize> {
    let n_bytes = bytes.len();
    loop {
        let error = match simdutf8::compat::from_utf8(bytes) {
            Ok(valid) => {
                text.extend_from_slice(valid.as_bytes());
                return Ok(());
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.extend_from_slice(valid);
        let n_malformed = error.error_len().unwrap_or(rest.len());
        match malformed {
            Malformed::Refuse => return Err(n_bytes - rest.len()),
            Malformed::Replace => {
                text.extend_from_slice("\u{FFFD}".as_bytes());
                documents.n_replaced += 1;
            }
            Malformed::Skip => documents.n_skipped_bytes += n_malformed as u64,
        }
        bytes = &rest[n_malformed..];
    }
}

/// How many bytes at the end of a block begin a character that is not all there: at most 3.
pub(super) fn unfinished_bytes(block: &[u8]) -> usize {
    (1..=block.len().min(3))
        .find(|&n| block[block.len() - n] >= 0xC0)
        .filter(|&n| {
            std::str::from_utf8(&block[block.len() - n..])
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

/// How many line ends there are.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Where a document ends that is the last in `text`.
pub(super) fn end_of(text: &[u8]) -> i64 {
    // No slice is longer than isize::MAX bytes.
    text.len() as i64
}
