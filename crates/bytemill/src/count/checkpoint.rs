//! Counting that goes on in another process.

use super::Counter;
use super::runs::Run;
use super::spill::SpillCost;
use super::stream::{Input, Output, damaged};
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Beyond this many the runs of checkpoints are merged.
const READ_BYTES: usize = 1 << 16;

impl Counter {
    /// Writes all that is counted to the folder; gives what [`Counter::resume`] needs to go on from there, as JSON.
    ///
    /// # Errors
    /// [`Error::Output`]; as [`Counter::add_text`].
    pub fn checkpoint(&mut self, pulse: Pulse) -> Result<String> {
        let tables = self.drain(pulse)?;
        let tables = self.write_tables(tables, true, pulse)?;
        self.shared.spill.merge_many(READ_BYTES, true, pulse)?;
        self.start(tables)?;
        let open = if self.open.is_empty() { Value::Null } else { self.write_open()? };
        let runs: Vec<Value> = self.shared.spill.runs().iter().map(file_to_json).collect();
        let totals = self.totals();
        let cost = totals.spilled;
        let n_weighted = self.shared.n_weighted.lock().map_or(0, |n| *n);
        let state = json!({
            "seed": self.shared.seed,
            "next": self.shared.spill.next_number(),
            "runs": runs,
            "open": open,
            "n_bytes": totals.n_bytes,
            "n_pretokens": totals.n_pretokens,
            "n_special": totals.n_special,
            "n_replaced": totals.n_replaced,
            "n_weighted": n_weighted.to_string(),
            "cost": [cost.n_bytes, cost.n_runs, cost.nanoseconds],
        });
        Ok(state.to_string())
    }

    /// Goes on from a checkpoint whose files are in `folder`. The counter must be new, with the same pattern and special
    /// tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the state or a file is not what was written, [`Error::Io`] where a file is missing.
    pub fn resume(&mut self, state: &str, folder: &Path, pulse: Pulse) -> Result<()> {
        let wrong = || Error::Invalid("the state of the counting is damaged".to_owned());
        let state: Value = serde_json::from_str(state).map_err(|_| wrong())?;
        let number = |name: &str| state[name].as_u64().ok_or_else(wrong);
        let tables = self.drain(pulse)?;
        let Some(shared) = std::sync::Arc::get_mut(&mut self.shared) else { return Err(wrong()) };
        shared.seed = number("seed")?;
        let n_special = state["n_special"].as_array().filter(|all| all.len() == shared.n_special.len());
        for (n, value) in shared.n_special.iter().zip(n_special.ok_or_else(wrong)?) {
            n.store(value.as_u64().ok_or_else(wrong)?, Ordering::Relaxed);
        }
        shared.n_pretokens.store(number("n_pretokens")?, Ordering::Relaxed);
        let n_weighted = state["n_weighted"].as_str().and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
        if let Ok(mut n) = shared.n_weighted.lock() {
            *n = n_weighted;
        }
        let cost = |place: usize| state["cost"][place].as_u64().ok_or_else(wrong);
        let cost = SpillCost { n_bytes: cost(0)?, n_runs: cost(1)?, nanoseconds: cost(2)? };
        shared.spill.resume(number("next")?, cost);
        shared.spill.set_folder(folder.to_owned());
        for file in state["runs"].as_array().ok_or_else(wrong)? {
            let run = file_from_json(file, folder).ok_or_else(wrong)?;
            run.index()?;
            shared.spill.add_run(run);
        }
        (self.n_bytes, self.n_replaced) = (number("n_bytes")?, number("n_replaced")?);
        if !state["open"].is_null() {
            self.open = read_open(&file_from_json(&state["open"], folder).ok_or_else(wrong)?)?;
        }
        self.start(tables)
    }

    /// Writes the beginning of the document that is still coming.
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
