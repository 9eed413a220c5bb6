//! The places of a text that token boundaries should respect.

use super::words::for_each_word;
use crate::{Error, Result};

/// Start and end of a place, in bytes.
pub type Span = (u32, u32);

/// Places of one kind in the documents of a text.
#[derive(Debug, Default)]
pub struct Spans {
    spans: Vec<Span>,
    /// The end of each document's places in `spans`.
    ends: Vec<usize>,
}

impl Spans {
    /// The places in a document.
    #[must_use]
    pub fn of(&self, document: usize) -> &[Span] {
        let start = document.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.spans[start..self.ends[document]]
    }

    /// The number of places in each document.
    pub fn numbers(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.ends.len()).map(|document| self.of(document).len() as i64)
    }

    fn extend(&mut self, spans: impl Iterator<Item = Span>) -> Result<()> {
        for span in spans {
            self.spans.try_reserve(1).map_err(|_| Error::memory::<Span>(self.spans.len()))?;
            self.spans.push(span);
        }
        self.ends.push(self.spans.len());
        Ok(())
    }
}

/// The places in the documents of a text.
#[derive(Debug, Default)]
pub struct Marks {
    /// The end of each document, in bytes.
    pub ends: Vec<usize>,
    /// Characters (code points) of each document.
    pub n_characters: Vec<i64>,
    /// Words: what UAX #29 puts between word boundaries, if it has a letter or digit.
    pub words: Spans,
    /// Runs of ASCII digits.
    pub numbers: Spans,
    /// White space at the start of a line: two spaces or more, or tabs.
    pub indents: Spans,
}

impl Marks {
    /// Find the places in documents of valid UTF-8, each of which ends at an offset in `ends`.
    ///
    /// # Errors
    ///
    /// `ends` do not divide the text, or it has 4 GiB or more.
    pub fn new(text: &str, ends: &[usize]) -> Result<Self> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::Invalid("a text of 4 GiB or more cannot be measured at once".into()));
        }
        let mut marks = Self { ends: ends.to_vec(), ..Self::default() };
        let mut start = 0;
        for &end in ends {
            let Some(document) = text.get(start..end) else {
                return Err(Error::Invalid("ends must be increasing offsets of characters".into()));
            };
            let at = |from: usize, to: usize| ((start + from) as u32, (start + to) as u32);
            marks.n_characters.push(document.chars().count() as i64);
            let mut words = Vec::new();
            for_each_word(document, |from, to| words.push(at(from, to)));
            marks.words.extend(words.into_iter())?;
            marks.numbers.extend(digit_runs(document.as_bytes()).map(|(from, to)| at(from, to)))?;
            marks.indents.extend(indents(document.as_bytes()).map(|(from, to)| at(from, to)))?;
            start = end;
        }
        if start == text.len() {
            Ok(marks)
        } else {
            Err(Error::Invalid("the last document does not end with the text".into()))
        }
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
