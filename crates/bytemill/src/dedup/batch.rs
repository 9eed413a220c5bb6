//! Shingle sets and sketches of many documents, on several threads.

use super::shingles::{MAX_N, id_shingles, word_shingles};
use super::sketch::{SIZE, sketch};
use crate::batch::scheduler::pipeline;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use std::ops::Range;

/// Documents in a chunk have about this many bytes or ids.
const CHUNK: usize = 1 << 17;

/// The shingle sets of consecutive documents.
#[derive(Default)]
pub struct ShingleSets {
    /// The sketches, [`SIZE`] numbers each.
    pub sketches: Vec<u32>,
    /// The sets, each ascending.
    pub shingles: Vec<u64>,
    /// Where each set ends in `shingles`.
    pub ends: Vec<u64>,
}

impl ShingleSets {
    fn push(&mut self, set: &[u64]) -> Result<()> {
        self.reserve(1, set.len())?;
        self.sketches.extend_from_slice(&sketch(set));
        self.shingles.extend_from_slice(set);
        self.ends.push(self.shingles.len() as u64);
        Ok(())
    }

    /// Moves the content of `other` to the end.
    fn append(&mut self, other: &mut Self) -> Result<()> {
        self.reserve(other.ends.len(), other.shingles.len())?;
        let n_before = self.shingles.len() as u64;
        self.sketches.append(&mut other.sketches);
        self.shingles.append(&mut other.shingles);
        self.ends.extend(other.ends.drain(..).map(|end| n_before + end));
        Ok(())
    }

    fn reserve(&mut self, n_sets: usize, n_shingles: usize) -> Result<()> {
        let reserved = self.sketches.try_reserve(SIZE * n_sets).is_ok()
            && self.shingles.try_reserve(n_shingles).is_ok()
            && self.ends.try_reserve(n_sets).is_ok();
        if reserved { Ok(()) } else { Err(Error::memory::<u64>(n_shingles + SIZE * n_sets)) }
    }
}

/// The sets of word n-grams of packed documents; `ends` are the offsets where each ends in `text`.
///
/// # Errors
/// [`Error::Invalid`] if the ends do not divide the text or `n` is not in 1 to [`MAX_N`], [`Error::Memory`], and the errors of
/// `interrupt`.
pub fn sketch_texts(
    text: &str,
    ends: &[usize],
    n: usize,
    n_threads: usize,
    interrupt: Interrupt,
) -> Result<ShingleSets> {
    check(ends, text.len(), n)?;
    if ends.iter().any(|&end| !text.is_char_boundary(end)) {
        return Err(Error::Invalid("a document ends inside a character".to_owned()));
    }
    sketch_all(ends, n_threads, interrupt, |range, set, interrupt| word_shingles(&text[range], n, set, interrupt))
}

/// The sets of n-grams of the token ids of packed documents.
///
/// # Errors
/// As [`sketch_texts`].
pub fn sketch_ids<T: Copy + Into<u32> + Sync>(
    ids: &[T],
    ends: &[usize],
    n: usize,
    n_threads: usize,
    interrupt: Interrupt,
) -> Result<ShingleSets> {
    check(ends, ids.len(), n)?;
    sketch_all(ends, n_threads, interrupt, |range, set, _| {
        id_shingles(ids[range].iter().map(|&id| id.into()), n, set);
        Ok(())
    })
}

fn check(ends: &[usize], n_items: usize, n: usize) -> Result<()> {
    if !(1..=MAX_N).contains(&n) {
        return Err(Error::Invalid(format!("n-grams must have 1 to {MAX_N} items, not {n}")));
    }
    if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != n_items {
        return Err(Error::Invalid("the ends do not divide the documents".to_owned()));
    }
    Ok(())
}

/// What a thread works on at a time.
#[derive(Default)]
struct Chunk {
    documents: Range<usize>,
    set: Vec<u64>,
    sets: ShingleSets,
}

fn sketch_all(
    ends: &[usize],
    n_threads: usize,
    interrupt: Interrupt,
    shingles: impl Fn(Range<usize>, &mut Vec<u64>, Interrupt) -> Result<()> + Sync,
) -> Result<ShingleSets> {
    let start_of = |document: usize| document.checked_sub(1).map_or(0, |before| ends[before]);
    let mut all = ShingleSets::default();
    let mut first = 0;
    pipeline(
        n_threads,
        interrupt,
        |chunk: &mut Chunk, _| {
            let limit = start_of(first) + CHUNK;
            let last = first + ends[first..].partition_point(|&end| end <= limit);
            // A longer document is a chunk by itself.
            chunk.documents = first..last.max(first + 1).min(ends.len());
            first = chunk.documents.end;
            Ok(!chunk.documents.is_empty())
        },
        |chunk, interrupt| {
            interrupt()?;
            for document in chunk.documents.clone() {
                shingles(start_of(document)..ends[document], &mut chunk.set, interrupt)?;
                chunk.sets.push(&chunk.set)?;
            }
            Ok(())
        },
        |chunk| all.append(&mut chunk.sets),
    )?;
    Ok(all)
}

#[cfg(test)]
#[path = "tests/batch.rs"]
mod tests;
