//! What of the tables is on disk.

use super::runs::{Run, merge_runs, write_table};
use crate::error::Result;
use crate::pulse::Pulse;
use crate::tally::Table;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Most runs that are merged at once: each of them takes an open file and a buffer for every thread.
const MOST_RUNS: usize = 64;

/// Bytes read of a run at once, at most.
pub const READ_BYTES: usize = 1 << 16;

/// The runs that were written, and what it cost.
#[derive(Default)]
pub struct Spill {
    folder: Mutex<Option<PathBuf>>,
    runs: Mutex<Vec<Run>>,
    /// Number of the next file.
    next: AtomicU64,
    n_bytes: AtomicU64,
    n_runs: AtomicU64,
    nanoseconds: AtomicU64,
}

/// What spilling cost.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SpillCost {
    /// Bytes written to disk.
    pub n_bytes: u64,
    /// Tables written to disk.
    pub n_runs: u64,
    /// Time of the threads that wrote them, added up.
    pub nanoseconds: u64,
}

impl Spill {
    /// From now on there is a place to write to.
    pub fn set_folder(&self, folder: PathBuf) {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
    }

    pub fn has_folder(&self) -> bool {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A new file in the folder.
    pub fn new_path(&self, kind: &str) -> Option<PathBuf> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        folder.as_ref().map(|folder| folder.join(format!("{kind}-{number:06}")))
    }

    /// Writes a table; false where there is no place to write to.
    pub fn write(&self, table: &Table, durable: bool, pulse: Pulse) -> Result<bool> {
        let Some(path) = self.new_path("run") else { return Ok(false) };
        let started = Instant::now();
        let run = write_table(table, &path, durable, pulse)?;
        self.n_bytes.fetch_add(run.n_bytes, Ordering::Relaxed);
        self.n_runs.fetch_add(1, Ordering::Relaxed);
        self.add_time(started);
        self.add_run(run);
        Ok(true)
    }

    /// Sees to it that no more runs are left than can be merged at once. The files of those that were merged stay.
    pub fn merge_many(&self, buffer_bytes: usize, durable: bool, pulse: Pulse) -> Result<()> {
        loop {
            let runs = self.runs();
            let Some(several) = runs.get(..MOST_RUNS).filter(|_| runs.len() > MOST_RUNS) else { return Ok(()) };
            let Some(path) = self.new_path("run") else { return Ok(()) };
            let started = Instant::now();
            let merged = merge_runs(several, &path, buffer_bytes, durable, pulse)?;
            self.n_bytes.fetch_add(merged.n_bytes, Ordering::Relaxed);
            self.add_time(started);
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).drain(..MOST_RUNS);
            self.add_run(merged);
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn add_run(&self, run: Run) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    pub fn add_time(&self, started: Instant) {
        let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub fn add_bytes(&self, n_bytes: u64) {
        self.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
    }

    pub fn next_number(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Takes up what an earlier process has left.
    pub fn resume(&self, next: u64, cost: SpillCost) {
        self.next.store(next, Ordering::Relaxed);
        self.n_bytes.store(cost.n_bytes, Ordering::Relaxed);
        self.n_runs.store(cost.n_runs, Ordering::Relaxed);
        self.nanoseconds.store(cost.nanoseconds, Ordering::Relaxed);
    }

    pub fn cost(&self) -> SpillCost {
        SpillCost {
            n_bytes: self.n_bytes.load(Ordering::Relaxed),
            n_runs: self.n_runs.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }
}
