//! Checkpoints: counting that resumes in another process.

use super::counter::Counter;
use super::pretoken_counts::PretokenCounts;
use super::spill::{READ_BYTES, Run, SpillCost};
use super::stream::{Input, Output, damaged};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// Version of the state. Runs of version 1, which states no version, are partitioned by another hash.
const VERSION: u64 = 2;

impl Counter {
    /// Writes everything counted so far to the folder. Returns the state for [`Counter::resume`] as JSON.
    ///
    /// # Errors
    /// [`Error::Output`]; as [`Counter::add_text`].
    pub fn checkpoint(&mut self, interrupt: Interrupt) -> Result<String> {
        let tables = self.drain(interrupt)?;
        let tables = self.write_tables(tables, true, interrupt)?;
        self.shared.spill.merge_many(READ_BYTES, true, interrupt)?;
        self.start(tables)?;
        let open = if self.open.is_empty() { None } else { self.write_open()? };
        let totals = self.totals();
        let cost = totals.spilled;
        let state = State {
            cost: [cost.n_bytes, cost.n_runs, cost.nanoseconds],
            n_bytes: totals.n_bytes,
            n_pretokens: totals.n_pretokens,
            n_replaced: totals.n_replaced,
            n_special: totals.n_special,
            n_weighted: self.shared.n_weighted.lock().map_or(0, |n| *n).to_string(),
            next: self.shared.spill.next_number(),
            open,
            runs: self.shared.spill.runs().iter().map(StoredFile::new).collect(),
            seed: self.shared.seed,
            version: VERSION,
        };
        serde_json::to_string(&state).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Resumes from a checkpoint whose files are in `folder`. The counter must be new and have the same pattern and
    /// special tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the state or a file is damaged, [`Error::Io`] if a file is missing.
    pub fn resume(&mut self, state: &str, folder: &Path, interrupt: Interrupt) -> Result<()> {
        let wrong = || Error::Invalid("the state of the counting is damaged, or of another version".to_owned());
        let state: State = serde_json::from_str(state).map_err(|_| wrong())?;
        if state.version != VERSION {
            return Err(wrong());
        }
        let n_tables = self.drain(interrupt)?.len();
        // All threads have ended.
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(wrong)?;
        if state.n_special.len() != shared.n_special.len() {
            return Err(wrong());
        }
        shared.seed = state.seed;
        shared.n_special = state.n_special.into_iter().map(AtomicU64::new).collect();
        shared.n_pretokens = AtomicU64::new(state.n_pretokens);
        shared.n_weighted = Mutex::new(state.n_weighted.parse().map_err(|_| wrong())?);
        let in_folder = |file: &StoredFile| file.within(folder).ok_or_else(wrong);
        let runs = state.runs.iter().map(in_folder).collect::<Result<Vec<Run>>>()?;
        for run in &runs {
            run.index()?;
        }
        let [n_bytes, n_runs, nanoseconds] = state.cost;
        shared.spill.resume(folder.to_owned(), runs, state.next, SpillCost { n_bytes, n_runs, nanoseconds });
        (self.n_bytes, self.n_replaced) = (state.n_bytes, state.n_replaced);
        if let Some(file) = &state.open {
            self.open = read_open(&in_folder(file)?)?;
        }
        self.start((0..n_tables).map(|_| PretokenCounts::new(state.seed)).collect())
    }

    /// Writes the beginning of the open document.
    fn write_open(&self) -> Result<Option<StoredFile>> {
        let Some(path) = self.shared.spill.new_path("open") else { return Ok(None) };
        let mut out = Output::create(&path)?;
        out.bytes(self.open.as_bytes())?;
        let (checksum, n_bytes) = out.checksum()?;
        out.finish(true)?;
        Ok(Some(StoredFile::new(&Run { path, n_bytes, checksum })))
    }
}

fn read_open(file: &Run) -> Result<String> {
    let mut input = Input::open(&file.path, 0, file.n_bytes, READ_BYTES)?;
    let mut bytes = Vec::new();
    input.bytes(file.n_bytes, &mut bytes)?;
    input.check(file.checksum)?;
    String::from_utf8(bytes).map_err(|_| damaged(&file.path))
}

/// What [`Counter::checkpoint`] returns, as JSON with the keys in this order.
#[derive(Serialize, Deserialize)]
struct State {
    cost: [u64; 3],
    n_bytes: u64,
    n_pretokens: u64,
    n_replaced: u64,
    n_special: Vec<u64>,
    /// JSON has no numbers of 128 bits.
    n_weighted: String,
    next: u64,
    open: Option<StoredFile>,
    runs: Vec<StoredFile>,
    seed: u64,
    version: u64,
}

/// A file of the folder.
#[derive(Serialize, Deserialize)]
struct StoredFile {
    checksum: u32,
    n_bytes: u64,
    name: String,
}

impl StoredFile {
    fn new(run: &Run) -> Self {
        let name = run.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { checksum: run.checksum, n_bytes: run.n_bytes, name }
    }

    /// The file in a folder; `None` if the name leads elsewhere.
    fn within(&self, folder: &Path) -> Option<Run> {
        let is_name = !self.name.contains(['/', '\\']);
        is_name.then(|| Run { path: folder.join(&self.name), n_bytes: self.n_bytes, checksum: self.checksum })
    }
}
