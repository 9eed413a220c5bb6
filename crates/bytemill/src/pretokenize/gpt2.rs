//! GPT-2's pattern: `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
//!
//! The first character, or the one after a single blank, decides the alternative; every run is taken whole.

use super::scan;
use crate::unicode::{Class, class_at};

/// Where the pre-token that starts at `at` ends.
#[inline]
pub fn end(text: &[u8], at: usize) -> usize {
    if text[at] == b'\'' {
        let n_bytes = scan::contraction(text, at);
        if n_bytes > 0 {
            return at + n_bytes;
        }
    }
    let body = if text[at] == b' ' && at + 1 < text.len() { at + 1 } else { at };
    let (class, n_bytes) = class_at(text, body);
    match class {
        Class::Upper | Class::Lower | Class::OtherLetter => scan::letters(text, body + n_bytes),
        Class::Number => scan::numbers(text, body + n_bytes, usize::MAX),
        Class::Other | Class::Mark => scan::others(text, body + n_bytes),
        Class::Space | Class::Newline => scan::spaces(text, at).before_last(text, at),
    }
}
