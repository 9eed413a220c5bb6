//! Encoding packed documents: many in a batch, or one over many batches.
//!
//! The ids of a document are those of its text alone, wherever batches end and however many threads there are. Between two
//! batches only the end of an unfinished document is kept, as far as more text may change its ids. This [`Carry`] allows
//! another process to resume.

pub use super::frame::{Assembly, Frame};
use crate::batch::parallel;
use crate::encode::cutter::Cutter;
use crate::encode::stream::StreamAllowed;
use crate::encode::{Encoder, Id, Interrupt};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The encoded documents of one side.
#[derive(Debug, Default)]
pub struct Side<T> {
    /// The ids, in consecutive chunks.
    pub ids: Vec<Vec<T>>,
    /// Where documents end among the ids. Documents without ids are left out.
    pub ends: Vec<u64>,
    /// Bytes of encoded text, by batch.
    pub n_bytes: Vec<u64>,
    /// Number of documents without ids.
    pub n_empty: u64,
    n_ids: u64,
}

impl<T> Side<T> {
    fn add(&mut self, batch: usize, group: Group<T>) {
        self.ends.extend(group.ends.iter().map(|end| self.n_ids + end));
        self.n_bytes[batch] += group.n_bytes;
        self.n_empty += group.n_empty;
        self.n_ids += group.ids.len() as u64;
        if !group.ids.is_empty() {
            self.ids.push(group.ids);
        }
    }
}

/// The part of a [`Side`] that comes from one item of [`Work`].
#[derive(Default)]
struct Group<T> {
    ids: Vec<T>,
    ends: Vec<u64>,
    n_bytes: u64,
    n_empty: u64,
}

/// The state between two batches if a document continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carry {
    /// Its text.
    pub document: OpenDocument,
    /// Its ids.
    pub assembly: Assembly,
}

/// Encodes packed documents.
pub struct DocumentEncoder {
    encoder: Arc<Encoder>,
    allowed: StreamAllowed,
    n_threads: usize,
    frame: Frame,
    split: Option<Split>,
    sizes: Sizes,
    open: Option<OpenDocument>,
    assembly: Assembly,
}

impl DocumentEncoder {
    /// An encoder that expects the start of a document.
    pub fn new(
        encoder: Arc<Encoder>,
        allowed: StreamAllowed,
        n_threads: usize,
        frame: Frame,
        split: Option<Split>,
    ) -> Self {
        Self { encoder, allowed, n_threads, frame, split, sizes: SIZES, open: None, assembly: Assembly::default() }
    }

    /// The state after the last batch; `None` if it ended with a document.
    pub fn carry(&self) -> Option<Carry> {
        self.open.clone().map(|document| Carry { document, assembly: self.assembly.clone() })
    }

    /// Resumes from the state of another encoder with the same options.
    pub fn resume(&mut self, carry: Option<Carry>) {
        let state = carry.map(|carry| (Some(carry.document), carry.assembly));
        (self.open, self.assembly) = state.unwrap_or_default();
    }

    /// The ids of the documents in `batches`, as far as further text cannot change them, for both sides of the split.
    ///
    /// # Errors
    /// As [`Encoder::encode`], where the offset of a special token is that in its document. The encoder cannot be used
    /// afterwards.
    pub fn encode<T: Id + Into<u32>>(&mut self, batches: &[Batch], interrupt: Interrupt) -> Result<[Side<T>; 2]> {
        let n_bytes = batches.iter().map(Batch::n_bytes).sum();
        let special = self.encoder.kept_whole(self.allowed.as_allowed());
        let planner = Planner {
            cutter: Cutter { pattern: self.encoder.pattern(), special },
            split: self.split,
            chunk_bytes: parallel::chunk_bytes(n_bytes, self.n_threads).min(self.sizes.max_chunk),
            sizes: self.sizes,
        };
        let work = planner.plan(batches, &mut self.open);
        let encoded = parallel::map(work.len(), self.n_threads, interrupt, |index, interrupt| {
            self.encode_work(&planner, batches, &work[index], interrupt)
        })?;
        let mut sides = [(); 2].map(|()| Side { n_bytes: vec![0; batches.len()], ..Side::default() });
        for (work, mut groups) in work.iter().zip(encoded) {
            if let Work::Chunk { side, is_last, .. } = work {
                let group = &mut groups[*side];
                let has_ids = self.assembly.add(&self.frame, &mut group.ids, 0, *is_last);
                if *is_last && has_ids {
                    group.ends.push(group.ids.len() as u64);
                }
                group.n_empty = u64::from(*is_last && !has_ids);
            }
            let (Work::Group { batch, .. } | Work::Chunk { batch, .. }) = work;
            for (side, group) in sides.iter_mut().zip(groups) {
                side.add(*batch, group);
            }
        }
        Ok(sides)
    }

    /// Encodes one work item, for both sides. The ids of a chunk are not framed yet.
    fn encode_work<T: Id + Into<u32>>(
        &self,
        planner: &Planner,
        batches: &[Batch],
        work: &Work,
        interrupt: Interrupt,
    ) -> Result<[Group<T>; 2]> {
        let mut sides: [Group<T>; 2] = Default::default();
        self.encoder.session(|session| {
            let mut encode = |text: &str, offset: usize, group: &mut Group<T>| {
                // The ids stay in this memory, so it is not much more than most texts need. If the system refuses, it grows.
                let _ = group.ids.try_reserve(text.len() / 4);
                group.n_bytes += text.len() as u64;
                session.encode(text, offset, self.allowed.as_allowed(), &mut group.ids, interrupt)
            };
            match work {
                Work::Chunk { text, offset, side, .. } => encode(text, *offset, &mut sides[*side])?,
                Work::Group { batch, documents } => {
                    for index in documents.clone() {
                        let text = batches[*batch].document(index);
                        let group = &mut sides[planner.side_of("", text)];
                        let start = group.ids.len();
                        encode(text, 0, group)?;
                        if Assembly::default().add(&self.frame, &mut group.ids, start, true) {
                            group.ends.push(group.ids.len() as u64);
                        } else {
                            group.n_empty += 1;
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(sides)
    }
}

// Packed documents: a batch of consecutive texts, and how documents are split into two sides.

/// A batch of documents, one after another.
#[derive(Clone, Debug)]
pub struct Batch<'t> {
    text: &'t str,
    ends: Vec<usize>,
    is_open: bool,
}

impl<'t> Batch<'t> {
    /// Documents that end at `ends` in `text`. With `is_open`, the last one continues in the next batch.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ends do not ascend to the end of the text, or one is inside a character.
    pub fn new(text: &'t str, ends: Vec<usize>, is_open: bool) -> Result<Self> {
        let mut start = 0;
        for &end in &ends {
            if end < start || !text.is_char_boundary(end) {
                return Err(Error::Invalid(format!(
                    "a document ends at byte {end}, before its start or inside a character"
                )));
            }
            start = end;
        }
        if start != text.len() || (is_open && ends.is_empty()) {
            return Err(Error::Invalid(format!("the last document ends at byte {start} of {}", text.len())));
        }
        Ok(Self { text, ends, is_open })
    }

    /// [`Batch::new`] for bytes.
    ///
    /// # Errors
    /// [`Error::Utf8`] if they are not UTF-8, else as [`Batch::new`].
    pub fn from_utf8(data: &'t [u8], ends: Vec<usize>, is_open: bool) -> Result<Self> {
        let text = simdutf8::compat::from_utf8(data).map_err(|error| {
            let start = error.valid_up_to();
            let end = error.error_len().map_or(data.len(), |n_malformed| start + n_malformed);
            Error::Utf8 { start, end, bytes: data[start..end].to_vec() }
        })?;
        Self::new(text, ends, is_open)
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn n_documents(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn document(&self, index: usize) -> &'t str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    /// True for a document that continues in the next batch.
    pub(super) fn is_open(&self, index: usize) -> bool {
        self.is_open && index + 1 == self.ends.len()
    }
}

/// Splits documents into two sides by their text, so equal documents are on the same side.
///
/// The hash of a document is the XXH3 (64 bits) of its first MiB.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Seed of the hash.
    pub seed: u64,
    /// Documents whose hash is below this are on side 1, the others on side 0.
    pub below: u64,
}

impl Split {
    /// The side of a whole document.
    #[must_use]
    pub fn side(&self, text: &str) -> usize {
        self.side_of("", text, SIZES.hashed)
    }

    /// The side of a document that starts with `before` and then `text`, of which the first `n_hashed` bytes count.
    pub(super) fn side_of(&self, before: &str, text: &str, n_hashed: usize) -> usize {
        let before = &before.as_bytes()[..before.len().min(n_hashed)];
        let text = &text.as_bytes()[..text.len().min(n_hashed - before.len())];
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(before);
        hash.update(text);
        usize::from(hash.digest() < self.below)
    }
}

// Dividing packed documents into work for several threads.
//
// Short documents are grouped. A long one, or one that continues in the next batch, is cut into chunks. Text whose ids depend
// on the next batch is kept for it.

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
    pub fn new(text: String, n_done: usize, side: Option<usize>) -> Self {
        Self { text, n_done, side, min_bytes: 0 }
    }
}

/// What a thread encodes at a time.
enum Work<'t> {
    /// Whole documents of a batch.
    Group { batch: usize, documents: Range<usize> },
    /// A chunk of a document of a batch, at `offset` in the document.
    Chunk { batch: usize, text: Cow<'t, str>, offset: usize, side: usize, is_last: bool },
}

/// Sizes in bytes of text. Only `hashed` influences the result.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Text of a batch that is copied to find a cut after the text kept for it: the next cut is a word away.
    joined: usize,
    /// Text at the start of a document that decides about its side.
    hashed: usize,
    max_chunk: usize,
}

const SIZES: Sizes = Sizes { joined: 1 << 16, hashed: 1 << 20, max_chunk: usize::MAX };

/// Divides batches into work.
struct Planner<'p> {
    cutter: Cutter<'p>,
    split: Option<Split>,
    /// Approximate bytes per work item.
    chunk_bytes: usize,
    sizes: Sizes,
}

impl Planner<'_> {
    /// Divides `batches`. `open` is the document that continues from the batch before, and then into the next one.
    fn plan<'t>(&self, batches: &[Batch<'t>], open: &mut Option<OpenDocument>) -> Vec<Work<'t>> {
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
    fn side_of(&self, before: &str, text: &str) -> usize {
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
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/pack.rs"]
mod tests;
