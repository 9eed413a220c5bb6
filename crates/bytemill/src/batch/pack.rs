//! Encoding packed documents: many in a batch, or one over many batches.
//!
//! The ids of a document are those of its text alone, wherever batches end and however many threads there are. Between two
//! batches only the end of an unfinished document is kept, as far as more text may change its ids. This [`Carry`] allows
//! another process to resume.

use super::plan::{Planner, SIZES, Sizes, Work};
use crate::batch::parallel;
use crate::encode::cutter::Cutter;
use crate::encode::stream::StreamAllowed;
use crate::encode::{Encoder, Id, Interrupt};
use crate::error::Result;
use std::sync::Arc;

pub use super::frame::{Assembly, Frame};
pub use super::packed::{Batch, Split};
pub use super::plan::OpenDocument;

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
    #[must_use]
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
    #[must_use]
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

#[cfg(test)]
#[path = "tests/pack.rs"]
mod tests;
