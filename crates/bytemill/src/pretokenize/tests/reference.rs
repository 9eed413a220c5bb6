//! The reference implementation of the rules, one character at a time.
//!
//! It tries the alternatives of an expression in order, as a regex engine does, but without backtracking: every run is taken whole,
//! and the derivations below show what little has to be given back.

use super::super::rules::{Contractions, Digits, Letters, Others, Rules, WhiteSpace, contraction_bytes};
use crate::text::unicode::{CharSet, Class, char_at, class_at};

/// The pre-tokens of a text: of each run that a step isolates, and of what is between these.
pub fn pretokens<'t>(rules: &Rules, text: &'t str) -> Vec<&'t str> {
    let kind = |at: usize| {
        let is_digit = rules.spec.isolates_digits && class_at(text.as_bytes(), at).0 == Class::Number;
        (is_digit, rules.spec.isolates_set && has(rules.sets.isolated.as_ref(), text.as_bytes(), at))
    };
    let (mut all, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let differs = |&(at, _): &(usize, char)| kind(start + at) != kind(start);
        let end = text[start..].char_indices().find(differs).map_or(text.len(), |(at, _)| start + at);
        let run = &text[start..end];
        let mut at = 0;
        while at < run.len() {
            let end = self::end(rules, run.as_bytes(), at);
            all.push(&run[at..end]);
            at = end;
        }
        start = end;
    }
    all
}

/// End of the pre-token that starts at `at`.
fn end(rules: &Rules, text: &[u8], at: usize) -> usize {
    matched(rules, text, at).unwrap_or_else(|| {
        // Characters that nothing matches, up to the next match.
        let mut end = at + char_at(text, at).1;
        while end < text.len() && matched(rules, text, end).is_none() {
            end += char_at(text, end).1;
        }
        end
    })
}

fn matched(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    contraction(rules, text, at)
        .or_else(|| letters(rules, text, at))
        .or_else(|| digits(rules, text, at))
        .or_else(|| others(rules, text, at))
        .or_else(|| white_space(rules, text, at))
}

fn has(set: Option<&CharSet>, text: &[u8], at: usize) -> bool {
    set.is_some_and(|set| set.has(char_at(text, at).0))
}

fn is_stray(rules: &Rules, text: &[u8], at: usize) -> bool {
    rules.spec.has_strays() && has(rules.sets.strays.as_ref(), text, at)
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

fn contraction(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    if matches!(rules.spec.contractions, Contractions::Suffix | Contractions::None) || text[at] != b'\'' {
        return None;
    }
    Some(contraction_bytes(text, at, rules.spec.contractions))
        .filter(|&n_bytes| n_bytes > 0)
        .map(|n_bytes| at + n_bytes)
}

fn letters(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    let is_letter = |class: Class| class.is_letter() || rules.spec.joins_marks && class == Class::Mark;
    let end = match rules.spec.letters {
        Letters::AfterBlank => some(text, after_blank(text, at), is_letter),
        // A mark leads a word of which it is the first letter.
        Letters::AfterAny if rules.spec.joins_marks && class_at(text, at).0 == Class::Mark => some(text, at, is_letter),
        Letters::AfterAny => some(text, after_any(text, at), is_letter),
        Letters::ByCase => word(text, at),
        Letters::AfterPunctuation => {
            let ascii = text[at + 1..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            if text[at].is_ascii_punctuation() && ascii > 0 {
                Some(at + 1 + ascii)
            } else {
                let (class, n_bytes) = class_at(text, at);
                let leads = class == Class::Space || is_stray(rules, text, at);
                some(text, if leads { at + n_bytes } else { at }, is_letter)
            }
        }
    }?;
    let is_suffix = rules.spec.contractions == Contractions::Suffix && text.get(end) == Some(&b'\'');
    Some(if is_suffix { end + contraction_bytes(text, end, rules.spec.contractions) } else { end })
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

fn digits(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    match rules.spec.digits {
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

fn others(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    let start = after_blank(text, at);
    let is_other = |at: usize| match class_at(text, at).0 {
        Class::Other => !is_stray(rules, text, at),
        Class::Mark => !rules.spec.joins_marks,
        _ => false,
    };
    let mut end = start;
    while end < text.len() && is_other(end) {
        end += char_at(text, end).1;
    }
    if end == start {
        return None;
    }
    let tail: &[u8] = match rules.spec.others {
        Others::Alone => b"",
        Others::WithNewlines | Others::Punctuation => b"\r\n",
        Others::WithNewlinesAndSlashes => b"\r\n/",
    };
    Some(end + text[end..].iter().take_while(|byte| tail.contains(byte)).count())
}

/// `\s*[\r\n]` takes a run of white space up to its last line break, as `\s*[\r\n]+` does: `\s*` is greedy and gives back only what
/// follows that break. `\s+(?!\S)` takes a run at the end of the text whole, elsewhere all but its last character.
fn white_space(rules: &Rules, text: &[u8], at: usize) -> Option<usize> {
    let end = some(text, at, Class::is_space)?;
    let after_newline = text[at..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n')).map(|k| at + k + 1);
    match (rules.spec.white_space, after_newline) {
        (WhiteSpace::ToLastNewlineOrEnd, Some(_)) if end == text.len() => return Some(end),
        (WhiteSpace::ToLastNewline | WhiteSpace::ToLastNewlineOrEnd, Some(after_newline)) => {
            return Some(after_newline);
        }
        _ => {}
    }
    let last = (at..end).rfind(|&k| text[k] & 0xC0 != 0x80).unwrap_or(at);
    Some(if end == text.len() || last == at { end } else { last })
}
