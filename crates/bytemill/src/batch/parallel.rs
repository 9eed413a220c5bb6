//! Encoding batches of texts, and large texts, on several threads.

use crate::batch::scheduler::pipeline;
use crate::encode::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id, Interrupt};
use crate::error::{Error, Result};
use crate::sys::memory;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

pub use crate::batch::scheduler::map;

/// Runs `work(index, part)` for every part on up to `n_threads` threads and returns the results in order.
///
/// Unlike [`map`], each task owns its part.
///
/// # Errors
/// The first error of `work` or of the interrupt check.
pub(crate) fn map_parts<P: Send, R: Send>(
    parts: Vec<P>,
    n_threads: usize,
    interrupt: Interrupt,
    work: impl Fn(usize, P, Interrupt) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let results = map(parts.len(), n_threads, interrupt, |index, interrupt| {
        let part = parts[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        part.map(|part| work(index, part, interrupt)).transpose()
    })?;
    Ok(results.into_iter().flatten().collect())
}

/// Shorter texts are encoded by one thread.
const MIN_PARALLEL_BYTES: usize = 1 << 20;

/// Bounds of a chunk: some milliseconds of work for one thread, beside which scheduling and copying cost nothing.
const MIN_CHUNK_BYTES: usize = 1 << 16;
const MAX_CHUNK_BYTES: usize = 1 << 19;

/// So many chunks for each thread keep all threads busy until the end.
const CHUNKS_PER_THREAD: usize = 8;

/// Size of the chunks that texts of `n_bytes` in total are cut into.
pub(crate) fn chunk_bytes(n_bytes: usize, n_threads: usize) -> usize {
    (n_bytes / CHUNKS_PER_THREAD / n_threads.max(1)).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
}

/// Reserves memory for the ids of a text: more than most texts need, since pages that stay untouched cost nothing.
///
/// If the system refuses so much, the vector grows with its content.
pub(crate) fn reserve_ids<T>(ids: &mut Vec<T>, n_text_bytes: usize) {
    let _ = ids.try_reserve_exact(n_text_bytes / 3 + n_text_bytes / 24);
}

/// Ids of consecutive texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded<T> {
    /// The ids of all texts.
    pub ids: Vec<T>,
    /// Where the ids of each text end.
    pub ends: Vec<usize>,
}

impl<T: Id> Encoded<T> {
    /// Moves the content of `other` to the end.
    fn append(&mut self, other: &mut Self) -> Result<()> {
        let n_before = self.ids.len();
        append(&mut self.ids, &mut other.ids)?;
        other.ends.iter_mut().for_each(|end| *end += n_before);
        append(&mut self.ends, &mut other.ends)
    }
}

/// Moves the content of `from` to the end of `to`.
pub(crate) fn append<T>(to: &mut Vec<T>, from: &mut Vec<T>) -> Result<()> {
    to.try_reserve(from.len()).map_err(|_| Error::memory::<T>(to.len() + from.len()))?;
    memory::prepare(to.spare_capacity_mut(), from.len());
    to.append(from);
    Ok(())
}

/// Where a chunk of a batch starts or ends: before a byte of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    text: usize,
    byte: usize,
}

impl Encoder {
    /// The ids of `text`, encoded by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_parallel<T: Id>(
        &self,
        text: &str,
        allowed: Allowed,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Vec<T>> {
        self.encode_parallel_from(text, 0, allowed, n_threads, interrupt)
    }

    /// [`Encoder::encode_parallel`] for the chunk of a text that begins at byte `offset`.
    pub(crate) fn encode_parallel_from<T: Id>(
        &self,
        text: &str,
        offset: usize,
        allowed: Allowed,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Vec<T>> {
        let n_threads = if text.len() <= MIN_PARALLEL_BYTES { 1 } else { n_threads };
        let chunk_bytes = chunk_bytes(text.len(), n_threads);
        let mut ids = self.encode_chunks(&[text], offset, allowed, n_threads, chunk_bytes, interrupt)?.ids;
        if ids.len() < ids.capacity() / 2 {
            ids.shrink_to_fit();
        }
        Ok(ids)
    }

    /// The ids of consecutive texts, encoded by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`], for the first text with an error.
    pub fn encode_batch<T: Id>(
        &self,
        texts: &[&str],
        allowed: Allowed,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Encoded<T>> {
        let n_bytes = texts.iter().map(|text| text.len()).sum();
        self.encode_chunks(texts, 0, allowed, n_threads, chunk_bytes(n_bytes, n_threads), interrupt)
    }

    /// [`Encoder::encode_batch`] with chunks of about `chunk_bytes`. The first text begins at byte `offset` of a longer one.
    pub(crate) fn encode_chunks<T: Id>(
        &self,
        texts: &[&str],
        offset: usize,
        allowed: Allowed,
        n_threads: usize,
        chunk_bytes: usize,
        interrupt: Interrupt,
    ) -> Result<Encoded<T>> {
        let mut output = Encoded::default();
        reserve_ids(&mut output.ids, texts.iter().map(|text| text.len()).sum());
        let end = Position { text: texts.len(), byte: 0 };
        let cuts = if n_threads <= 1 { vec![end] } else { self.cuts(texts, allowed, chunk_bytes) };
        if cuts.len() <= 1 {
            self.encode_range(texts, offset, Position::default()..end, allowed, &mut output, interrupt)?;
            return Ok(output);
        }
        let mut start = Position::default();
        let mut ends = cuts.iter();
        pipeline(
            n_threads.min(cuts.len()),
            interrupt,
            |chunk: &mut Chunk<T>, _| {
                let Some(&end) = ends.next() else { return Ok(false) };
                chunk.range = std::mem::replace(&mut start, end)..end;
                Ok(true)
            },
            |chunk, interrupt| {
                self.encode_range(texts, offset, chunk.range.clone(), allowed, &mut chunk.encoded, interrupt)
            },
            |chunk| output.append(&mut chunk.encoded),
        )?;
        Ok(output)
    }

    fn encode_range<T: Id>(
        &self,
        texts: &[&str],
        offset: usize,
        Range { start, end }: Range<Position>,
        allowed: Allowed,
        output: &mut Encoded<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let n_texts = end.text - start.text;
        output.ends.try_reserve(n_texts).map_err(|_| Error::memory::<usize>(n_texts))?;
        self.session(|session| {
            for (index, text) in texts.iter().enumerate().take(end.text + 1).skip(start.text) {
                let from = if index == start.text { start.byte } else { 0 };
                let to = if index == end.text { end.byte } else { text.len() };
                let begin = if index == 0 { offset + from } else { from };
                session.encode(&text[from..to], begin, allowed, &mut output.ids, interrupt)?;
                if index < end.text {
                    output.ends.push(output.ids.len());
                }
            }
            Ok(())
        })
    }

    /// The ends of the chunks of a batch. Each chunk has about `chunk_bytes`: several texts, or a part of a longer one.
    fn cuts(&self, texts: &[&str], allowed: Allowed, chunk_bytes: usize) -> Vec<Position> {
        let cutter = Cutter { pattern: self.pattern(), special: self.kept_whole(allowed) };
        let mut cuts = Vec::new();
        let mut n_bytes = 0;
        for (index, text) in texts.iter().enumerate() {
            n_bytes += text.len();
            if text.len() > chunk_bytes {
                let ends = cutter.cut_whole(text, chunk_bytes);
                cuts.extend(ends.iter().filter(|&&end| end < text.len()).map(|&byte| Position { text: index, byte }));
            }
            if n_bytes >= chunk_bytes || index + 1 == texts.len() {
                cuts.push(Position { text: index + 1, byte: 0 });
                n_bytes = 0;
            }
        }
        cuts
    }
}

/// What a thread encodes at a time, and the result.
#[derive(Default)]
struct Chunk<T> {
    range: Range<Position>,
    encoded: Encoded<T>,
}

#[cfg(test)]
#[path = "tests/parallel.rs"]
mod tests;
