//! Dividing packed documents into work for several threads.
//!
//! Short documents are grouped. A long one, or one that continues in the next batch, is cut into chunks. Text whose ids depend
//! on the next batch is kept for it.

use super::packed::{Batch, Split};
use crate::encode::cutter::Cutter;
use std::borrow::Cow;
use std::ops::Range;

/// A document that continues in the next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenDocument {
    /// The end of its text, not encoded yet.
    pub text: String,
    /// Bytes of its text before that.
    pub n_done: usize,
    /// Its side; `None` until enough text has arrived.
    pub side: Option<usize>,
    /// Below this size no cut is searched. It doubles after a failure, so that a text without cuts is not searched again for
    /// every batch.
    min_bytes: usize,
}

impl OpenDocument {
    /// A document as it was when an encoder stopped.
    #[must_use]
    pub fn new(text: String, n_done: usize, side: Option<usize>) -> Self {
        Self { text, n_done, side, min_bytes: 0 }
    }
}

/// What a thread encodes at a time.
pub enum Work<'t> {
    /// Whole documents of a batch.
    Group { batch: usize, documents: Range<usize> },
    /// A chunk of a document of a batch, at `offset` in the document.
    Chunk { batch: usize, text: Cow<'t, str>, offset: usize, side: usize, is_last: bool },
}

/// Sizes in bytes of text. Only `hashed` influences the result.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Text of a batch that is copied to find a cut after the text kept for it: the next cut is a word away.
    pub joined: usize,
    /// Text at the start of a document that decides about its side.
    pub hashed: usize,
    pub max_chunk: usize,
}

pub const SIZES: Sizes = Sizes { joined: 1 << 16, hashed: 1 << 20, max_chunk: usize::MAX };

/// Divides batches into work.
pub struct Planner<'p> {
    pub cutter: Cutter<'p>,
    pub split: Option<Split>,
    /// Approximate bytes per work item.
    pub chunk_bytes: usize,
    pub sizes: Sizes,
}

impl Planner<'_> {
    /// Divides `batches`. `open` is the document that continues from the batch before, and then into the next one.
    pub fn plan<'t>(&self, batches: &[Batch<'t>], open: &mut Option<OpenDocument>) -> Vec<Work<'t>> {
        let mut work = Vec::new();
        for (batch, documents) in batches.iter().enumerate() {
            let (mut start, mut group_bytes) = (0, 0);
            for index in 0..documents.n_documents() {
                let (text, is_open) = (documents.document(index), documents.is_open(index));
                let is_grouped = open.is_none() && !is_open && text.len() < 2 * self.chunk_bytes;
                let group_end = index + usize::from(is_grouped);
                group_bytes += text.len();
                if !is_grouped || group_bytes >= self.chunk_bytes {
                    work.push(Work::Group { batch, documents: start..group_end });
                    (start, group_bytes) = (index + 1, 0);
                }
                if !is_grouped {
                    let mut document = open.take().unwrap_or_default();
                    self.add_text(&mut document, batch, text, !is_open, &mut work);
                    *open = is_open.then_some(document);
                }
            }
            work.push(Work::Group { batch, documents: start..documents.n_documents() });
        }
        work.retain(|work| !matches!(work, Work::Group { documents, .. } if documents.is_empty()));
        work
    }

    /// Adds text to a document. What further text cannot change becomes work, the rest stays in `open`.
    fn add_text<'t>(
        &self,
        open: &mut OpenDocument,
        batch: usize,
        text: &'t str,
        is_complete: bool,
        work: &mut Vec<Work<'t>>,
    ) {
        let n_known = open.text.len() + text.len();
        let has_side = open.side.is_some() || self.split.is_none() || n_known >= self.sizes.hashed;
        if !is_complete && (!has_side || n_known < open.min_bytes) {
            open.text.push_str(text);
            return;
        }
        open.side = open.side.or_else(|| Some(self.side_of(&open.text, text)));

        let mut text = Cow::Borrowed(text);
        if !open.text.is_empty() {
            let mut joined = std::mem::take(&mut open.text);
            let n_before = joined.len();
            let n_joined = char_boundary(&text, self.sizes.joined);
            joined.push_str(&text[..n_joined]);
            match self.cutter.cut_stream(&joined) {
                Some(cut) if cut >= n_before => {
                    joined.truncate(cut);
                    self.add_chunks(open, batch, Cow::Owned(joined), false, work);
                    text = slice(&text, cut - n_before..text.len());
                }
                _ => {
                    joined.push_str(&text[n_joined..]);
                    text = Cow::Owned(joined);
                }
            }
        }
        let cut = if is_complete { text.len() } else { self.cutter.cut_stream(&text).unwrap_or(0) };
        text[cut..].clone_into(&mut open.text);
        open.min_bytes = 2 * open.text.len();
        if cut > 0 || is_complete {
            self.add_chunks(open, batch, slice(&text, 0..cut), is_complete, work);
        }
    }

    /// Cuts the next text of a document into chunks.
    fn add_chunks<'t>(
        &self,
        open: &mut OpenDocument,
        batch: usize,
        text: Cow<'t, str>,
        is_complete: bool,
        work: &mut Vec<Work<'t>>,
    ) {
        let side = open.side.unwrap_or(0);
        let mut start = 0;
        for end in self.cutter.cut_whole(&text, self.chunk_bytes) {
            let (offset, is_last) = (open.n_done + start, is_complete && end == text.len());
            work.push(Work::Chunk { batch, text: slice(&text, start..end), offset, side, is_last });
            start = end;
        }
        open.n_done += text.len();
    }

    /// The side of a document that starts with `before` and then `text`.
    pub fn side_of(&self, before: &str, text: &str) -> usize {
        self.split.map_or(0, |split| split.side_of(before, text, self.sizes.hashed))
    }
}

/// A part of a text: borrowed from the batch if the text is.
fn slice<'t>(text: &Cow<'t, str>, range: Range<usize>) -> Cow<'t, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[range]),
        Cow::Owned(text) => Cow::Owned(text[range].to_owned()),
    }
}

/// The last character boundary of `text` up to `at`.
pub fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
