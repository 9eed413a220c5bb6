//! The steps of a normalizer, on plain text.

use super::charsmap::CharsMap;
use super::nfc;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use memchr::memmem;
use std::borrow::Cow;
use std::sync::Arc;
use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

/// One change of a text. The names are those of Hugging Face's normalizers, whose results they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Unicode's normalization forms.
    Nfc,
    /// Canonical decomposition.
    Nfd,
    /// Compatibility decomposition, followed by canonical composition.
    Nfkc,
    /// Compatibility decomposition.
    Nfkd,
    /// Every character in lower case, without regard to its neighbours.
    Lowercase,
    /// No combining marks.
    StripAccents,
    /// Every occurrence of one string replaced by another one.
    Replace {
        /// The string that is searched, from left to right.
        from: String,
        /// What stands in its place.
        to: String,
    },
    /// A string before every text that is not empty.
    Prepend(String),
    /// No white space at the ends.
    Strip {
        /// At the start.
        left: bool,
        /// At the end.
        right: bool,
    },
    /// No spaces at one end; unlike [`Step::Strip`] for the space character alone.
    TrimSpaces {
        /// At the start, else at the end.
        left: bool,
    },
    /// One space in place of several.
    JoinSpaces,
    /// One space in place of all white space in a row.
    JoinWhiteSpace,
    /// SentencePiece's compiled rules.
    CharsMap(Arc<CharsMap>),
}

/// Bytes of text between two cancellation checks.
const CHUNK: usize = 1 << 18;

impl Step {
    /// Applies the step. A text that continues another one has no start: nothing is put before it or taken from there.
    ///
    /// # Errors
    /// [`Error::Memory`] if the result cannot be allocated, and the errors of `interrupt`.
    pub fn apply<'t>(&self, text: &'t str, is_start: bool, interrupt: Interrupt) -> Result<Cow<'t, str>> {
        let collect = |characters: &mut dyn Iterator<Item = char>| collect(text.len(), characters, interrupt);
        Ok(match self {
            Self::Nfc => return nfc::normalize(text, interrupt),
            _ if text.is_empty() => Cow::Borrowed(text),
            Self::Nfd | Self::Nfkc | Self::Nfkd | Self::StripAccents if text.is_ascii() => Cow::Borrowed(text),
            Self::Nfd => Cow::Owned(collect(&mut text.nfd().map(|(character, _)| character))?),
            Self::Nfkc => Cow::Owned(collect(&mut text.nfkc().map(|(character, _)| character))?),
            Self::Nfkd => Cow::Owned(collect(&mut text.nfkd().map(|(character, _)| character))?),
            Self::Lowercase => Cow::Owned(lowercase(text, interrupt)?),
            Self::StripAccents => Cow::Owned(collect(&mut text.chars().filter(|&mark| !is_combining_mark(mark)))?),
            Self::Replace { from, to } => replace(text, from, to, interrupt)?,
            Self::Prepend(prefix) if is_start => Cow::Owned(joined(&[prefix, text])?),
            Self::Prepend(_) => Cow::Borrowed(text),
            Self::Strip { left, right } => {
                let text = if *left && is_start { text.trim_start() } else { text };
                Cow::Borrowed(if *right { text.trim_end() } else { text })
            }
            Self::TrimSpaces { left: true } if is_start => Cow::Borrowed(text.trim_start_matches(' ')),
            Self::TrimSpaces { left: true } => Cow::Borrowed(text),
            Self::TrimSpaces { left: false } => Cow::Borrowed(text.trim_end_matches(' ')),
            Self::JoinSpaces => join_spaces(text, interrupt)?,
            Self::JoinWhiteSpace => join_white_space(text, interrupt)?,
            Self::CharsMap(rules) => apply_rules(rules, text, interrupt)?,
        })
    }

    /// Bytes on each side of an offset that decide whether the step changes the text there.
    pub(super) fn reach(&self) -> usize {
        match self {
            Self::Replace { from, .. } => from.len(),
            Self::JoinSpaces => 2,
            Self::JoinWhiteSpace => 6,
            Self::CharsMap(rules) => rules.kept().first().map_or(32, |longest| longest.len().max(32)),
            _ => 0,
        }
    }

    /// True if the step looks at nothing but the characters it replaces and at spaces.
    pub(super) fn is_about_spaces(&self) -> bool {
        matches!(self, Self::Replace { .. } | Self::Prepend(_)) || self.joins() || self.strips()
    }

    /// True if the step leaves one space of several characters.
    pub(super) fn joins(&self) -> bool {
        matches!(self, Self::JoinSpaces | Self::JoinWhiteSpace)
    }

    /// True if the step takes white space away from the ends.
    pub(super) fn strips(&self) -> bool {
        matches!(self, Self::Strip { .. } | Self::TrimSpaces { .. })
    }
}

fn reserved(n_bytes: usize) -> Result<String> {
    let mut text = String::new();
    text.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(n_bytes))?;
    Ok(text)
}

fn joined(parts: &[&str]) -> Result<String> {
    let mut text = reserved(parts.iter().map(|part| part.len()).sum())?;
    parts.iter().for_each(|part| text.push_str(part));
    Ok(text)
}

fn collect(n_bytes: usize, characters: &mut dyn Iterator<Item = char>, interrupt: Interrupt) -> Result<String> {
    let mut text = reserved(n_bytes)?;
    let mut n_checked = CHUNK;
    for character in characters {
        text.push(character);
        if text.len() >= n_checked {
            n_checked += CHUNK;
            interrupt()?;
        }
    }
    Ok(text)
}

fn replace<'t>(text: &'t str, from: &str, to: &str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    let finder = memmem::Finder::new(from);
    let mut found = finder.find_iter(text.as_bytes()).peekable();
    if found.peek().is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let mut replaced = reserved(text.len())?;
    let (mut at, mut n_checked) = (0, CHUNK);
    for start in found {
        replaced.push_str(&text[at..start]);
        replaced.push_str(to);
        at = start + from.len();
        if at >= n_checked {
            n_checked = at + CHUNK;
            interrupt()?;
        }
    }
    replaced.push_str(&text[at..]);
    Ok(Cow::Owned(replaced))
}

fn apply_rules<'t>(rules: &CharsMap, text: &'t str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    let mut replaced = String::new();
    let (mut start, mut at, mut n_checked) = (0, 0, CHUNK);
    while at < text.len() {
        at += rules.n_staying(&text.as_bytes()[at..], CHUNK);
        let rest = &text[at..];
        let (n_bytes, replacement) = rules.first(rest);
        if replacement != &rest[..n_bytes] {
            if start == 0 {
                replaced = reserved(text.len())?;
            }
            replaced.push_str(&text[start..at]);
            replaced.push_str(replacement);
            start = at + n_bytes;
        }
        at += n_bytes;
        if at >= n_checked {
            n_checked = at + CHUNK;
            interrupt()?;
        }
    }
    if start == 0 {
        return Ok(Cow::Borrowed(text));
    }
    replaced.push_str(&text[start..]);
    Ok(Cow::Owned(replaced))
}

fn join_spaces<'t>(text: &'t str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    if memmem::find(text.as_bytes(), b"  ").is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let mut last = '\0';
    let mut kept = text.chars().filter(|&character| {
        let is_extra = character == ' ' && last == ' ';
        last = character;
        !is_extra
    });
    collect(text.len(), &mut kept, interrupt).map(Cow::Owned)
}

fn join_white_space<'t>(text: &'t str, interrupt: Interrupt) -> Result<Cow<'t, str>> {
    let mut joined = String::new();
    let (mut at, mut n_copied, mut n_checked) = (0, 0, CHUNK);
    while at < text.len() {
        if matches!(text.as_bytes()[at], b'!'..=0x7F) {
            at += 1;
            continue;
        }
        let rest = &text[at..];
        let n_spaces = rest.find(|character: char| !character.is_whitespace()).unwrap_or(rest.len());
        if n_spaces > 0 && &rest[..n_spaces] != " " {
            if n_copied == 0 {
                joined = reserved(text.len())?;
            }
            joined.push_str(&text[n_copied..at]);
            joined.push(' ');
            n_copied = at + n_spaces;
        }
        at += if n_spaces > 0 { n_spaces } else { rest.chars().next().map_or(1, char::len_utf8) };
        if at >= n_checked {
            n_checked = at + CHUNK;
            interrupt()?;
        }
    }
    if n_copied == 0 {
        return Ok(Cow::Borrowed(text));
    }
    joined.push_str(&text[n_copied..]);
    Ok(Cow::Owned(joined))
}

fn lowercase(text: &str, interrupt: Interrupt) -> Result<String> {
    let mut lower = reserved(text.len())?;
    let (mut rest, mut n_checked) = (text, CHUNK);
    while !rest.is_empty() {
        let (ascii, others) = rest.split_at(rest.bytes().take(CHUNK).take_while(u8::is_ascii).count());
        let start = lower.len();
        lower.push_str(ascii);
        lower[start..].make_ascii_lowercase();
        let n_others = others.find(|character: char| character.is_ascii()).unwrap_or(others.len());
        lower.extend(others[..n_others].chars().flat_map(char::to_lowercase));
        rest = &others[n_others..];
        if lower.len() >= n_checked {
            n_checked = lower.len() + CHUNK;
            interrupt()?;
        }
    }
    Ok(lower)
}
