//! The spans of a text that token boundaries should respect.

use super::bits::Bits;
use crate::{Error, Result};
use unicode_segmentation::UnicodeSegmentation;

/// The spans in the documents of a text. A span has a run of bits: the offsets at which a boundary would cut it.
#[derive(Debug, Default)]
pub struct Marks {
    /// The end of each document, in bytes.
    pub ends: Vec<usize>,
    /// Characters (code points), by document.
    pub n_characters: Vec<i64>,
    /// The bytes of characters after the first one.
    pub characters: Bits,
    /// Words: what UAX #29 puts between word boundaries, if it has a letter or digit.
    pub n_words: Vec<i64>,
    /// The insides of words.
    pub words: Bits,
    /// Runs of one to three ASCII digits.
    pub n_short_numbers: Vec<i64>,
    /// Their insides.
    pub short_numbers: Bits,
    /// Longer runs of digits.
    pub n_long_numbers: Vec<i64>,
    /// Their insides.
    pub long_numbers: Bits,
    /// The offsets in them that are a multiple of three digits before their end.
    pub groups_of_three: Bits,
    /// White space at the start of a line: two spaces or more, or tabs.
    pub n_indents: Vec<i64>,
    /// Their insides, without the last space, which may belong to what follows.
    pub indents: Bits,
}

impl Marks {
    /// Find the spans in documents of valid UTF-8, each of which ends at an offset in `ends`.
    ///
    /// # Errors
    ///
    /// `ends` do not divide the text, or memory runs out.
    pub fn new(text: &str, ends: &[usize]) -> Result<Self> {
        let bits = || Bits::new(text.len());
        let mut marks = Self {
            ends: ends.to_vec(),
            characters: Bits::of(text.as_bytes(), |byte| byte & 0xC0 == 0x80)?,
            words: bits()?,
            short_numbers: bits()?,
            long_numbers: bits()?,
            groups_of_three: bits()?,
            indents: bits()?,
            ..Self::default()
        };
        let mut start = 0;
        for &end in ends {
            let Some(document) = text.get(start..end) else {
                return Err(Error::Invalid("ends must be increasing offsets of characters".into()));
            };
            marks.add(document, start);
            start = end;
        }
        if start == text.len() {
            Ok(marks)
        } else {
            Err(Error::Invalid("the last document does not end with the text".into()))
        }
    }

    fn add(&mut self, document: &str, start: usize) {
        let bytes = document.as_bytes();
        self.n_characters.push(bytes.len() as i64 - self.characters.n_within(start..start + bytes.len()));
        let mut n_words = 0;
        for_each_word(document, |from, to| {
            n_words += 1;
            self.words.set_all(start + from + 1..start + to);
        });
        self.n_words.push(n_words);
        let (mut n_short, mut n_long) = (0, 0);
        for (from, to) in digit_runs(bytes) {
            let inside = start + from + 1..start + to;
            if to - from <= 3 {
                n_short += 1;
                self.short_numbers.set_all(inside);
            } else {
                n_long += 1;
                inside.clone().rev().skip(2).step_by(3).for_each(|at| self.groups_of_three.set(at));
                self.long_numbers.set_all(inside);
            }
        }
        self.n_short_numbers.push(n_short);
        self.n_long_numbers.push(n_long);
        let mut n_indents = 0;
        for (from, to) in indents(bytes) {
            n_indents += 1;
            self.indents.set_all(start + from + 1..start + to - 1);
        }
        self.n_indents.push(n_indents);
    }
}

fn digit_runs(document: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + document[at..].iter().position(u8::is_ascii_digit)?;
        let length = document[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at = from + length;
        Some((from, at))
    })
}

fn indents(document: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', document).map(|at| at + 1));
    starts.filter_map(|from| {
        let line = &document[from..];
        let length = line.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
        let is_indented = length > 1 || line.first() == Some(&b'\t');
        let is_blank = line.get(length).is_none_or(|&byte| byte == b'\n' || byte == b'\r');
        (is_indented && !is_blank).then_some((from, from + length))
    })
}

// Words: what UAX #29 puts between word boundaries, if it has a letter or digit.
//
// Spaces and line feeds separate words whatever stands around them, unless a mark follows that combines with them. So a text is
// cut there into chunks. Those of ASCII follow a few rules; the others are left to the crate unicode-segmentation.

/// Calls `found` with the start and end of each word.
pub(super) fn for_each_word(text: &str, mut found: impl FnMut(usize, usize)) {
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let (end, is_ascii) = chunk_end(bytes, start);
        let chunk = &text[start..end];
        if is_ascii {
            ascii_words(chunk.as_bytes(), |from, to| found(start + from, start + to));
        } else {
            chunk.unicode_word_indices().for_each(|(from, word)| found(start + from, start + from + word.len()));
        }
        start = end + 1;
    }
}

/// The end of the chunk at `start`, and whether it is ASCII.
fn chunk_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let mut all = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        if (byte == b' ' || byte == b'\n') && bytes.get(at + 1).is_some_and(u8::is_ascii) {
            return (at, all < 0x80);
        }
        all |= byte;
    }
    (bytes.len(), all < 0x80)
}

/// Words of ASCII without spaces: letters, digits and underscores (rules WB5, WB8 to WB10, WB13), with `:`, `.` or `'` between letters
/// (WB6, WB7), and `,`, `;`, `.` or `'` between digits (WB11, WB12).
fn ascii_words(chunk: &[u8], mut found: impl FnMut(usize, usize)) {
    let class = |at: usize| chunk.get(at).map_or(Class::Other, |&byte| CLASSES[byte as usize]);
    let mut at = 0;
    while at < chunk.len() {
        let start = at;
        let mut has_letter_or_digit = false;
        loop {
            match class(at) {
                Class::Other if at > start => {
                    let (before, after) = (class(at - 1), class(at + 1));
                    let joins = match chunk.get(at) {
                        Some(b'.' | b'\'') => before == after && before != Class::Underscore,
                        Some(b':') => before == Class::Letter && after == Class::Letter,
                        Some(b',' | b';') => before == Class::Digit && after == Class::Digit,
                        _ => false,
                    };
                    if !joins || after == Class::Other {
                        break;
                    }
                }
                Class::Other => break,
                Class::Underscore => {}
                Class::Letter | Class::Digit => has_letter_or_digit = true,
            }
            at += 1;
        }
        if has_letter_or_digit {
            found(start, at);
        }
        at = at.max(start + 1);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Underscore,
    Other,
}

/// The class of each byte.
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = Class::of(byte as u8);
        byte += 1;
    }
    classes
};

impl Class {
    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b'_' => Self::Underscore,
            _ => Self::Other,
        }
    }
}
