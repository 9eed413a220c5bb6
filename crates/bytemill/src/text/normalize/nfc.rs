//! Normalization to NFC.
//!
//! Uses the same crate as Hugging Face's library, so that both normalize the same characters (Unicode 9; characters
//! added later stay as they are).

use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use std::borrow::Cow;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Bytes that are copied or normalized at a time.
const CHUNK: usize = 1 << 12;

/// Chunks between two cancellation checks.
const N_CHUNKS: usize = 1 << 8;

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
    let (mut rest, mut n_chunks) = (text, 0_usize);
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
        n_chunks += 1;
        if n_chunks.is_multiple_of(N_CHUNKS) {
            interrupt()?;
        }
    }
    Ok(Cow::Owned(normalized))
}

/// Quick check that a text is in NFC and does not combine with whatever precedes it. May return false negatives.
#[must_use]
pub fn is_stable(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(n) = bytes[at..].iter().position(|&byte| byte >= MAYBE) {
        let start = at + n;
        at = start;
        // A stretch of doubtful characters is checked as a whole, for the order of its combining marks.
        while at < bytes.len() && !is_plain(&bytes[at..]) {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
        if at > start && is_nfc_quick(text[start..at].chars()) != IsNormalized::Yes {
            return false;
        }
        if at == start {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    true
}

/// First byte of U+0300. All characters before it are in NFC and no combining marks.
const MAYBE: u8 = 0xCC;

/// Whether a text begins with a character that is known to be in NFC and no combining mark: the frequent ones, not all.
fn is_plain(bytes: &[u8]) -> bool {
    let byte = |k: usize| bytes.get(k).copied().unwrap_or_default();
    match byte(0) {
        // Below U+0300; Cyrillic; U+4000 to U+9FFF, ideographs; U+B000 to U+CFFF, Hangul.
        0..MAYBE | 0xD0 | 0xD1 | 0xE4..=0xE9 | 0xEB | 0xEC => true,
        // General punctuation: dashes, quotes, ellipsis.
        0xE2 => byte(1) == 0x80 && byte(2) >= 0x90,
        // Punctuation of Chinese and Japanese but for tone marks, and kana but for the combining voicing marks.
        0xE3 => match byte(1) {
            0x80 => !(0xAA..=0xAF).contains(&byte(2)),
            0x81 | 0x83 => true,
            0x82 => !matches!(byte(2), 0x99 | 0x9A),
            _ => false,
        },
        _ => false,
    }
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
