//! Documents one after another, whose ends are known: of Arrow's columns, and those that a sample takes.

use super::clean::{append_clean, end_of};
use super::{Broken, Documents, Malformed, Reason};
use crate::error::{Error, Result};

/// The documents of `data` that end at `ends`, which are checked: each has to be UTF-8, and none of those in `missing`
/// (empty, or one for each document) is there.
///
/// # Errors
/// [`Error::Invalid`] where ends are not ascending, or reach beyond the data.
pub fn check_packed(
    data: &[u8],
    ends: &[i64],
    missing: &[bool],
    malformed: Malformed,
    leaves_out: bool,
) -> Result<Documents> {
    check_ends(data, ends)?;
    let mut documents = Documents { consumed: data.len(), ..Documents::default() };
    let is_missing = |place: usize| missing.get(place).copied().unwrap_or(false);
    // The whole is UTF-8 and no document ends inside a character: so each is.
    let is_valid = simdutf8::basic::from_utf8(data)
        .is_ok_and(|text| ends.iter().all(|&end| usize::try_from(end).is_ok_and(|end| text.is_char_boundary(end))));
    if is_valid && !missing.contains(&true) {
        documents.ends = ends.to_vec();
        documents.consumed = ends.last().map_or(0, |&end| end as usize);
        return Ok(documents);
    }
    let mut text = Vec::with_capacity(data.len());
    let mut start = 0;
    for (place, &end) in ends.iter().enumerate() {
        // `check_ends` has seen that it is between 0 and the length.
        let end = end as usize;
        let document = &data[start..end];
        let before = text.len();
        let reason = if is_missing(place) {
            Some(Reason::Other("missing".into()))
        } else {
            append_clean(document, malformed, &mut text, &mut documents).err().map(Reason::NotUtf8)
        };
        start = end;
        let Some(reason) = reason else {
            documents.ends.push(end_of(&text));
            continue;
        };
        text.truncate(before);
        documents.n_broken += 1;
        if !leaves_out {
            documents.broken = Some(Broken { line: place as u64, reason });
            break;
        }
    }
    documents.text = Some(text);
    Ok(documents)
}

/// The documents that are to be kept: their text, and where they end in it.
///
/// # Errors
/// [`Error::Invalid`] where ends are not ascending or reach beyond the data, or `keep` has another length.
pub fn select(data: &[u8], ends: &[i64], keep: &[bool]) -> Result<(Vec<u8>, Vec<i64>)> {
    check_ends(data, ends)?;
    if keep.len() != ends.len() {
        return Err(Error::Invalid(format!("{} documents, but {} to choose from", ends.len(), keep.len())));
    }
    let (mut text, mut kept_ends) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (&end, &keeps) in ends.iter().zip(keep) {
        let end = end as usize;
        if keeps {
            text.extend_from_slice(&data[start..end]);
            kept_ends.push(end_of(&text));
        }
        start = end;
    }
    Ok((text, kept_ends))
}

fn check_ends(data: &[u8], ends: &[i64]) -> Result<()> {
    let last = ends.last().map_or(0, |&end| end);
    let is_ascending = ends.first().is_none_or(|&first| first >= 0) && ends.is_sorted();
    if is_ascending && usize::try_from(last).is_ok_and(|last| last <= data.len()) {
        return Ok(());
    }
    Err(Error::Invalid("the ends of documents are not in order".into()))
}
