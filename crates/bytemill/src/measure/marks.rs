//! The spans of a text that token boundaries should respect.

use super::bits::Bits;
use super::words::for_each_word;
use crate::{Error, Result};

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
