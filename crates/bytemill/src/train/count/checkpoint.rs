//! Checkpoints: counting that resumes in another process.

use super::counter::Counter;
use super::pretoken_counts::PretokenCounts;
use super::runs::Run;
use super::spill::{READ_BYTES, SpillCost, State};
use super::stream::{Input, Output, damaged};
use super::worker::CountedTotals;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::train::parts::lock;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

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
        let open = if self.open.is_empty() { Value::Null } else { self.write_open()? };
        let totals = lock(&self.shared.totals);
        let spill = self.shared.spill.state();
        let state = json!({
            "version": VERSION,
            "seed": self.shared.seed,
            "next": spill.next_number,
            "runs": spill.runs.iter().map(file_to_json).collect::<Vec<_>>(),
            "open": open,
            "n_bytes": self.n_bytes,
            "n_pretokens": totals.n_pretokens,
            "n_special": totals.n_special,
            "n_replaced": self.n_replaced,
            "n_weighted": totals.n_weighted.to_string(),
            "cost": [spill.cost.n_bytes, spill.cost.n_runs, spill.cost.nanoseconds],
        });
        Ok(state.to_string())
    }

    /// Resumes from a checkpoint whose files are in `folder`. The counter must be new and have the same pattern and
    /// special tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the state or a file is damaged, [`Error::Io`] if a file is missing.
    pub fn resume(&mut self, state: &str, folder: &Path, interrupt: Interrupt) -> Result<()> {
        let wrong = || Error::Invalid("the state of the counting is damaged, or of another version".to_owned());
        let state: Value = serde_json::from_str(state).map_err(|_| wrong())?;
        let number = |value: &Value| value.as_u64().ok_or_else(wrong);
        if state["version"] != VERSION {
            return Err(wrong());
        }
        let n_tables = self.drain(interrupt)?.len();
        // All threads have ended.
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(wrong)?;
        shared.seed = number(&state["seed"])?;
        let numbers = state["n_special"].as_array().ok_or_else(wrong)?;
        let n_special: Vec<u64> = numbers.iter().map(number).collect::<Result<_>>()?;
        if n_special.len() != lock(&shared.totals).n_special.len() {
            return Err(wrong());
        }
        *lock(&shared.totals) = CountedTotals {
            n_pretokens: number(&state["n_pretokens"])?,
            n_weighted: state["n_weighted"].as_str().and_then(|n| n.parse().ok()).ok_or_else(wrong)?,
            n_special,
        };
        let files = state["runs"].as_array().ok_or_else(wrong)?.iter();
        let runs: Vec<Run> = files.map(|file| file_from_json(file, folder)).collect::<Option<_>>().ok_or_else(wrong)?;
        for run in &runs {
            run.index()?;
        }
        let [n_bytes, n_runs, nanoseconds] = [0, 1, 2].map(|index| number(&state["cost"][index]));
        *shared.spill.state() = State {
            folder: Some(folder.to_owned()),
            runs,
            next_number: number(&state["next"])?,
            cost: SpillCost { n_bytes: n_bytes?, n_runs: n_runs?, nanoseconds: nanoseconds? },
        };
        let seed = shared.seed;
        (self.n_bytes, self.n_replaced) = (number(&state["n_bytes"])?, number(&state["n_replaced"])?);
        if !state["open"].is_null() {
            self.open = read_open(&file_from_json(&state["open"], folder).ok_or_else(wrong)?)?;
        }
        self.start((0..n_tables).map(|_| PretokenCounts::new(seed)).collect())
    }

    /// Writes the beginning of the open document.
    fn write_open(&self) -> Result<Value> {
        let Some(path) = self.shared.spill.new_path("open") else { return Ok(Value::Null) };
        let mut out = Output::create(&path)?;
        out.bytes(self.open.as_bytes())?;
        let (checksum, n_bytes) = out.checksum()?;
        out.finish(true)?;
        Ok(file_to_json(&Run { path, n_bytes, checksum }))
    }
}

fn read_open(file: &Run) -> Result<String> {
    let mut input = Input::open(&file.path, 0, file.n_bytes, READ_BYTES)?;
    let mut bytes = Vec::new();
    input.bytes(file.n_bytes, &mut bytes)?;
    input.check(file.checksum)?;
    String::from_utf8(bytes).map_err(|_| damaged(&file.path))
}

fn file_to_json(run: &Run) -> Value {
    let name = run.path.file_name().map(|name| name.to_string_lossy().into_owned());
    json!({"name": name, "n_bytes": run.n_bytes, "checksum": run.checksum})
}

fn file_from_json(file: &Value, folder: &Path) -> Option<Run> {
    let name = file["name"].as_str().filter(|name| !name.contains(['/', '\\']))?;
    let checksum = file["checksum"].as_u64().and_then(|checksum| u32::try_from(checksum).ok())?;
    Some(Run { path: folder.join(name), n_bytes: file["n_bytes"].as_u64()?, checksum })
}
