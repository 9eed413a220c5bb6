//! Lines and paragraphs of documents, with hashes that are equal for equal ones.

use crate::error::{Error, Result};
use crate::sys::hash::long_hash;

/// What a document is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// Lines, which end with a line feed.
    Line,
    /// Runs of lines with other characters than white space.
    Paragraph,
}

/// The units of consecutive documents, without white space around them. Empty ones are left out.
#[derive(Debug, Default, PartialEq)]
pub struct Units {
    /// A hash of each unit.
    pub hashes: Vec<u64>,
    /// Where each unit starts in the text of all documents.
    pub starts: Vec<u64>,
    /// Where each unit ends.
    pub stops: Vec<u64>,
    /// Number of units up to the end of each document.
    pub ends: Vec<u64>,
}

impl Units {
    /// Finds the units of packed documents; `ends` are the offsets where each ends in `text`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ends do not divide the text.
    pub fn new(text: &str, ends: &[usize], kind: UnitKind) -> Result<Self> {
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != text.len() {
            return Err(Error::Invalid("the ends do not divide the documents".to_owned()));
        }
        let mut units = Self::default();
        let mut start = 0;
        for &end in ends {
            let document = text.get(start..end);
            units.add_document(
                document.ok_or_else(|| Error::Invalid("a document ends inside a character".to_owned()))?,
                start,
                kind,
            );
            units.ends.push(units.hashes.len() as u64);
            start = end;
        }
        Ok(units)
    }

    fn add_document(&mut self, document: &str, offset: usize, kind: UnitKind) {
        let bytes = document.as_bytes();
        // The lines of a paragraph so far.
        let mut paragraph: Option<(usize, usize)> = None;
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
            let line = &document[start..end];
            let begin = start + line.len() - line.trim_start().len();
            let stop = begin + line.trim().len();
            start = end + 1;
            match kind {
                UnitKind::Line if begin < stop => self.push(document, begin, stop, offset),
                UnitKind::Line => {}
                UnitKind::Paragraph if begin < stop => {
                    paragraph = Some((paragraph.map_or(begin, |(begin, _)| begin), stop));
                }
                UnitKind::Paragraph => {
                    if let Some((begin, stop)) = paragraph.take() {
                        self.push(document, begin, stop, offset);
                    }
                }
            }
        }
        if let Some((begin, stop)) = paragraph {
            self.push(document, begin, stop, offset);
        }
    }

    fn push(&mut self, document: &str, start: usize, stop: usize, offset: usize) {
        self.hashes.push(long_hash(&document.as_bytes()[start..stop], 0));
        self.starts.push((offset + start) as u64);
        self.stops.push((offset + stop) as u64);
    }
}

#[cfg(test)]
#[path = "tests/units.rs"]
mod tests;
