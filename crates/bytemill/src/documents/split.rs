//! Documents in plain text, divided by line ends or by a separator.

use super::block::{Broken, Documents, Reason, append_document, cleared, count_lines, end_of, unfinished_bytes};
use crate::error::Result;
use crate::text::utf8::Malformed;
use memchr::memmem::Finder;
use std::ops::Range;

/// What ends a document in plain text.
#[derive(Clone, Debug)]
pub enum Ends {
    /// A line end, `\n` or `\r\n`, which is not part of the document. Empty lines are not documents.
    Line,
    /// A non-empty string, which is part of the document that it ends. Text after the last separator is a document too,
    /// unless it is empty.
    Separator(Box<Finder<'static>>),
}

impl Ends {
    /// Documents that end with the separator `text`.
    pub fn separator(text: &str) -> Self {
        Self::Separator(Box::new(Finder::new(text.as_bytes()).into_owned()))
    }

    /// The next document end at or after `start`: the end of its text, and the start of the next document.
    fn next(&self, block: &[u8], start: usize) -> Option<(usize, usize)> {
        match self {
            Self::Line => {
                let end = start + memchr::memchr(b'\n', &block[start..])?;
                let has_return = end > start && block[end - 1] == b'\r';
                Some((end - usize::from(has_return), end + 1))
            }
            Self::Separator(finder) => {
                let end = start + finder.find(&block[start..])? + finder.needle().len();
                Some((end, end))
            }
        }
    }

    /// Length of the prefix of a block without an end that belongs to the document whatever follows.
    fn certain(&self, block: &[u8]) -> usize {
        let n_bytes = match self {
            Self::Line => block.len() - usize::from(block.ends_with(b"\r")),
            Self::Separator(finder) => (block.len() + 1).saturating_sub(finder.needle().len()),
        };
        n_bytes - unfinished_bytes(&block[..n_bytes])
    }
}

/// Splits blocks of plain text into documents.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// What ends a document.
    pub ends: Ends,
    /// How malformed UTF-8 is handled.
    pub malformed: Malformed,
    /// Skip broken documents; otherwise stop at the first one.
    pub skip_broken: bool,
}

/// The documents of a block, before their bytes are checked.
struct Cuts {
    ranges: Vec<Range<usize>>,
    consumed: usize,
    is_open: bool,
}

impl Splitter {
    /// The documents of a block that starts inside a document if `is_inside`, and is the last block if `is_last`.
    ///
    /// A document cut off by the end of the block is left to the next block, unless it is the only one. Then its
    /// available part is returned as an open document, or, if broken documents are skipped, nothing is consumed, as
    /// only its end tells whether it is broken. Text that differs from the block is written to `buffer`.
    ///
    /// # Errors
    /// [`crate::Error::Memory`].
    pub fn split(&self, block: &[u8], is_inside: bool, is_last: bool, buffer: Vec<u8>) -> Result<Documents> {
        let Cuts { ranges, consumed, is_open } = self.cut(block, is_inside, is_last);
        let region = &block[..consumed];
        let mut documents = Documents { consumed, is_open, n_lines: count_lines(region), ..Documents::default() };
        let valid = simdutf8::basic::from_utf8(region).ok();
        if valid.is_some() && matches!(self.ends, Ends::Separator(_)) {
            documents.ends = ranges.iter().map(|range| range.end as i64).collect();
            return Ok(documents);
        }
        let mut text = cleared(buffer, consumed)?;
        documents.ends.reserve(ranges.len());
        for (index, range) in ranges.into_iter().enumerate() {
            let is_continued = index == 0 && is_inside;
            if range.is_empty() && !is_continued && !is_open {
                continue;
            }
            let start = range.start;
            if let Some(valid) = valid {
                text.push_str(&valid[range]);
            } else if let Err(offset) = append_document(&block[range], self.malformed, &mut text, &mut documents) {
                let offset = start + offset;
                let broken = || Broken { line: count_lines(&block[..offset]), reason: Reason::NotUtf8(offset) };
                if documents.reject(self.skip_broken, broken).is_break() {
                    break;
                }
                continue;
            }
            documents.ends.push(end_of(&text));
        }
        documents.text = Some(text.into_bytes());
        Ok(documents)
    }

    fn cut(&self, block: &[u8], is_inside: bool, is_last: bool) -> Cuts {
        let mut ranges = Vec::new();
        let mut start = 0;
        while let Some((end, next)) = self.ends.next(block, start) {
            ranges.push(start..end);
            start = next;
        }
        if is_last {
            if start < block.len() || (is_inside && ranges.is_empty()) {
                ranges.push(start..block.len());
            }
            return Cuts { ranges, consumed: block.len(), is_open: false };
        }
        let waits_for_end = self.skip_broken && self.malformed == Malformed::Refuse;
        let is_open = ranges.is_empty() && !waits_for_end;
        if is_open {
            start = self.ends.certain(block);
            ranges.push(0..start);
        }
        Cuts { ranges, consumed: start, is_open }
    }
}
