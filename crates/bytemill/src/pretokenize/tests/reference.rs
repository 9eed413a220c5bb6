//! The reference implementation of the named patterns, one character at a time.
//!
//! It tries the alternatives of an expression in order, as a regex engine does, but without backtracking: every run is taken whole,
//! and the derivations below show what little has to be given back.

use super::super::contraction::contraction_bytes;
use super::super::rules::{Contractions, Digits, Letters, Others, Rules, WhiteSpace};
use crate::text::unicode::{Class, class_at};

/// End of the pre-token that starts at `at`.
pub fn end<R: Rules>(text: &[u8], at: usize) -> usize {
    contraction::<R>(text, at)
        .or_else(|| letters::<R>(text, at))
        .or_else(|| digits::<R>(text, at))
        .or_else(|| others::<R>(text, at))
        .unwrap_or_else(|| white_space::<R>(text, at))
}

/// End of the run of characters from `at` on whose class `holds` accepts.
#[inline]
fn run(text: &[u8], mut at: usize, mut holds: impl FnMut(Class) -> bool) -> usize {
    while at < text.len() {
        let (class, n_bytes) = class_at(text, at);
        if !holds(class) {
            break;
        }
        at += n_bytes;
    }
    at
}

/// As [`run`], `None` if the run is empty.
#[inline]
fn some(text: &[u8], at: usize, holds: impl FnMut(Class) -> bool) -> Option<usize> {
    Some(run(text, at, holds)).filter(|&end| end > at)
}

/// ` ?`
fn after_blank(text: &[u8], at: usize) -> usize {
    at + usize::from(text[at] == b' ')
}

/// `[^\r\n\p{L}\p{N}]?`
fn after_any(text: &[u8], at: usize) -> usize {
    match class_at(text, at) {
        (Class::Other | Class::Mark | Class::Space, n_bytes) => at + n_bytes,
        _ => at,
    }
}

fn contraction<R: Rules>(text: &[u8], at: usize) -> Option<usize> {
    if matches!(R::SPEC.contractions, Contractions::Suffix | Contractions::None) || text[at] != b'\'' {
        return None;
    }
    Some(contraction_bytes::<R>(text, at)).filter(|&n_bytes| n_bytes > 0).map(|n_bytes| at + n_bytes)
}

fn letters<R: Rules>(text: &[u8], at: usize) -> Option<usize> {
    let end = match R::SPEC.letters {
        Letters::AfterBlank => some(text, after_blank(text, at), Class::is_letter),
        Letters::AfterAny => some(text, after_any(text, at), Class::is_letter),
        Letters::ByCase => word(text, at),
    }?;
    let is_suffix = R::SPEC.contractions == Contractions::Suffix && text.get(end) == Some(&b'\'');
    Some(if is_suffix { end + contraction_bytes::<R>(text, end) } else { end })
}

/// `[^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*`
///
/// U and W share modifiers, letters without case and marks, called "both" here, so `U*W+` may have to give back. After the greedy
/// run of U there are two cases. If a lower-case letter follows, W+ takes the run of W from there. If not, U* gives back up to the
/// last "both" character, and W+ takes it alone, since upper-case letters follow it. If there is no such character, the alternative
/// fails, the run consists of upper-case letters, and `U+W*` takes it whole.
///
/// A mark is not a letter, so it may also be the optional leading character. It is tried as that first, and as a part of U only if
/// `U*W+` then fails; it then serves as W+ by itself.
fn word(text: &[u8], at: usize) -> Option<usize> {
    let start = after_any(text, at);
    let is_both = |class| matches!(class, Class::OtherLetter | Class::Mark);
    let after_upper = run(text, start, |class| class == Class::Upper || is_both(class));
    if let Some(end) = some(text, after_upper, |class| class == Class::Lower || is_both(class)) {
        return Some(end);
    }
    let (mut k, mut after_both) = (start, None);
    while k < after_upper {
        let (class, n_bytes) = class_at(text, k);
        k += n_bytes;
        if is_both(class) {
            after_both = Some(k);
        }
    }
    let leading_mark = Some(start).filter(|_| class_at(text, at).0 == Class::Mark);
    after_both.or(leading_mark).or(Some(after_upper).filter(|&end| end > start))
}

fn digits<R: Rules>(text: &[u8], at: usize) -> Option<usize> {
    match R::SPEC.digits {
        Digits::AfterBlank => some(text, after_blank(text, at), |class| class == Class::Number),
        Digits::Groups(most) => {
            let mut n_digits = 0;
            some(text, at, |class| {
                n_digits += 1;
                class == Class::Number && n_digits <= most
            })
        }
    }
}

fn others<R: Rules>(text: &[u8], at: usize) -> Option<usize> {
    let end = some(text, after_blank(text, at), |class| matches!(class, Class::Other | Class::Mark))?;
    let tail: &[u8] = match R::SPEC.others {
        Others::Alone => b"",
        Others::WithNewlines => b"\r\n",
        Others::WithNewlinesAndSlashes => b"\r\n/",
    };
    Some(end + text[end..].iter().take_while(|byte| tail.contains(byte)).count())
}

/// `\s*[\r\n]` takes a run of white space up to its last line break, as `\s*[\r\n]+` does: `\s*` is greedy and gives back only what
/// follows that break. `\s+(?!\S)` takes a run at the end of the text whole, elsewhere all but its last character.
fn white_space<R: Rules>(text: &[u8], at: usize) -> usize {
    let end = run(text, at, Class::is_space);
    let after_newline = text[at..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n')).map(|k| at + k + 1);
    match (R::SPEC.white_space, after_newline) {
        (WhiteSpace::ToLastNewlineOrEnd, Some(_)) if end == text.len() => return end,
        (WhiteSpace::ToLastNewline | WhiteSpace::ToLastNewlineOrEnd, Some(after_newline)) => return after_newline,
        _ => {}
    }
    let last = (at..end).rfind(|&k| text[k] & 0xC0 != 0x80).unwrap_or(at);
    if end == text.len() || last == at { end } else { last }
}
