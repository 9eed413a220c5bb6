//! A text as hashes of its words.
//!
//! The text is normalized to NFC. A *word* starts with a letter or number and continues with letters, numbers and combining
//! marks. A letter of a script without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) is a word by itself,
//! with its marks. Upper-case and title-case letters are lower-cased, each by itself. Everything else (punctuation, white space,
//! symbols) only separates words.

use crate::error::Result;
use crate::sys::hash::fold;
use crate::sys::interrupt::Interrupt;
use crate::text::normalize::nfc;
use crate::text::unicode::{Class, char_at, class_of};

/// Calls `each` with the hash of every word of `text`, in order.
///
/// # Errors
/// [`crate::Error::Memory`] if a text that is not in NFC cannot be normalized, and the errors of `interrupt`.
pub fn for_each_word(text: &str, interrupt: Interrupt, each: impl FnMut(u64)) -> Result<()> {
    if text.is_ascii() {
        hash_words(text.as_bytes(), each);
    } else {
        hash_words(nfc::normalize(text, interrupt)?.as_bytes(), each);
    }
    Ok(())
}

fn hash_words(text: &[u8], mut each: impl FnMut(u64)) {
    let mut at = 0;
    while let Some(start) = next_start(text, at) {
        let mut hash = WordHash::new();
        at = match char_at(text, start) {
            (code_point, n_bytes) if is_unspaced(code_point) => {
                hash.push_slice(&text[start..start + n_bytes]);
                push_marks(text, start + n_bytes, &mut hash)
            }
            _ => push_word(text, start, &mut hash),
        };
        each(hash.finish());
    }
}

/// The offset of the first letter or number from `at` on.
#[inline]
fn next_start(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(&byte) = text.get(at) {
        if byte < 0x80 {
            if byte.is_ascii_alphanumeric() {
                return Some(at);
            }
            at += 1;
            continue;
        }
        let (code_point, n_bytes) = char_at(text, at);
        let class = class_of(code_point);
        if class.is_letter() || class == Class::Number {
            return Some(at);
        }
        at += n_bytes;
    }
    None
}

/// Hashes the word that starts at `at`, and returns its end.
#[inline]
fn push_word(text: &[u8], mut at: usize, hash: &mut WordHash) -> usize {
    loop {
        let (lower, n_bytes) = ascii_word(load(text, at));
        hash.push(lower, n_bytes);
        at += n_bytes;
        if n_bytes == 8 {
            continue;
        }
        if text.get(at).is_none_or(u8::is_ascii) {
            return at;
        }
        let (code_point, n_bytes) = char_at(text, at);
        match class_of(code_point) {
            Class::Upper => push_lower(code_point, hash),
            Class::OtherLetter if is_unspaced(code_point) => return at,
            Class::Lower | Class::OtherLetter | Class::Mark | Class::Number => {
                hash.push_slice(&text[at..at + n_bytes]);
            }
            Class::Other | Class::Space | Class::Newline => return at,
        }
        at += n_bytes;
    }
}

/// Hashes the combining marks at `at`, and returns their end.
fn push_marks(text: &[u8], mut at: usize, hash: &mut WordHash) -> usize {
    while at < text.len() {
        let (code_point, n_bytes) = char_at(text, at);
        if class_of(code_point) != Class::Mark {
            break;
        }
        hash.push_slice(&text[at..at + n_bytes]);
        at += n_bytes;
    }
    at
}

fn push_lower(code_point: u32, hash: &mut WordHash) {
    for character in char::from_u32(code_point).into_iter().flat_map(char::to_lowercase) {
        hash.push_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// A letter of a script that puts no spaces between words.
#[inline]
fn is_unspaced(code_point: u32) -> bool {
    code_point >= 0x0E00
        && matches!(
            code_point,
            0x0E00..=0x0EFF     // Thai, Lao
            | 0x1000..=0x109F   // Burmese
            | 0x1780..=0x17FF   // Khmer
            | 0x2E80..=0x312F   // radicals, kana, bopomofo
            | 0x3190..=0x9FFF   // ideographs
            | 0xF900..=0xFAFF
            | 0x2_0000..=0x3_FFFF
        )
        && class_of(code_point) == Class::OtherLetter
}

/// Eight bytes from `at` on, zeros after the end.
#[inline]
fn load(text: &[u8], at: usize) -> u64 {
    let rest = &text[at..];
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    let mut eight = [0; 8];
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(eight)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;

/// The ASCII letters and digits that eight bytes begin with, lower-cased, and their number.
#[inline]
fn ascii_word(bytes: u64) -> (u64, usize) {
    // Adding 0x80 - c to bytes below 0x80 sets the highest bit of those from c on, without carries into the next byte.
    let from = |bytes: u64, c: u8| bytes + (0x80 - u64::from(c)) * ONES;
    let low = bytes & !HIGH;
    let folded = low | (0x20 * ONES);
    let letters = from(folded, b'a') & !from(folded, b'z' + 1);
    let digits = from(low, b'0') & !from(low, b'9' + 1);
    let letters = letters & !bytes & HIGH;
    let others = (letters | digits & !bytes & HIGH) ^ HIGH;
    let n_bytes = others.trailing_zeros() as usize / 8;
    let within = if n_bytes == 8 { u64::MAX } else { (1 << (8 * n_bytes)) - 1 };
    ((bytes | letters >> 2) & within, n_bytes)
}

/// The hash of a word: its bytes by eights, then the rest with its length.
struct WordHash {
    hash: u64,
    rest: u64,
    n_rest: usize,
}

impl WordHash {
    #[inline]
    fn new() -> Self {
        Self { hash: 0x9E37_79B9_7F4A_7C15, rest: 0, n_rest: 0 }
    }

    /// Appends the lowest `n_bytes` of `bytes`; the others must be zero.
    #[inline]
    fn push(&mut self, bytes: u64, n_bytes: usize) {
        self.rest |= bytes << (8 * self.n_rest);
        let n = self.n_rest + n_bytes;
        if n < 8 {
            self.n_rest = n;
            return;
        }
        self.hash = fold(self.hash ^ self.rest, 0xA076_1D64_78BD_642F);
        // What did not fit; a shift by 64 leaves nothing.
        self.rest = bytes.checked_shr(8 * (8 - self.n_rest as u32)).unwrap_or(0);
        self.n_rest = n - 8;
    }

    fn push_slice(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.push(byte.into(), 1);
        }
    }

    #[inline]
    fn finish(self) -> u64 {
        fold(self.hash ^ self.rest ^ (self.n_rest as u64) << 56, 0xE703_7ED1_A0B4_28DB)
    }
}

#[cfg(test)]
#[path = "tests/words.rs"]
mod tests;
