//! The counting threads.

use super::pretoken_counts::PretokenCounts;
use super::spill::Spill;
use crate::error::{Error, Result};
use crate::pretokenize::Pattern;
use crate::special::{Segment, SpecialTokens};
use crate::sys::hash::{PACKED_BYTES, Packed, long_hash, pack};
use crate::sys::interrupt::no_interrupt;
use crossbeam_channel::{Receiver, Sender};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Texts that a thread counts at once.
#[derive(Default)]
pub struct Chunk {
    pub text: String,
    /// End of each text.
    pub ends: Vec<usize>,
    /// Weight of each pre-token.
    pub weight: u64,
}

/// State shared by all threads.
pub struct Shared {
    pub pattern: Pattern,
    pub special: SpecialTokens,
    pub stop: AtomicBool,
    pub failure: Mutex<Option<Error>>,
    pub n_pretokens: AtomicU64,
    /// Occurrences of each special token.
    pub n_special: Vec<AtomicU64>,
    /// Sum of the weights of all pre-tokens.
    pub n_weighted: Mutex<u128>,
    /// Seed of all tables.
    pub seed: u64,
    /// Memory limit of each table. A full table is written to disk.
    pub table_bytes: usize,
    pub spill: Spill,
}

impl Shared {
    /// Keeps the first error and stops all threads.
    fn fail(&self, error: Error) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Writes a table to disk and empties it, if it is full and there is a folder.
    pub fn spill_if_full(&self, table: &mut PretokenCounts) -> Result<()> {
        if self.table_bytes < usize::MAX && table.n_unique() > 0 && table.is_full(self.table_bytes) {
            self.spill_table(table)?;
        }
        Ok(())
    }

    #[cold]
    fn spill_table(&self, table: &mut PretokenCounts) -> Result<()> {
        if self.spill.write(table, false, &|| self.check_stop())? {
            table.clear(self.table_bytes);
        }
        Ok(())
    }
}

/// Counts chunks until their channel is closed, then returns the table. Sends counted chunks to `recycle`.
pub fn count_chunks(
    shared: &Shared,
    chunks: &Receiver<Chunk>,
    recycle: &Sender<Chunk>,
    mut table: PretokenCounts,
) -> PretokenCounts {
    let mut hashed = HashedPretokens::default();
    let (mut n_pretokens, mut n_weighted) = (0, 0);
    let mut n_special = vec![0; shared.n_special.len()];
    for chunk in chunks {
        let mut start = 0;
        let mut n_in_chunk = 0;
        for &end in &chunk.ends {
            let counted =
                shared.special.segments(&chunk.text[start..end], true, &no_interrupt, |segment| match segment {
                    Segment::Text(text) => {
                        n_in_chunk += count_text(shared, text, chunk.weight, &mut table, &mut hashed)?;
                        Ok(())
                    }
                    Segment::Special(id) => {
                        n_special[id as usize] += 1;
                        Ok(())
                    }
                });
            start = end;
            if let Err(error) = counted {
                shared.fail(error);
                return table;
            }
        }
        n_pretokens += n_in_chunk;
        n_weighted += u128::from(n_in_chunk) * u128::from(chunk.weight);
        let _ = recycle.send(chunk);
    }
    shared.n_pretokens.fetch_add(n_pretokens, Ordering::Relaxed);
    for (total, n) in shared.n_special.iter().zip(n_special) {
        total.fetch_add(n, Ordering::Relaxed);
    }
    if let Ok(mut total) = shared.n_weighted.lock() {
        *total += n_weighted;
    }
    table
}

#[derive(Default)]
struct HashedPretokens {
    ends: Vec<usize>,
    short: Vec<(Packed, u64)>,
    long: Vec<(Range<usize>, u64)>,
}

/// Counts the pre-tokens of a text without special tokens and returns their number.
fn count_text(
    shared: &Shared,
    text: &str,
    weight: u64,
    table: &mut PretokenCounts,
    hashed: &mut HashedPretokens,
) -> Result<u64> {
    let HashedPretokens { ends, short, long } = hashed;
    let bytes = text.as_bytes();
    let seed = shared.seed;
    let mut n_pretokens = 0;
    let mut splits = shared.pattern.splits(text);
    let mut start = 0;
    while splits.fill(ends)? {
        shared.check_stop()?;
        short.clear();
        long.clear();
        // Prefetch the entries of all pre-tokens of a batch, then count them.
        for &end in ends.iter() {
            if end - start <= PACKED_BYTES {
                let key = pack(bytes, start, end);
                let hash = key.hash_seeded(seed);
                table.prefetch_short(hash);
                short.push((key, hash));
            } else {
                let hash = long_hash(&bytes[start..end], seed);
                table.prefetch_long(hash);
                long.push((start..end, hash));
            }
            start = end;
        }
        table.reserve(short.len(), long.len(), long.iter().map(|(range, _)| range.len()).sum())?;
        for &(key, hash) in short.iter() {
            table.add_short(key, hash, weight);
        }
        for (range, hash) in long.drain(..) {
            table.add_long(&bytes[range], hash, weight);
        }
        n_pretokens += ends.len() as u64;
        shared.spill_if_full(table)?;
    }
    Ok(n_pretokens)
}
