//! The threads that count.

use super::spill::Spill;
use crate::error::{Error, Result};
use crate::hash::long_hash;
use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::pretokenize::Pattern;
use crate::pulse::no_pulse;
use crate::special::{Segment, SpecialTokens};
use crate::tally::Table;
use crossbeam_channel::{Receiver, Sender};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Texts that a thread counts at a time.
#[derive(Default)]
pub struct Chunk {
    pub text: String,
    /// Where each text ends.
    pub ends: Vec<usize>,
    /// As how many each pre-token counts.
    pub weight: u64,
}

/// What all threads see.
pub struct Shared {
    pub pattern: Pattern,
    pub special: SpecialTokens,
    pub stop: AtomicBool,
    pub failure: Mutex<Option<Error>>,
    pub n_pretokens: AtomicU64,
    /// How often each special token was met with.
    pub n_special: Vec<AtomicU64>,
    /// Pre-tokens, each as many as its weight says.
    pub n_weighted: Mutex<u128>,
    /// Of the tables' hashes.
    pub seed: u64,
    /// What a thread's table may take; beyond it the table is written to disk.
    pub table_bytes: usize,
    pub spill: Spill,
}

impl Shared {
    /// Keeps the first error, and tells the threads to end.
    fn fail(&self, error: Error) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Writes a full table to disk, where there is a place for it, and empties it.
    #[cold]
    fn spill(&self, table: &mut Table) -> Result<()> {
        if table.n_unique() > 0 && self.spill.write(table, false, &|| self.check_stop())? {
            table.clear(self.table_bytes);
        }
        Ok(())
    }
}

/// A counting thread: chunks in, one table out.
pub fn count_chunks(shared: &Shared, chunks: &Receiver<Chunk>, recycle: &Sender<Chunk>, mut table: Table) -> Table {
    let mut workspace = Workspace::default();
    let (mut n_pretokens, mut n_weighted) = (0, 0);
    let mut n_special = vec![0; shared.n_special.len()];
    for chunk in chunks {
        let mut start = 0;
        let mut n_in_chunk = 0;
        for &end in &chunk.ends {
            let counted = shared.special.segments(&chunk.text[start..end], &no_pulse, |segment| match segment {
                Segment::Text(text) => {
                    n_in_chunk += count_text(shared, text, chunk.weight, &mut table, &mut workspace)?;
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
    for (all, n) in shared.n_special.iter().zip(n_special) {
        all.fetch_add(n, Ordering::Relaxed);
    }
    if let Ok(mut all) = shared.n_weighted.lock() {
        *all += n_weighted;
    }
    table
}

#[derive(Default)]
struct Workspace {
    ends: Vec<usize>,
    keys: Vec<(Packed, u64)>,
    long: Vec<(Range<usize>, u64)>,
}

/// Counts the pre-tokens of a text without special tokens; gives their number.
fn count_text(shared: &Shared, text: &str, weight: u64, table: &mut Table, workspace: &mut Workspace) -> Result<u64> {
    let Workspace { ends, keys, long } = workspace;
    let bytes = text.as_bytes();
    let mut n_pretokens = 0;
    let mut splits = shared.pattern.splits(text);
    let mut start = 0;
    while splits.fill(ends)? {
        shared.check_stop()?;
        keys.clear();
        long.clear();
        for &end in ends.iter() {
            if end - start <= PACKED_BYTES {
                let key = pack(bytes, start, end);
                let hash = key.hash();
                table.prefetch(hash);
                keys.push((key, hash));
            } else {
                let hash = long_hash(&bytes[start..end], shared.seed);
                table.long.prefetch(hash);
                long.push((start..end, hash));
            }
            start = end;
        }
        for &(key, hash) in keys.iter() {
            table.add(key, hash, weight);
        }
        for (range, hash) in long.drain(..) {
            table.long.add(&bytes[range], hash, weight);
        }
        n_pretokens += ends.len() as u64;
        if shared.table_bytes < usize::MAX && table.is_full(shared.table_bytes) {
            shared.spill(table)?;
        }
    }
    Ok(n_pretokens)
}
