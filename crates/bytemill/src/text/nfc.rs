//! Normalization to NFC.
//!
//! Uses the same crate as Hugging Face's library, so that both normalize the same characters (Unicode 9; characters
//! added later stay as they are).

use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use std::borrow::Cow;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Bytes normalized between two cancellation checks.
const CHUNK: usize = 1 << 20;

/// Normalize `text` to NFC.
///
/// # Errors
/// [`Error::Memory`] if the result cannot be allocated, and the errors of `interrupt`.
pub fn normalize<'t>(text: &'t str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    if is_stable(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut normalized = String::new();
    normalized.try_reserve(text.len()).map_err(|_| Error::memory::<u8>(text.len()))?;
    let mut rest = text;
    while !rest.is_empty() {
        // An ASCII character combines with nothing before it.
        let bytes = rest.as_bytes();
        let ascii = bytes.iter().skip(CHUNK).position(u8::is_ascii);
        let (chunk, after) = rest.split_at(ascii.map_or(rest.len(), |at| CHUNK + at));
        if is_stable(chunk) {
            normalized.push_str(chunk);
        } else {
            normalized.extend(chunk.nfc().map(|(character, _)| character));
        }
        rest = after;
        interrupt()?;
    }
    Ok(Cow::Owned(normalized))
}

/// Quick check that a text is in NFC and does not combine with whatever precedes it. May return false negatives.
#[must_use]
pub fn is_stable(text: &str) -> bool {
    // All characters below U+0300 are; their bytes are below 0xCC.
    text.bytes().all(|byte| byte < 0xCC) || is_nfc_quick(text.chars()) == IsNormalized::Yes
}

/// [`is_stable`] for the `n_bytes` of `text` on each side of `at`.
#[must_use]
pub fn is_stable_about(text: &str, at: usize, n_bytes: usize) -> bool {
    let (mut start, mut end) = (at.saturating_sub(n_bytes), text.len().min(at + n_bytes));
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    // A combining mark may be stable but belongs to the character before it.
    is_stable(&text[start..end]) && text[at..].chars().next().is_none_or(is_stable_alone)
}

/// True unless the character is a combining mark.
fn is_stable_alone(character: char) -> bool {
    character.is_ascii() || unicode_normalization_alignments::char::canonical_combining_class(character) == 0
}

#[cfg(test)]
#[path = "tests/nfc.rs"]
mod tests;
