//! The tables that were written to disk.

use super::pretoken_counts::PretokenCounts;
use super::runs::{Run, merge_runs, write_table};
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of runs merged at once. Each takes an open file and a buffer per thread.
const MAX_RUNS: usize = 64;

/// Maximum bytes per read of a run.
pub const READ_BYTES: usize = 1 << 16;

/// The folder for runs, and the runs written so far.
#[derive(Default)]
pub struct Spill(Mutex<State>);

#[derive(Default)]
struct State {
    folder: Option<PathBuf>,
    runs: Vec<Run>,
    next_number: u64,
    cost: SpillCost,
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
    fn state(&self) -> MutexGuard<'_, State> {
        // No update of the state can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enables spilling to `folder`, which must exist.
    pub fn set_folder(&self, folder: PathBuf) {
        self.state().folder = Some(folder);
    }

    pub fn has_folder(&self) -> bool {
        self.state().folder.is_some()
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
        self.add_run(run);
        Ok(true)
    }

    /// Merges runs until no more than [`MAX_RUNS`] are left. Leaves the files of merged runs in place, because an
    /// earlier checkpoint may name them.
    pub fn merge_many(&self, buffer_bytes: usize, durable: bool, interrupt: Interrupt) -> Result<()> {
        loop {
            let runs = self.runs();
            let Some(oldest) = runs.get(..MAX_RUNS).filter(|_| runs.len() > MAX_RUNS) else { return Ok(()) };
            let Some(path) = self.new_path("run") else { return Ok(()) };
            let started = Instant::now();
            let merged = merge_runs(oldest, &path, buffer_bytes, durable, interrupt)?;
            self.add_cost(merged.n_bytes, 0, started);
            self.state().runs.drain(..MAX_RUNS);
            self.add_run(merged);
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        self.state().runs.clone()
    }

    pub fn add_run(&self, run: Run) {
        self.state().runs.push(run);
    }

    pub fn cost(&self) -> SpillCost {
        self.state().cost
    }

    pub fn add_cost(&self, n_bytes: u64, n_runs: u64, started: Instant) {
        let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = &mut self.state().cost;
        cost.n_bytes += n_bytes;
        cost.n_runs += n_runs;
        cost.nanoseconds = cost.nanoseconds.saturating_add(nanoseconds);
    }

    pub fn next_number(&self) -> u64 {
        self.state().next_number
    }

    /// Restores the state of an earlier process.
    pub fn resume(&self, folder: PathBuf, runs: Vec<Run>, next_number: u64, cost: SpillCost) {
        *self.state() = State { folder: Some(folder), runs, next_number, cost };
    }
}
