//! The one place that decides how a pre-token is merged: the table of [`limits`](super::limits) in code.

use super::backtrack::{Backtracker, append};
use super::heap::{lookup, merge_with_heap};
use super::limits::{HEAP_BYTES_BEFORE_TABLES, MAX_COLLECTED_BYTES, MAX_LOCKSTEP_BYTES, MIN_COUNTED_BYTES};
use super::lockstep::merge_group;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::vocab::Vocab;
use crate::vocab::pair_table::PairTable;
use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Appends the symbols of a pre-token to `out`, with no tables but that of the pairs.
///
/// # Errors
/// [`Error::Invalid`] for a pre-token of 4 GiB, [`Error::Memory`], the error of `interrupt`. Short pre-tokens have none.
pub fn merge(pairs: &PairTable, pretoken: &[u8], out: &mut Vec<u32>, interrupt: Interrupt) -> Result<()> {
    match pretoken.len() {
        0 => Ok(()),
        1..=MAX_LOCKSTEP_BYTES => merge_one(pairs, pretoken, out),
        _ => merge_with_heap(pretoken, lookup(pairs), out, |_| true, interrupt),
    }
}

/// A group of one.
fn merge_one(pairs: &PairTable, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()> {
    const LANES: usize = MAX_LOCKSTEP_BYTES + 1;
    let bytes = |_, lanes: &mut [u8; LANES]| {
        lanes[..pretoken.len()].copy_from_slice(pretoken);
        pretoken.len()
    };
    merge_group::<LANES, 1>(pairs, 1, bytes, |_, symbols, n| out.extend_from_slice(&symbols[..n]));
    Ok(())
}

/// Merges single pre-tokens of any length. The backtracking tables are built when enough long ones have come.
#[derive(Default)]
pub struct Merger {
    /// Inside, `None` if the vocabulary has no list of merges.
    backtracker: OnceBox<Option<Backtracker>>,
    n_heap_bytes: AtomicUsize,
}

impl Merger {
    /// Appends `make(symbol)` for each symbol of a pre-token to `out`. `vocab` is the same in every call; `scratch` is scratch
    /// space. Beside `out`, memory is bounded for pre-tokens of any length, unless the vocabulary has no list of merges.
    ///
    /// # Errors
    /// As [`merge`].
    pub fn merge_into<T>(
        &self,
        vocab: &Vocab,
        pretoken: &[u8],
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        make: impl Fn(u32) -> T,
        interrupt: Interrupt,
    ) -> Result<()> {
        let pairs = vocab.pairs();
        scratch.clear();
        if pretoken.len() > MAX_LOCKSTEP_BYTES
            && let Some(backtracker) = self.backtracker(vocab, pretoken.len())
        {
            if pretoken.len() > MAX_COLLECTED_BYTES {
                // It may have an id for each byte.
                out.try_reserve(pretoken.len()).map_err(|_| Error::memory::<T>(out.len() + pretoken.len()))?;
            }
            return backtracker.merge_into(pairs, pretoken, scratch, out, make, interrupt);
        }
        merge(pairs, pretoken, scratch, interrupt)?;
        append(scratch, out, make)
    }

    /// A merger that builds the tables for the first long pre-token.
    #[cfg(test)]
    pub(super) fn with_tables() -> Self {
        Self { n_heap_bytes: AtomicUsize::new(HEAP_BYTES_BEFORE_TABLES - 1), ..Self::default() }
    }

    /// The backtracking tables, built if `n_bytes` more make them worthwhile. While one thread builds them the others use the
    /// heap, and build them too only after as many bytes again: the thread may be gone, in a forked child.
    fn backtracker(&self, vocab: &Vocab, n_bytes: usize) -> Option<&Backtracker> {
        if let Some(built) = self.backtracker.get() {
            return built.as_ref();
        }
        if n_bytes < MIN_COUNTED_BYTES {
            return None;
        }
        let before = self.n_heap_bytes.fetch_add(n_bytes, Relaxed);
        if before / HEAP_BYTES_BEFORE_TABLES == (before + n_bytes) / HEAP_BYTES_BEFORE_TABLES {
            return None;
        }
        self.backtracker.get_or_init(|| Box::new(Backtracker::new(vocab))).as_ref()
    }
}
