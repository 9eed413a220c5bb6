//! Documents in plain text: lines, or what ends with a separator.

use super::clean::{append_clean, count_lines, end_of, unfinished_bytes};
use super::{Broken, Documents, Malformed, Reason};
use memchr::memmem::Finder;
use std::ops::Range;

/// What ends documents in plain text.
#[derive(Clone, Debug)]
pub enum Ends {
    /// A line end, `\n` or `\r\n`, which is no part of the document. Empty lines are no documents.
    Line,
    /// A text that belongs to the document which it ends; not empty. What follows the last one is a document too, unless
    /// it is empty.
    Separator(Box<Finder<'static>>),
}

impl Ends {
    /// The end that this separator marks.
    #[must_use]
    pub fn separator(text: &str) -> Self {
        Self::Separator(Box::new(Finder::new(text.as_bytes()).into_owned()))
    }

    /// The next end from `start` on: where the document's text ends, and where the next document begins.
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

    /// How much of a block without an end is certainly the document's.
    fn certain(&self, block: &[u8]) -> usize {
        let n_bytes = match self {
            Self::Line => block.len() - usize::from(block.ends_with(b"\r")),
            Self::Separator(finder) => (block.len() + 1).saturating_sub(finder.needle().len()),
        };
        n_bytes - unfinished_bytes(&block[..n_bytes])
    }
}

/// How a block is cut into documents.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// What ends documents.
    pub ends: Ends,
    /// What is done about bytes that are not UTF-8.
    pub malformed: Malformed,
    /// Whether broken documents are left out; otherwise the first one ends the work.
    pub leaves_out: bool,
}

impl Splitter {
    /// The documents of a block, which begins inside a document where `is_inside`, and is the last one where `is_last`.
    ///
    /// A document that the block cuts off is left to the next block, unless it is the only one: then the part that is
    /// here comes as an open document, or nothing is consumed where broken documents are to be left out, since that
    /// is known only at their end.
    #[must_use]
    pub fn split(&self, block: &[u8], is_inside: bool, is_last: bool) -> Documents {
        let mut cuts: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        while let Some((end, next)) = self.ends.next(block, start) {
            cuts.push(start..end);
            start = next;
        }
        let goes_on = is_inside && cuts.is_empty();
        let mut is_open = false;
        if is_last {
            if start < block.len() || goes_on {
                cuts.push(start..block.len());
            }
            start = block.len();
        } else if cuts.is_empty() && !(self.leaves_out && self.malformed == Malformed::Refuse) {
            start = self.ends.certain(block);
            cuts.push(0..start);
            is_open = true;
        }
        let mut documents = Documents { consumed: start, is_open, ..Documents::default() };
        documents.n_lines = count_lines(&block[..start]);
        let is_valid = simdutf8::basic::from_utf8(&block[..start]).is_ok();
        if matches!(self.ends, Ends::Separator(_)) && is_valid {
            documents.ends = cuts.iter().map(|cut| cut.end as i64).collect();
            return documents;
        }
        let mut text = Vec::with_capacity(start);
        documents.ends.reserve(cuts.len());
        for (place, cut) in cuts.into_iter().enumerate() {
            let is_continued = place == 0 && is_inside;
            if cut.is_empty() && !is_continued && !is_open {
                continue;
            }
            if is_valid {
                text.extend_from_slice(&block[cut]);
            } else if let Err(offset) = {
                let before = text.len();
                let appended = append_clean(&block[cut.clone()], self.malformed, &mut text, &mut documents);
                appended.inspect_err(|_| text.truncate(before))
            } {
                documents.n_broken += 1;
                if self.leaves_out {
                    continue;
                }
                let offset = cut.start + offset;
                let line = count_lines(&block[..offset]);
                documents.broken = Some(Broken { line, reason: Reason::NotUtf8(offset) });
                break;
            }
            documents.ends.push(end_of(&text));
        }
        documents.text = Some(text);
        documents
    }
}
