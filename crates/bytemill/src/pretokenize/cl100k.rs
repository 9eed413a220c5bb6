//! cl100k's pattern and Llama 3's, which differ in white space at the end of a text.
//!
//! cl100k: `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
//! Llama 3: `…|\s*[\r\n]+|\s+(?!\S)|\s+` in place of the last four.
//!
//! `\s*[\r\n]` takes a run of white space up to its last line break, as `\s*[\r\n]+` does: `\s*` is greedy and gives
//! back only what follows that break. The alternative before them, `\s++$`, takes a run at the end of the text whole.

use super::scan;
use crate::unicode::{Class, class_at};

/// Where the pre-token that starts at `at` ends. `WHOLE_AT_END`: with the alternative `\s++$`, that is, cl100k.
#[inline]
pub fn end<const WHOLE_AT_END: bool>(text: &[u8], at: usize) -> usize {
    if text[at] == b'\'' {
        let n_bytes = scan::contraction_any_case(text, at);
        if n_bytes > 0 {
            return at + n_bytes;
        }
    }
    let (class, n_bytes) = class_at(text, at);
    match class {
        Class::Upper | Class::Lower | Class::OtherLetter => return scan::letters(text, at + n_bytes),
        Class::Number => return scan::numbers(text, at + n_bytes, 2),
        Class::Newline => return white_space::<WHOLE_AT_END>(text, at),
        Class::Other | Class::Mark | Class::Space => {}
    }
    // One character that is neither letter, number nor line break: it may lead letters, `[^\r\n\p{L}\p{N}]?\p{L}+`.
    let body = at + n_bytes;
    let (next, next_bytes) = if body < text.len() { class_at(text, body) } else { (Class::Newline, 0) };
    if next.is_letter() {
        return scan::letters(text, body + next_bytes);
    }
    let after_others = match (class, next) {
        (Class::Space, Class::Other | Class::Mark) if text[at] == b' ' => scan::others(text, body + next_bytes),
        (Class::Space, _) => return white_space::<WHOLE_AT_END>(text, at),
        _ => scan::others(text, body),
    };
    scan::newlines(text, after_others, b'\n')
}

#[inline]
fn white_space<const WHOLE_AT_END: bool>(text: &[u8], at: usize) -> usize {
    let run = scan::spaces(text, at);
    match run.after_newline {
        Some(_) if WHOLE_AT_END && run.end == text.len() => run.end,
        Some(after_newline) => after_newline,
        None => run.before_last(text, at),
    }
}
