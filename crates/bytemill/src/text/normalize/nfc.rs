//! Normalization to NFC.
//!
//! Uses the same crate as Hugging Face's library, so that both normalize the same characters (Unicode 9; characters
//! added later stay as they are).

use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::text::unicode::{CharSet, char_at};
use once_cell::race::OnceBox;
use std::borrow::Cow;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Bytes that are copied or normalized at a time.
const CHUNK: usize = 1 << 8;

/// Chunks between two cancellation checks.
const N_CHUNKS: usize = 1 << 12;

/// Normalize `text` to NFC.
///
/// # Errors
/// [`Error::Memory`] if the result cannot be allocated, and the errors of `interrupt`.
pub fn normalize<'t>(text: &'t str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    let mut normalized: Option<String> = None;
    let (mut rest, mut n_chunks) = (text, 0_usize);
    while !rest.is_empty() {
        // An ASCII character combines with nothing before it.
        let bytes = rest.as_bytes();
        let ascii = bytes.iter().skip(CHUNK).position(u8::is_ascii);
        let (chunk, after) = rest.split_at(ascii.map_or(rest.len(), |at| CHUNK + at));
        match (&mut normalized, is_stable(chunk)) {
            (None, true) => {}
            (Some(normalized), true) => normalized.push_str(chunk),
            (None, false) => {
                let mut begun = String::new();
                begun.try_reserve(text.len()).map_err(|_| Error::memory::<u8>(text.len()))?;
                begun.push_str(&text[..text.len() - rest.len()]);
                begun.extend(chunk.nfc().map(|(character, _)| character));
                normalized = Some(begun);
            }
            (Some(normalized), false) => normalized.extend(chunk.nfc().map(|(character, _)| character)),
        }
        rest = after;
        n_chunks += 1;
        if n_chunks.is_multiple_of(N_CHUNKS) {
            interrupt()?;
        }
    }
    Ok(normalized.map_or(Cow::Borrowed(text), Cow::Owned))
}

/// Quick check that a text is in NFC and does not combine with whatever precedes it. May return false negatives.
pub fn is_stable(text: &str) -> bool {
    let bytes = text.as_bytes();
    let characters = Characters::get();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] < MAYBE {
            at = next_from(bytes, at + 1);
            continue;
        }
        let (first, n_bytes) = char_at(bytes, at);
        if characters.plain.has(first) {
            at += n_bytes;
            continue;
        }
        // A stretch of doubtful characters is checked as a whole, for the order of its combining marks.
        let start = at;
        at += n_bytes;
        while at < bytes.len() {
            let (next, n_bytes) = char_at(bytes, at);
            if characters.plain.has(next) {
                break;
            }
            at += n_bytes;
        }
        let is_one = at == start + n_bytes;
        if !(is_one && characters.normalized.has(first)) && is_nfc_quick(text[start..at].chars()) != IsNormalized::Yes {
            return false;
        }
    }
    true
}

/// First byte of U+0300. All characters before it are in NFC and no combining marks.
const MAYBE: u8 = 0xCC;

/// The offset of a byte from `at` on that may begin a character from U+0300 on, or the end.
#[inline]
fn next_from(bytes: &[u8], mut at: usize) -> usize {
    // Compiled to vector instructions.
    while let Some(window) = bytes[at..].first_chunk::<32>() {
        if window.iter().fold(0, |most, &byte| byte.max(most)) >= MAYBE {
            break;
        }
        at += window.len();
    }
    bytes[at..].iter().position(|&byte| byte >= MAYBE).map_or(bytes.len(), |n| at + n)
}

/// What is known about characters.
struct Characters {
    /// In NFC, alone and after any other character that is.
    normalized: CharSet,
    /// The same, and no combining mark.
    plain: CharSet,
}

impl Characters {
    fn get() -> &'static Self {
        static CHARACTERS: OnceBox<Characters> = OnceBox::new();
        CHARACTERS.get_or_init(|| {
            let characters = || (0..0x1_0000).filter_map(char::from_u32);
            let is_normalized = |character: &char| is_nfc_quick([*character].into_iter()) == IsNormalized::Yes;
            let one = |character| u32::from(character)..=u32::from(character);
            let normalized = characters().filter(is_normalized).map(one);
            let plain = characters().filter(is_normalized).filter(|&character| is_stable_alone(character)).map(one);
            // Beyond the first plane: emoji, and ideographs without the compatibility forms.
            let beyond = 0x1_F000..=0x2_F7FF;
            Box::new(Self { normalized: CharSet::new(normalized), plain: CharSet::new(plain.chain([beyond])) })
        })
    }
}

/// [`is_stable`] for the `n_bytes` of `text` on each side of `at`.
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
    character.is_ascii() || canonical_combining_class(character) == 0
}

#[cfg(test)]
#[path = "tests/nfc.rs"]
mod tests;
