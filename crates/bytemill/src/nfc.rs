//! Normalization to NFC, as Hugging Face's library does it: with the same crate, so that both know the same characters
//! (Unicode 9; later ones stay as they are).

use crate::error::Result;
use crate::pulse::Pulse;
use std::borrow::Cow;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Bytes that are normalized between two questions to the caller whether to go on.
const CHUNK: usize = 1 << 20;

/// The text in NFC.
///
/// # Errors
/// What `pulse` gives.
pub fn normalize<'t>(text: &'t str, pulse: Pulse) -> Result<Cow<'t, str>> {
    if is_stable(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut normalized = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        // Nothing before an ASCII character combines with it.
        let bytes = rest.as_bytes();
        let ascii = bytes.iter().skip(CHUNK).position(u8::is_ascii);
        let (chunk, after) = rest.split_at(ascii.map_or(rest.len(), |at| CHUNK + at));
        if is_stable(chunk) {
            normalized.push_str(chunk);
        } else {
            normalized.extend(chunk.nfc().map(|(character, _)| character));
        }
        rest = after;
        pulse()?;
    }
    Ok(Cow::Owned(normalized))
}

/// True where it is quickly seen that the text is in NFC, and that nothing in it combines with what may stand before it.
#[must_use]
pub fn is_stable(text: &str) -> bool {
    // Below U+0300 all characters are: their bytes are below 0xCC.
    text.bytes().all(|byte| byte < 0xCC) || is_nfc_quick(text.chars()) == IsNormalized::Yes
}

/// True where the part of `text` about `at`, `n_bytes` to each side, is stable.
#[must_use]
pub fn is_stable_about(text: &str, at: usize, n_bytes: usize) -> bool {
    let (mut start, mut end) = (at.saturating_sub(n_bytes), text.len().min(at + n_bytes));
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    // A mark that is where it should be is stable, but belongs to what stands before it.
    is_stable(&text[start..end]) && text[at..].chars().next().is_none_or(is_stable_alone)
}

/// True where the character starts something of its own.
fn is_stable_alone(character: char) -> bool {
    character.is_ascii() || unicode_normalization_alignments::char::canonical_combining_class(character) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::no_pulse;

    #[test]
    fn a_text_is_normalized_in_chunks_as_in_one_piece() {
        let text = "e\u{301} >\u{338} \u{212B}日本 \u{1100}\u{1161}\u{11A8} a\u{301}\u{323}".repeat(90_000);
        assert!(text.len() > 2 * CHUNK);
        let whole: String = text.nfc().map(|(character, _)| character).collect();
        assert_eq!(normalize(&text, &no_pulse).unwrap(), whole);
        assert_eq!(normalize(&whole, &no_pulse).unwrap(), whole);
        assert!(matches!(normalize("naïve日本", &no_pulse).unwrap(), Cow::Borrowed(_)));
    }
}
