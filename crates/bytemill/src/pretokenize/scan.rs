//! Runs of characters of a class: the loops that all matchers share.

use crate::unicode::{Class, class_at};

/// First offset at or after `at` whose character is not a letter.
#[inline]
pub fn letters(text: &[u8], mut at: usize) -> usize {
    loop {
        while at < text.len() && text[at].is_ascii_alphabetic() {
            at += 1;
        }
        if at >= text.len() || text[at] < 0x80 {
            return at;
        }
        let (class, n_bytes) = class_at(text, at);
        if !class.is_letter() {
            return at;
        }
        at += n_bytes;
    }
}

/// First offset at or after `at` whose character is not a number, at most `limit` characters on.
#[inline]
pub fn numbers(text: &[u8], mut at: usize, limit: usize) -> usize {
    for _ in 0..limit {
        if at >= text.len() {
            break;
        }
        let (class, n_bytes) = class_at(text, at);
        if class != Class::Number {
            break;
        }
        at += n_bytes;
    }
    at
}

/// First offset at or after `at` whose character is white space, a letter or a number.
#[inline]
pub fn others(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        let (class, n_bytes) = class_at(text, at);
        if !class.is_other() {
            break;
        }
        at += n_bytes;
    }
    at
}

/// First offset at or after `at` that holds neither a carriage return nor a line feed (nor `extra`).
#[inline]
pub fn newlines(text: &[u8], mut at: usize, extra: u8) -> usize {
    while at < text.len() && (matches!(text[at], b'\r' | b'\n') || text[at] == extra) {
        at += 1;
    }
    at
}

/// A run of white space and what its alternatives look at.
pub struct Spaces {
    /// After the last character of the run.
    pub end: usize,
    /// Where the last character of the run starts.
    pub last: usize,
    /// After the last carriage return or line feed of the run, if it has one.
    pub after_newline: Option<usize>,
}

/// The run of white space at `at`, which holds at least one such character.
#[inline]
pub fn spaces(text: &[u8], at: usize) -> Spaces {
    let mut run = Spaces { end: at, last: at, after_newline: None };
    while run.end < text.len() {
        let (class, n_bytes) = class_at(text, run.end);
        if !class.is_space() {
            break;
        }
        run.last = run.end;
        run.end += n_bytes;
        if class == Class::Newline {
            run.after_newline = Some(run.end);
        }
    }
    run
}

impl Spaces {
    /// `\s+(?!\S)|\s+` at `at`: the whole run at the end of the text; else all but its last character, which the
    /// look-ahead gives back, unless it is the only one.
    #[inline]
    pub fn before_last(&self, text: &[u8], at: usize) -> usize {
        if self.end == text.len() || self.last == at { self.end } else { self.last }
    }
}

/// Number of bytes of `'(?:[sdmt]|ll|ve|re)` at `at`, 0 where it does not match. `at` holds an apostrophe.
#[inline]
pub fn contraction(text: &[u8], at: usize) -> usize {
    match text.get(at + 1) {
        Some(b's' | b'd' | b'm' | b't') => 2,
        Some(b'l') if text.get(at + 2) == Some(&b'l') => 3,
        Some(b'v' | b'r') if text.get(at + 2) == Some(&b'e') => 3,
        _ => 0,
    }
}

/// Number of bytes of `'(?i:[sdmt]|ll|ve|re)` at `at`, 0 where it does not match. `at` holds an apostrophe.
///
/// Of the characters in question only `s` has a case variant outside ASCII: `ſ` (U+017F, two bytes).
#[inline]
pub fn contraction_any_case(text: &[u8], at: usize) -> usize {
    let lower = |k: usize| text.get(at + k).map_or(0, u8::to_ascii_lowercase);
    match lower(1) {
        b's' | b'd' | b'm' | b't' => 2,
        b'l' if lower(2) == b'l' => 3,
        b'v' | b'r' if lower(2) == b'e' => 3,
        0xC5 if text.get(at + 2) == Some(&0xBF) => 3,
        _ => 0,
    }
}
