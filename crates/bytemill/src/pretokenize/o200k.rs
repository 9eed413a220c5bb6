//! o200k's pattern, with U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, W = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and the contraction
//! C = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`:
//! `[^\r\n\p{L}\p{N}]?U*W+C?|[^\r\n\p{L}\p{N}]?U+W*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
//!
//! U and W share modifiers, letters without case and marks (called "both" here), so `U*W+` may have to give back.
//! After the greedy run of U there are two cases. If a lower-case letter follows, W+ takes the run of W from there. If
//! not, U* gives back up to the last "both" character and W+ takes it, alone, since upper-case letters follow it. If
//! there is no such character, the alternative fails, the run is of upper-case letters only, and `U+W*` takes it
//! whole. A mark may also be the optional leading character, since it is not a letter: it is taken as that first, and
//! as a part of U only where the rest then fails; it then serves as W+ by itself.

use super::scan;
use crate::unicode::{Class, class_at};

/// Where the pre-token that starts at `at` ends.
#[inline]
pub fn end(text: &[u8], at: usize) -> usize {
    let (class, n_bytes) = class_at(text, at);
    let body = match class {
        Class::Upper | Class::Lower | Class::OtherLetter => at,
        Class::Number => return scan::numbers(text, at + n_bytes, 2),
        Class::Newline => return white_space(text, at),
        Class::Other | Class::Mark | Class::Space => at + n_bytes,
    };
    match word(text, body) {
        // A leading mark makes a word by itself before the second alternative gets its turn.
        Word::UpperOnly(_) | Word::None if class == Class::Mark => return contraction(text, body),
        Word::WithLower(end) | Word::UpperOnly(end) => return contraction(text, end),
        Word::None => {}
    }
    match class {
        Class::Space => {
            let next_is_other = body < text.len() && class_at(text, body).0.is_other();
            if text[at] == b' ' && next_is_other { others(text, body) } else { white_space(text, at) }
        }
        _ => others(text, body),
    }
}

enum Word {
    /// `U*W+` matches up to here.
    WithLower(usize),
    /// `U*W+` does not match, `U+W*` does, up to here.
    UpperOnly(usize),
    None,
}

/// What stands at `body`, with the leading character already taken.
#[inline]
fn word(text: &[u8], body: usize) -> Word {
    let mut at = body;
    let mut after_both = None;
    while at < text.len() {
        let (class, n_bytes) = class_at(text, at);
        match class {
            Class::Upper => at += n_bytes,
            Class::OtherLetter | Class::Mark => {
                at += n_bytes;
                after_both = Some(at);
            }
            Class::Lower => return Word::WithLower(lower(text, at + n_bytes)),
            _ => break,
        }
    }
    match after_both {
        Some(end) => Word::WithLower(end),
        None if at > body => Word::UpperOnly(at),
        None => Word::None,
    }
}

/// The end of the run of W.
#[inline]
fn lower(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        if text[at].is_ascii_lowercase() {
            at += 1;
            continue;
        }
        let (class, n_bytes) = class_at(text, at);
        if !matches!(class, Class::Lower | Class::OtherLetter | Class::Mark) {
            break;
        }
        at += n_bytes;
    }
    at
}

#[inline]
fn contraction(text: &[u8], at: usize) -> usize {
    if text.get(at) == Some(&b'\'') { at + scan::contraction_any_case(text, at) } else { at }
}

#[inline]
fn others(text: &[u8], at: usize) -> usize {
    scan::newlines(text, scan::others(text, at), b'/')
}

#[inline]
fn white_space(text: &[u8], at: usize) -> usize {
    let run = scan::spaces(text, at);
    run.after_newline.unwrap_or_else(|| run.before_last(text, at))
}
