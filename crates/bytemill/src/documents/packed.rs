//! Documents stored one after another with known ends, as in an Arrow column.

use super::block::{Broken, Documents, Reason, append_document, cleared, end_of};
use crate::error::{Error, Result};
use crate::text::utf8::Malformed;

/// Check the documents of `data` that end at `ends`.
///
/// A document is broken if it is not UTF-8 or flagged in `missing`, which is empty or holds one flag per document.
///
/// # Errors
/// [`Error::Invalid`] if the ends do not ascend or exceed the data; [`Error::Memory`].
pub fn check_packed(
    data: &[u8],
    ends: &[i64],
    missing: &[bool],
    malformed: Malformed,
    skip_broken: bool,
) -> Result<Documents> {
    check_ends(data, ends)?;
    let mut documents = Documents { consumed: data.len(), ..Documents::default() };
    // If the whole is UTF-8 and no document ends inside a character, each document is UTF-8.
    let is_valid =
        simdutf8::basic::from_utf8(data).is_ok_and(|text| ends.iter().all(|&end| text.is_char_boundary(end as usize)));
    if is_valid && !missing.contains(&true) {
        documents.ends = ends.to_vec();
        documents.consumed = ends.last().map_or(0, |&end| end as usize);
        return Ok(documents);
    }
    let mut text = cleared(Vec::new(), data.len())?;
    for (index, document) in documents_of(data, ends).enumerate() {
        let appended = if missing.get(index) == Some(&true) {
            Err(Reason::Other("missing".into()))
        } else {
            append_document(document, malformed, &mut text, &mut documents).map_err(Reason::NotUtf8)
        };
        match appended {
            Ok(()) => documents.ends.push(end_of(&text)),
            Err(reason) => {
                if documents.reject(skip_broken, || Broken { line: index as u64, reason }).is_break() {
                    break;
                }
            }
        }
    }
    documents.text = Some(text.into_bytes());
    Ok(documents)
}

/// Select the documents flagged in `keep`: their text, and their ends in it.
///
/// # Errors
/// [`Error::Invalid`] if the ends do not ascend or exceed the data, or if `keep` does not hold one flag per document;
/// [`Error::Memory`].
pub fn select(data: &[u8], ends: &[i64], keep: &[bool]) -> Result<(Vec<u8>, Vec<i64>)> {
    check_ends(data, ends)?;
    if keep.len() != ends.len() {
        return Err(Error::Invalid(format!("{} documents but {} flags to keep them", ends.len(), keep.len())));
    }
    let kept = || documents_of(data, ends).zip(keep).filter_map(|(document, &keep)| keep.then_some(document));
    let n_bytes = kept().map(<[u8]>::len).sum();
    let (mut text, mut kept_ends) = (Vec::new(), Vec::new());
    text.try_reserve_exact(n_bytes).map_err(|_| Error::memory::<u8>(n_bytes))?;
    for document in kept() {
        text.extend_from_slice(document);
        kept_ends.push(text.len() as i64);
    }
    Ok((text, kept_ends))
}

/// The documents of `data`, after [`check_ends`].
fn documents_of<'d>(data: &'d [u8], ends: &[i64]) -> impl Iterator<Item = &'d [u8]> {
    let mut start = 0;
    ends.iter().map(move |&end| {
        let document = &data[start..end as usize];
        start = end as usize;
        document
    })
}

/// Check that the ends ascend from 0 to at most the length of `data`.
fn check_ends(data: &[u8], ends: &[i64]) -> Result<()> {
    let is_ascending = ends.first().is_none_or(|&first| first >= 0) && ends.is_sorted();
    if is_ascending && ends.last().is_none_or(|&last| last as u64 <= data.len() as u64) {
        return Ok(());
    }
    Err(Error::Invalid("the ends of the documents are not in order or exceed the data".into()))
}
