//! Documents that come packed, many in a batch or one over many batches, to the ids of each.
//!
//! The ids of a document are those of its text alone, whatever stands beside it, wherever batches end, and however many
//! threads there are. Between two calls nothing is kept but the end of a document that goes on, as far as more text may
//! change its ids: a [`Carry`], with which the work can go on in another process.

mod frame;
#[cfg(test)]
mod tests;

use crate::cutter::Cutter;
use crate::encode::{Encoder, Id, Pulse, Session};
use crate::error::{Error, Result};
use crate::parallel;
use crate::stream::StreamAllowed;
use frame::Assembly;
pub use frame::Frame;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Sizes in bytes of text. What comes out depends on `hashed` alone.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// What a thread takes at a time, at least and at most.
    part: (usize, usize),
    /// What is copied of a document that goes on to find a cut behind what was left of it: a cut is a word away.
    seam: usize,
    /// The beginning of a document that decides on which side it falls.
    hashed: usize,
}

const SIZES: Sizes = Sizes { part: (1 << 16, 1 << 20), seam: 1 << 16, hashed: 1 << 20 };

/// Parts for each thread, so that all end together.
const PARTS_PER_THREAD: usize = 8;

/// Documents fall on two sides by their text: equal ones on the same.
///
/// What counts is the XXH3 (64 bits) of their first MiB.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Of the hash.
    pub seed: u64,
    /// Documents with a hash below this one fall on side 1, the others on side 0.
    pub below: u64,
}

/// Some documents, one after another.
#[derive(Clone, Debug)]
pub struct Batch<'t> {
    text: &'t str,
    ends: Vec<usize>,
    is_open: bool,
}

impl<'t> Batch<'t> {
    /// Documents that end at `ends` in `text`; with `is_open` the last one goes on in the next batch.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the ends do not ascend to the end of the text, from character to character.
    pub fn new(text: &'t str, ends: Vec<usize>, is_open: bool) -> Result<Self> {
        let mut start = 0;
        for &end in &ends {
            if end < start || !text.is_char_boundary(end) {
                return Err(Error::Invalid(format!("a document ends at byte {end}, which is no place for an end")));
            }
            start = end;
        }
        if start != text.len() || (is_open && ends.is_empty()) {
            return Err(Error::Invalid(format!("the last document ends at byte {start} of {}", text.len())));
        }
        Ok(Self { text, ends, is_open })
    }

    /// The same from bytes.
    ///
    /// # Errors
    /// [`Error::Utf8`] where they are not UTF-8, else as [`Batch::new`].
    pub fn from_utf8(data: &'t [u8], ends: Vec<usize>, is_open: bool) -> Result<Self> {
        match simdutf8::compat::from_utf8(data) {
            Ok(text) => Self::new(text, ends, is_open),
            Err(error) => {
                let start = error.valid_up_to();
                let end = error.error_len().map_or(data.len(), |n_malformed| start + n_malformed);
                Err(Error::Utf8 { start, end, bytes: data[start..end].to_vec() })
            }
        }
    }

    fn document(&self, index: usize) -> &'t str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }
}

/// The documents of one side.
#[derive(Debug, Default)]
pub struct Side<T> {
    /// The ids, one piece after another.
    pub ids: Vec<Vec<T>>,
    /// Where documents end among the ids. Those without ids are not among them.
    pub ends: Vec<u64>,
    /// Bytes of text, by batches.
    pub n_bytes: Vec<u64>,
    /// Documents without ids.
    pub n_empty: u64,
    n_ids: u64,
}

impl<T> Side<T> {
    fn push(&mut self, ids: Vec<T>) {
        if !ids.is_empty() {
            self.n_ids += ids.len() as u64;
            self.ids.push(ids);
        }
    }
}

/// What is left of a document that goes on in the next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carry {
    /// The end of its text, which is no ids yet.
    pub text: String,
    /// Bytes of its text before that.
    pub n_done: usize,
    /// On which side it falls; `None` where its beginning has not been seen.
    pub side: Option<usize>,
    /// Ids that are not given yet.
    pub held: Vec<u32>,
    /// The last id that was given.
    pub last: Option<u32>,
}

/// A document under way.
#[derive(Debug, Default)]
struct Open {
    text: String,
    n_done: usize,
    side: Option<usize>,
    /// No attempt to cut below this many bytes: doubled when one fails, so that a text without cuts is not searched
    /// again with every batch.
    enough: usize,
}

/// Text of a piece of work: of a batch, or put together from two.
enum Text<'t> {
    Here(&'t str),
    Seam(Arc<String>, Range<usize>),
}

impl Text<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Here(text) => text,
            Self::Seam(text, range) => &text[range.clone()],
        }
    }
}

/// What a thread takes at a time.
enum Work<'t> {
    /// Whole documents of a batch.
    Group { batch: usize, documents: Range<usize> },
    /// A part of a document, `offset` bytes behind its beginning.
    Part { text: Text<'t>, offset: usize, side: usize, is_last: bool },
}

/// What comes of it.
enum Done<T> {
    Group { batch: usize, sides: [Group<T>; 2] },
    Part { ids: Vec<T>, side: usize, is_last: bool },
}

#[derive(Default)]
struct Group<T> {
    ids: Vec<T>,
    ends: Vec<u64>,
    n_bytes: u64,
    n_empty: u64,
}

/// Encodes packed documents.
pub struct DocumentEncoder {
    encoder: Arc<Encoder>,
    allowed: StreamAllowed,
    n_threads: usize,
    frame: Frame,
    split: Option<Split>,
    sizes: Sizes,
    open: Option<Open>,
    assembly: Assembly,
}

impl DocumentEncoder {
    /// An encoder between two documents.
    #[must_use]
    pub fn new(
        encoder: Arc<Encoder>,
        allowed: StreamAllowed,
        n_threads: usize,
        frame: Frame,
        split: Option<Split>,
    ) -> Self {
        let n_threads = n_threads.max(1);
        Self { encoder, allowed, n_threads, frame, split, sizes: SIZES, open: None, assembly: Assembly::default() }
    }

    /// What is left of the document that the last batch ended in, `None` where it ended with a document.
    #[must_use]
    pub fn carry(&self) -> Option<Carry> {
        self.open.as_ref().map(|open| Carry {
            text: open.text.clone(),
            n_done: open.n_done,
            side: open.side,
            held: self.assembly.held.clone(),
            last: self.assembly.last,
        })
    }

    /// Goes on where another encoder with the same options was.
    pub fn go_on(&mut self, carry: Option<Carry>) {
        self.assembly = Assembly::default();
        self.open = carry.map(|carry| {
            self.assembly = Assembly { held: carry.held, last: carry.last };
            Open { text: carry.text, n_done: carry.n_done, side: carry.side, enough: 0 }
        });
    }

    /// The ids of the documents in `batches`, as far as they are known; both sides of the split.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; a special token's offset counts from the beginning of its document. The work cannot go on
    /// then.
    pub fn encode<T: Id + Into<u32>>(&mut self, batches: &[Batch], pulse: Pulse) -> Result<[Side<T>; 2]> {
        let mut sides: [Side<T>; 2] = Default::default();
        for side in &mut sides {
            side.n_bytes.resize(batches.len(), 0);
        }
        let work = self.plan(batches, &mut sides);
        let n_expected = batches.iter().map(|batch| batch.text.len()).sum::<usize>() / self.n_threads;
        let done = parallel::map(work.len(), self.n_threads, pulse, |index, pulse| match &work[index] {
            Work::Group { batch, documents } => self.encoder.session(n_expected, |session| {
                self.encode_group(session, *batch, &batches[*batch], documents.clone(), pulse)
            }),
            Work::Part { text, offset, side, is_last } => {
                let text = text.as_str();
                let mut ids = Vec::with_capacity(text.len() / 4);
                self.encoder
                    .session(n_expected, |session| self.encode_text(session, text, *offset, &mut ids, pulse))?;
                Ok(Done::Part { ids, side: *side, is_last: *is_last })
            }
        })?;
        for done in done {
            match done {
                Done::Group { batch, sides: groups } => {
                    for (side, group) in sides.iter_mut().zip(groups) {
                        side.ends.extend(group.ends.iter().map(|end| side.n_ids + end));
                        side.n_bytes[batch] += group.n_bytes;
                        side.n_empty += group.n_empty;
                        side.push(group.ids);
                    }
                }
                Done::Part { mut ids, side, is_last } => {
                    let has_ids = self.assembly.add(&self.frame, &mut ids, is_last);
                    let side = &mut sides[side];
                    side.push(ids);
                    match (is_last, has_ids) {
                        (true, true) => side.ends.push(side.n_ids),
                        (true, false) => side.n_empty += 1,
                        _ => {}
                    }
                }
            }
        }
        Ok(sides)
    }

    /// Divides the work; what more text may change stays behind. Counts the bytes of parts of documents.
    fn plan<'t, T>(&mut self, batches: &[Batch<'t>], sides: &mut [Side<T>; 2]) -> Vec<Work<'t>> {
        let n_bytes: usize = batches.iter().map(|batch| batch.text.len()).sum();
        let (least, most) = self.sizes.part;
        let part_bytes = (n_bytes / (PARTS_PER_THREAD * self.n_threads)).clamp(least, most);
        let mut work = Vec::with_capacity(n_bytes / part_bytes + 2 * batches.len());
        for (place, batch) in batches.iter().enumerate() {
            let (mut start, mut n_bytes) = (0, 0);
            for index in 0..batch.ends.len() {
                let text = batch.document(index);
                let ends_here = !(batch.is_open && index + 1 == batch.ends.len());
                let is_whole = self.open.is_none() && ends_here && text.len() < 2 * part_bytes;
                if is_whole {
                    n_bytes += text.len();
                }
                if !is_whole || n_bytes >= part_bytes {
                    work.push(Work::Group { batch: place, documents: start..index + usize::from(is_whole) });
                    (start, n_bytes) = (index + 1, 0);
                }
                if !is_whole {
                    let mut open = self.open.take().unwrap_or_default();
                    let done_before = open.n_done;
                    self.go_on_with(&mut open, text, ends_here, part_bytes, &mut work);
                    sides[open.side.unwrap_or(0)].n_bytes[place] += (open.n_done - done_before) as u64;
                    self.open = (!ends_here).then_some(open);
                }
            }
            work.push(Work::Group { batch: place, documents: start..batch.ends.len() });
        }
        work.retain(|work| !matches!(work, Work::Group { documents, .. } if documents.is_empty()));
        work
    }

    /// Takes more text of a document: what no further text changes becomes work, the rest stays in `open`.
    fn go_on_with<'t>(
        &self,
        open: &mut Open,
        mut text: &'t str,
        ends_here: bool,
        part_bytes: usize,
        work: &mut Vec<Work<'t>>,
    ) {
        let n_known = open.text.len() + text.len();
        if open.side.is_none() {
            if self.split.is_some() && !ends_here && n_known < self.sizes.hashed {
                open.text.push_str(text);
                return;
            }
            open.side = Some(self.side_of(&open.text, text));
        }
        if !ends_here && n_known < open.enough {
            open.text.push_str(text);
            return;
        }
        let cutter = Cutter { pattern: self.encoder.pattern(), special: self.special() };
        if !open.text.is_empty() {
            let n_before = open.text.len();
            let n_seam = char_boundary(text, self.sizes.seam);
            open.text.push_str(&text[..n_seam]);
            match cutter.cut_stream(&open.text) {
                // All that is left of before goes with the beginning of this text, and what follows need not be copied.
                Some(cut) if cut >= n_before => {
                    open.text.truncate(cut);
                    text = &text[cut - n_before..];
                    self.divide_seam(open, false, part_bytes, work);
                }
                _ => {
                    open.text.push_str(&text[n_seam..]);
                    if ends_here {
                        self.divide_seam(open, true, part_bytes, work);
                    } else if let Some(cut) = cutter.cut_stream(&open.text) {
                        let rest = open.text.split_off(cut);
                        self.divide_seam(open, false, part_bytes, work);
                        open.enough = 2 * rest.len();
                        open.text = rest;
                    } else {
                        open.enough = 2 * open.text.len();
                    }
                    return;
                }
            }
        }
        let cut = if ends_here { text.len() } else { cutter.cut_stream(text).unwrap_or(0) };
        let ready = &text[..cut];
        if !ready.is_empty() || ends_here {
            self.divide(open, ready, |range| Text::Here(&ready[range]), ends_here, part_bytes, work);
        }
        open.text.push_str(&text[cut..]);
        open.enough = 2 * open.text.len();
    }

    fn divide_seam<'t>(&self, open: &mut Open, is_last: bool, part_bytes: usize, work: &mut Vec<Work<'t>>) {
        let seam = Arc::new(std::mem::take(&mut open.text));
        self.divide(open, &seam, |range| Text::Seam(Arc::clone(&seam), range), is_last, part_bytes, work);
    }

    /// Makes work of a part of a document.
    fn divide<'t>(
        &self,
        open: &mut Open,
        text: &str,
        piece: impl Fn(Range<usize>) -> Text<'t>,
        is_last: bool,
        part_bytes: usize,
        work: &mut Vec<Work<'t>>,
    ) {
        let side = open.side.unwrap_or(0);
        let ends = Cutter { pattern: self.encoder.pattern(), special: self.special() }.cut_whole(text, part_bytes);
        let mut start = 0;
        for &end in &ends {
            let is_last = is_last && end == text.len();
            work.push(Work::Part { text: piece(start..end), offset: open.n_done + start, side, is_last });
            start = end;
        }
        open.n_done += text.len();
    }

    /// What must not be cut: a special token that is refused must be seen whole too.
    fn special(&self) -> &crate::special::SpecialTokens {
        match &self.allowed {
            StreamAllowed::All | StreamAllowed::Refused => self.encoder.special(),
            StreamAllowed::These(special) => special,
            StreamAllowed::None => self.encoder.none(),
        }
    }

    /// On which side a document falls whose text is `before` and then `text`, or begins so.
    fn side_of(&self, before: &str, text: &str) -> usize {
        let Some(split) = self.split else { return 0 };
        let n_hashed = self.sizes.hashed;
        let before = &before.as_bytes()[..before.len().min(n_hashed)];
        let text = &text.as_bytes()[..text.len().min(n_hashed - before.len())];
        let hash = if before.is_empty() {
            xxh3_64_with_seed(text, split.seed)
        } else {
            let mut hash = Xxh3::with_seed(split.seed);
            hash.update(before);
            hash.update(text);
            hash.digest()
        };
        usize::from(hash < split.below)
    }

    fn encode_group<T: Id + Into<u32>>(
        &self,
        session: &mut Session,
        batch: usize,
        content: &Batch,
        documents: Range<usize>,
        pulse: Pulse,
    ) -> Result<Done<T>> {
        let mut sides: [Group<T>; 2] = Default::default();
        if self.split.is_none() {
            let start = if documents.start == 0 { 0 } else { content.ends[documents.start - 1] };
            sides[0].ids.reserve((content.ends[documents.end - 1] - start) / 4);
            sides[0].ends.reserve(documents.len());
        }
        for index in documents {
            let text = content.document(index);
            let group = &mut sides[self.side_of("", text)];
            let start = group.ids.len();
            self.encode_text(session, text, 0, &mut group.ids, pulse)?;
            group.n_bytes += text.len() as u64;
            if self.frame.close(&mut group.ids, start) {
                group.ends.push(group.ids.len() as u64);
            } else {
                group.n_empty += 1;
            }
        }
        Ok(Done::Group { batch, sides })
    }

    fn encode_text<T: Id>(
        &self,
        session: &mut Session,
        text: &str,
        offset: usize,
        ids: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        session.encode(text, self.allowed.as_allowed(), ids, pulse).map_err(|error| match error {
            Error::SpecialToken { token, offset: within } => Error::SpecialToken { token, offset: offset + within },
            other => other,
        })
    }
}

/// The last place up to `at` where a character of `text` begins or the text ends.
fn char_boundary(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    // The beginning of the text is one.
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
