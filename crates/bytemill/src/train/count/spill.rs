//! The tables that were written to disk.

use super::pretoken_counts::PretokenCounts;
use super::runs::{Run, merge_runs, write_table};
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use crate::train::parts::lock;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Maximum number of runs merged at once. Each takes an open file and a buffer per thread.
const MAX_RUNS: usize = 64;

/// Maximum bytes per read of a run.
pub const READ_BYTES: usize = 1 << 16;

/// The folder for runs, and the runs written so far.
#[derive(Default)]
pub struct Spill(Mutex<State>);

#[derive(Default)]
pub struct State {
    /// Enables spilling; exists.
    pub folder: Option<PathBuf>,
    pub runs: Vec<Run>,
    /// Number of the next file.
    pub next_number: u64,
    pub cost: SpillCost,
}

/// The cost of spilling.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SpillCost {
    /// Bytes written to disk.
    pub n_bytes: u64,
    /// Tables written to disk.
    pub n_runs: u64,
    /// Total time of all writing threads.
    pub nanoseconds: u64,
}

impl Spill {
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// The path of a new file in the folder.
    pub fn new_path(&self, kind: &str) -> Option<PathBuf> {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.folder.as_ref().map(|folder| folder.join(format!("{kind}-{number:06}")))
    }

    /// Writes a table as a run; false without a folder.
    pub fn write(&self, table: &PretokenCounts, durable: bool, interrupt: Interrupt) -> Result<bool> {
        let Some(path) = self.new_path("run") else { return Ok(false) };
        let started = Instant::now();
        let run = write_table(table, &path, durable, interrupt)?;
        self.add_cost(run.n_bytes, 1, started);
        self.state().runs.push(run);
        Ok(true)
    }

    /// Merges runs until no more than [`MAX_RUNS`] are left. Leaves the files of merged runs in place, because an
    /// earlier checkpoint may name them.
    pub fn merge_many(&self, buffer_bytes: usize, durable: bool, interrupt: Interrupt) -> Result<()> {
        loop {
            let runs = self.state().runs.clone();
            let Some(oldest) = runs.get(..MAX_RUNS).filter(|_| runs.len() > MAX_RUNS) else { return Ok(()) };
            let Some(path) = self.new_path("run") else { return Ok(()) };
            let started = Instant::now();
            let merged = merge_runs(oldest, &path, buffer_bytes, durable, interrupt)?;
            self.add_cost(merged.n_bytes, 0, started);
            let runs = &mut self.state().runs;
            runs.drain(..MAX_RUNS);
            runs.push(merged);
        }
    }

    pub fn add_cost(&self, n_bytes: u64, n_runs: u64, started: Instant) {
        let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = &mut self.state().cost;
        cost.n_bytes += n_bytes;
        cost.n_runs += n_runs;
        cost.nanoseconds = cost.nanoseconds.saturating_add(nanoseconds);
    }
}
