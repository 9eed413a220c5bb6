//! Merging pre-tokens of any length, each in the way that suits it.

use super::SHORT;
use super::backtrack::Backtracker;
use super::long::merge_long;
use super::merge;
use crate::error::Result;
use crate::lazy::Lazy;
use crate::pairs::PairTable;
use crate::pulse::Pulse;
use crate::vocab::Vocab;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of long pre-tokens that are merged with the queue before the tables for backtracking are made.
///
/// Making them takes 20 ms for cl100k, the queue 150 ns a byte and backtracking a tenth of that: the queue is given up
/// when it has cost what the tables do.
const BYTES_BY_QUEUE: usize = 1 << 17;

/// From this many bytes on, backtracking is faster than looking through all pairs for each merge, two to four times on
/// real words.
const MEDIUM: usize = 32;

/// The merging of a vocabulary, with tables for long pre-tokens that are made when enough of those have come.
#[derive(Default)]
pub struct Merger {
    backtracker: Lazy<Option<Backtracker>>,
    n_bytes_by_queue: AtomicUsize,
}

impl Merger {
    /// Appends the symbols of a pre-token to `symbols`; `vocab` and `pairs` are the same at each call.
    ///
    /// # Errors
    /// What `pulse` gives; it is asked only for long pre-tokens.
    pub fn merge(
        &self,
        vocab: &Vocab,
        pairs: &PairTable,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        pulse: Pulse,
    ) -> Result<()> {
        if pretoken.len() < MEDIUM || pretoken.len() <= SHORT && self.backtracker.get().is_none() {
            return merge(pairs, pretoken, symbols, pulse);
        }
        match self.backtracker(vocab, pairs, pretoken.len()) {
            Some(backtracker) => backtracker.merge(pairs, pretoken, symbols, pulse),
            None => merge_long(pairs, pretoken, symbols, |_| {}, pulse),
        }
    }

    /// Appends what `make` makes of the symbols of a pre-token to `out`, with a fixed amount of memory beside it unless
    /// the vocabulary is one of ranks that no merges stand for. What was in `scratch` is lost.
    ///
    /// # Errors
    /// What `pulse` gives.
    #[expect(clippy::too_many_arguments, reason = "the parts of an encoder, which must be borrowed one by one")]
    pub fn merge_into<T>(
        &self,
        vocab: &Vocab,
        pairs: &PairTable,
        pretoken: &[u8],
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        make: impl Fn(u32) -> T,
        pulse: Pulse,
    ) -> Result<()> {
        scratch.clear();
        if pretoken.len() <= SHORT {
            self.merge(vocab, pairs, pretoken, scratch, pulse)?;
        } else if let Some(backtracker) = self.backtracker(vocab, pairs, pretoken.len()) {
            return backtracker.merge_into(pairs, pretoken, scratch, out, make, pulse);
        } else {
            merge_long(pairs, pretoken, scratch, |_| {}, pulse)?;
        }
        out.extend(scratch.iter().map(|&symbol| make(symbol)));
        Ok(())
    }

    /// With tables from the first long pre-token on.
    #[cfg(test)]
    pub(super) fn with_tables() -> Self {
        Self { n_bytes_by_queue: AtomicUsize::new(BYTES_BY_QUEUE), ..Self::default() }
    }

    /// The tables, if `n_bytes` more are reason enough to have them.
    fn backtracker(&self, vocab: &Vocab, pairs: &PairTable, n_bytes: usize) -> Option<&Backtracker> {
        if let Some(made) = self.backtracker.get() {
            return made.as_ref();
        }
        let before = self.n_bytes_by_queue.fetch_add(n_bytes, Relaxed);
        if before + n_bytes <= BYTES_BY_QUEUE {
            return None;
        }
        let make = || Backtracker::new(vocab, pairs);
        if n_bytes > BYTES_BY_QUEUE / 2 {
            // By the queue this one would take as long as another thread does to make them.
            return self.backtracker.wait_or_make(make).as_ref();
        }
        self.backtracker.get_or_make(make)?.as_ref()
    }
}
