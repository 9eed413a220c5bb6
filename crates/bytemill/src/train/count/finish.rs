//! The end of counting: adding up the tables, in memory or on disk.

use super::counter::{Counter, Totals};
use super::counts::Counts;
use super::merged::{Merged, PartFile};
use super::part::{PartBuilder, sum_too_large};
use super::pretoken_counts::{N_PARTITIONS, PretokenCounts};
use super::runs::{Run, merge_partition};
use super::scale::scaled;
use super::spill::READ_BYTES;
use crate::batch::parallel;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::sys::memory::check_available;
use crate::train::parts::{lock, map_parts};
use std::time::Instant;

/// Counted pre-tokens.
pub enum Counted {
    /// In memory.
    Memory(Counts),
    /// On disk.
    Disk(Merged),
}

impl Counter {
    /// Waits for the counting threads and adds up their tables in memory.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn finish(self, interrupt: Interrupt) -> Result<Counts> {
        match self.finish_scaled(1, false, interrupt)? {
            (Counted::Memory(mut counts), totals) => {
                counts.n_bytes = totals.n_bytes;
                Ok(counts)
            }
            (Counted::Disk(_), _) => Err(Error::Invalid("the counts are on disk".to_owned())),
        }
    }

    /// Waits for the counting threads and adds up their tables. Weights were in units of 1 / `denominator`.
    ///
    /// With `may_stay`, counts that exceed the memory limit of the tables stay on disk.
    ///
    /// # Errors
    /// As [`Counter::add_text`]; [`Error::Invalid`] if the counts add up to 2⁶⁴ or more.
    pub fn finish_scaled(
        mut self,
        denominator: u64,
        may_stay: bool,
        interrupt: Interrupt,
    ) -> Result<(Counted, Totals)> {
        self.end_open(interrupt)?;
        let mut tables = self.drain(interrupt)?;
        tables.extend(self.own_table.take());
        if lock(&self.shared.totals).n_weighted >= 1 << 64 {
            return Err(sum_too_large());
        }
        let denominator = denominator.max(1);
        let (has_folder, has_runs) = {
            let spill = self.shared.spill.state();
            (spill.folder.is_some(), !spill.runs.is_empty())
        };
        let counted = if has_runs || may_stay && has_folder && self.exceeds_memory(&tables) {
            let n_threads = tables.len();
            drop(self.write_tables(tables, false, interrupt)?);
            self.merge_runs(denominator, may_stay, n_threads, interrupt)?
        } else {
            check_available(tables.iter().map(sum_bytes).sum())?;
            Counted::Memory(Counts::add_up(&tables, denominator, tables.len(), interrupt)?)
        };
        Ok((counted, self.totals()))
    }

    /// True if adding up the tables in memory would exceed their limit: the pre-tokens are then in memory three times.
    fn exceeds_memory(&self, tables: &[PretokenCounts]) -> bool {
        let needed = tables.iter().map(|table| table.memory() + sum_bytes(table));
        let table_bytes = self.shared.table_bytes;
        table_bytes < usize::MAX && needed.sum::<usize>() > table_bytes.saturating_mul(tables.len())
    }

    /// Merges all runs, partition by partition.
    fn merge_runs(&self, denominator: u64, may_stay: bool, n_threads: usize, interrupt: Interrupt) -> Result<Counted> {
        let started = Instant::now();
        let spill = &self.shared.spill;
        let n_runs = spill.state().runs.len();
        let buffer_bytes = (self.shared.table_bytes / 4 / n_runs.max(1)).clamp(1 << 12, READ_BYTES);
        spill.merge_many(buffer_bytes, false, interrupt)?;
        let runs = spill.state().runs.iter().map(Run::index).collect::<Result<Vec<_>>>()?;
        let merge = |partition, interrupt: Interrupt| {
            let mut part = PartBuilder::default();
            merge_partition(&runs, partition, buffer_bytes, interrupt, |pretoken, total| {
                part.push(pretoken, scaled(total, denominator));
                Ok(())
            })?;
            Ok(part.finish())
        };
        let (counted, n_bytes) = if may_stay {
            let parts = parallel::map(N_PARTITIONS, n_threads, interrupt, |partition, interrupt| {
                let part = merge(partition, interrupt)?;
                // There is a folder, since there are runs.
                let path = spill.new_path("part").ok_or(Error::Interrupted)?;
                PartFile::write(part, &path, interrupt)
            })?;
            let n_bytes = parts.iter().map(|part| part.n_bytes).sum();
            (Counted::Disk(Merged::new(parts)?), n_bytes)
        } else {
            let parts = parallel::map(N_PARTITIONS, n_threads, interrupt, merge)?;
            (Counted::Memory(Counts::from_parts(parts)?), 0)
        };
        spill.add_cost(n_bytes, 0, started);
        Ok(counted)
    }

    /// Writes tables with entries to the folder, if there is one, and returns them empty.
    pub(super) fn write_tables(
        &self,
        tables: Vec<PretokenCounts>,
        durable: bool,
        interrupt: Interrupt,
    ) -> Result<Vec<PretokenCounts>> {
        let n_threads = tables.len();
        map_parts(tables, n_threads, interrupt, |_, mut table, interrupt| {
            if table.n_unique() > 0 && self.shared.spill.write(&table, durable, interrupt)? {
                table.clear(0);
            }
            Ok(table)
        })
    }
}

/// Bytes that adding up takes for a table: its pre-tokens and their lengths, in parts and joined.
fn sum_bytes(table: &PretokenCounts) -> usize {
    2 * (table.max_pretoken_bytes() + table.n_unique())
}
