//! Text whose characters remember where in the original text they come from.
//!
//! The origins are those of Hugging Face's library. A character that replaces others has the origin of the first one when characters
//! are composed, and of the last one when strings are replaced; a character that is put before a text has that of the first one.

use super::{CharsMap, Step};
use std::ops::Range;
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

/// A character and the byte range of the original text that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlignedChar {
    /// The character.
    pub character: char,
    /// Where it comes from.
    pub origin: Range<usize>,
}

/// A text with the origin of each character.
pub type AlignedText = Vec<AlignedChar>;

/// A text that starts at byte `offset` of the original text, unchanged.
pub fn unchanged(text: &str, offset: usize) -> AlignedText {
    let aligned = |(at, character): (usize, char)| AlignedChar {
        character,
        origin: offset + at..offset + at + character.len_utf8(),
    };
    text.char_indices().map(aligned).collect()
}

/// The characters without their origins.
pub fn plain(text: &[AlignedChar]) -> String {
    text.iter().map(|aligned| aligned.character).collect()
}

/// Puts characters before a text, with the origin of its first one.
pub fn prepend(text: AlignedText, prefix: &str) -> AlignedText {
    let Some(origin) = text.first().map(|first| first.origin.clone()) else { return text };
    prefix.chars().map(|character| AlignedChar { character, origin: origin.clone() }).chain(text).collect()
}

impl Step {
    /// [`Step::apply`] with the origin of every character.
    pub fn apply_aligned(&self, text: AlignedText, is_start: bool) -> AlignedText {
        match self {
            Self::Nfc => transform(&text, plain(&text).nfc()),
            Self::Nfd => transform(&text, plain(&text).nfd()),
            Self::Nfkc => transform(&text, plain(&text).nfkc()),
            Self::Nfkd => transform(&text, plain(&text).nfkd()),
            Self::Lowercase => text
                .into_iter()
                .flat_map(|AlignedChar { character, origin }| {
                    character.to_lowercase().map(move |character| AlignedChar { character, origin: origin.clone() })
                })
                .collect(),
            Self::StripAccents => text.into_iter().filter(|aligned| !is_combining_mark(aligned.character)).collect(),
            Self::Replace { from, to } => replace(text, from, to),
            Self::Prepend(prefix) if is_start => prepend(text, prefix),
            Self::Prepend(_) => text,
            Self::Strip { left, right } => strip(text, *left && is_start, *right, char::is_whitespace),
            Self::TrimSpaces { left } => strip(text, *left && is_start, !*left, |character| character == ' '),
            Self::JoinSpaces => join(text, |character| character == ' '),
            Self::JoinWhiteSpace => join(text, char::is_whitespace),
            Self::CharsMap(rules) => apply_rules(rules, &text),
        }
    }
}

/// Characters with what each of them changes: 1 for one that is inserted, −n for one after which n are left out.
fn transform(text: &[AlignedChar], changed: impl Iterator<Item = (char, isize)>) -> AlignedText {
    let mut at = 0;
    changed
        .map(|(character, change)| {
            let from = if change > 0 { at.max(1) - 1 } else { at };
            let origin = text.get(from).map_or(0..0, |aligned| aligned.origin.clone());
            at += usize::try_from(1 - change).unwrap_or(0);
            AlignedChar { character, origin }
        })
        .collect()
}

fn replace(text: AlignedText, from: &str, to: &str) -> AlignedText {
    let whole = plain(&text);
    let n_from = from.chars().count();
    let mut starts = whole.match_indices(from).map(|(at, _)| at).peekable();
    let (mut replaced, mut at, mut left_out) = (AlignedText::new(), 0, 0_usize);
    for aligned in text {
        if starts.next_if_eq(&at).is_some() {
            left_out = n_from;
        }
        at += aligned.character.len_utf8();
        if left_out == 0 {
            replaced.push(aligned);
            continue;
        }
        left_out -= 1;
        if left_out == 0 {
            let origin = aligned.origin;
            replaced.extend(to.chars().map(|character| AlignedChar { character, origin: origin.clone() }));
        }
    }
    replaced
}

fn strip(mut text: AlignedText, left: bool, right: bool, is_space: impl Fn(char) -> bool) -> AlignedText {
    if right {
        let end = text.iter().rposition(|aligned| !is_space(aligned.character));
        text.truncate(end.map_or(0, |last| last + 1));
    }
    if left {
        let start = text.iter().position(|aligned| !is_space(aligned.character));
        text.drain(..start.unwrap_or(text.len()));
    }
    text
}

fn apply_rules(rules: &CharsMap, text: &[AlignedChar]) -> AlignedText {
    let whole = plain(text);
    let (mut replaced, mut rest, mut aligned) = (AlignedText::new(), &*whole, text);
    while !rest.is_empty() {
        let (n_bytes, replacement) = rules.first(rest);
        let n_characters = rest[..n_bytes].chars().count();
        let origin = aligned[0].origin.start..aligned[n_characters - 1].origin.end;
        replaced.extend(replacement.chars().map(|character| AlignedChar { character, origin: origin.clone() }));
        (rest, aligned) = (&rest[n_bytes..], &aligned[n_characters..]);
    }
    replaced
}

fn join(text: AlignedText, is_space: impl Fn(char) -> bool) -> AlignedText {
    let mut joined = AlignedText::with_capacity(text.len());
    let mut is_inside = false;
    for mut aligned in text {
        let is_extra = std::mem::replace(&mut is_inside, is_space(aligned.character)) && is_inside;
        if is_inside {
            aligned.character = ' ';
        }
        match joined.last_mut() {
            Some(last) if is_extra => *last = aligned,
            _ => joined.push(aligned),
        }
    }
    joined
}
