//! The end of counting: adding up the tables, in memory or on disk.

use super::counter::{Counter, Totals};
use super::counts::{Counts, Merged, PartFile, Scale};
use super::part::{Order, PartBuilder, sum_too_large};
use super::pretoken_counts::{N_PARTITIONS, PretokenCounts};
use super::spill::{READ_BYTES, Run, merge_partition};
use crate::batch::parallel;
use crate::batch::parallel::map_parts;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::sys::memory::check_available;
use std::time::Instant;

/// Counted pre-tokens.
pub enum Counted {
    /// In memory.
    Memory(Counts),
    /// On disk.
    Disk(Merged),
}

/// Which counts stay on disk, in the folder of [`Counter::set_folder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// None.
    Never,
    /// Those that exceed the memory limit of the tables.
    IfLarge,
    /// All.
    Always,
}

impl Counter {
    /// Waits for the counting threads and adds up their tables in memory.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn finish(self, interrupt: Interrupt) -> Result<Counts> {
        match self.finish_scaled(Scale::ONE, Stay::Never, interrupt)? {
            (Counted::Memory(mut counts), totals) => {
                counts.n_bytes = totals.n_bytes;
                Ok(counts)
            }
            (Counted::Disk(_), _) => Err(Error::Invalid("the counts are on disk".to_owned())),
        }
    }

    /// Waits for the counting threads and adds up their tables. Weights were in units of `scale`.
    ///
    /// `stay` says which counts stay on disk.
    ///
    /// # Errors
    /// As [`Counter::add_text`]; [`Error::Invalid`] if the counts add up to 2⁶⁴ or more, or shall stay on disk without a folder.
    pub fn finish_scaled(mut self, scale: Scale, stay: Stay, interrupt: Interrupt) -> Result<(Counted, Totals)> {
        self.end_open(interrupt)?;
        let mut tables = self.drain(interrupt)?;
        tables.extend(self.own_table.take());
        let n_weighted = self.shared.n_weighted.lock().map_or(u128::MAX, |n| *n);
        if u64::try_from(n_weighted).is_err() {
            return Err(sum_too_large());
        }
        let spill = &self.shared.spill;
        let stays = match stay {
            Stay::Never => false,
            Stay::IfLarge => spill.has_folder() && self.exceeds_memory(&tables),
            Stay::Always => true,
        };
        let counted = if spill.runs().is_empty() && !stays {
            check_available(tables.iter().map(sum_bytes).sum())?;
            Counted::Memory(Counts::add_up(&tables, scale, tables.len(), interrupt)?)
        } else {
            let n_threads = tables.len();
            drop(self.write_tables(tables, false, interrupt)?);
            self.merge_runs(scale, stay != Stay::Never, n_threads, interrupt)?
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
    fn merge_runs(&self, scale: Scale, may_stay: bool, n_threads: usize, interrupt: Interrupt) -> Result<Counted> {
        let started = Instant::now();
        let spill = &self.shared.spill;
        let buffer_bytes = (self.shared.table_bytes / 4 / spill.runs().len().max(1)).clamp(1 << 12, READ_BYTES);
        spill.merge_many(buffer_bytes, false, interrupt)?;
        let runs = spill.runs().iter().map(Run::index).collect::<Result<Vec<_>>>()?;
        let merge = |partition, order, interrupt: Interrupt| {
            let mut part = PartBuilder::new(order);
            merge_partition(&runs, partition, buffer_bytes, interrupt, |pretoken, total| {
                part.push(pretoken, scale.round(total));
                Ok(())
            })?;
            Ok(part.finish())
        };
        let (counted, n_bytes) = if may_stay {
            let parts = parallel::map(N_PARTITIONS, n_threads, interrupt, |partition, interrupt| {
                let part = merge(partition, Order::Bytes, interrupt)?;
                let path = spill.new_path("part").ok_or_else(no_folder)?;
                PartFile::write(&part, &path)
            })?;
            let merged = Merged::new(parts)?;
            let n_bytes = merged.n_file_bytes();
            (Counted::Disk(merged), n_bytes)
        } else {
            let parts = parallel::map(N_PARTITIONS, n_threads, interrupt, |partition, interrupt| {
                merge(partition, Order::Any, interrupt)
            })?;
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

fn no_folder() -> Error {
    Error::Invalid("counts can stay on disk only with a folder".to_owned())
}
