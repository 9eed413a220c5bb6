//! The tables that were written to disk, sorted runs, and merging them.

use super::PRETOKENS_PER_CHECK;
use super::pretoken_counts::{N_PARTITIONS, PretokenCounts};
use super::stream::{Input, Output, damaged};
use crate::error::{Error, Result};
use crate::sys::hash::PACKED_BYTES;
use crate::sys::interrupt::{Interrupt, InterruptPeriod};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};
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

// Sorted runs: tables on disk, and merging them.
//
// A run holds the entries of one table, partition by partition of the hash. Within a partition, short pre-tokens
// precede long ones, and both are sorted by their bytes. So runs are merged partition by partition, several partitions
// at a time, with one small buffer per run in memory.

/// Bytes of a run's index: the end and the checksum of each partition, and the checksum of the index.
const INDEX_BYTES: u64 = 12 * N_PARTITIONS as u64 + 4;

/// A run on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub path: PathBuf,
    pub n_bytes: u64,
    /// Checksum of the index, which contains the checksums of the partitions.
    pub checksum: u32,
}

/// Writes the entries of a table as a run.
pub fn write_table(table: &PretokenCounts, path: &Path, durable: bool, interrupt: Interrupt) -> Result<Run> {
    let mut writer = RunWriter::create(path)?;
    let mut short = Vec::new();
    let mut long: Vec<(&[u8], u64)> = Vec::new();
    for partition in 0..N_PARTITIONS {
        interrupt()?;
        short.clear();
        short.extend(table.short_in(partition).map(|entry| (entry.key.order(), entry.count)));
        short.sort_unstable();
        for &(order, count) in &short {
            let bytes = order.to_be_bytes();
            writer.entry(&bytes[..usize::from(bytes[15])], count)?;
        }
        long.clear();
        long.extend(table.long_in(partition));
        long.sort_unstable();
        for &(pretoken, count) in &long {
            writer.entry(pretoken, count)?;
        }
        writer.end_partition()?;
    }
    writer.finish(durable)
}

struct RunWriter {
    out: Output,
    path: PathBuf,
    index: Vec<u8>,
}

impl RunWriter {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self { out: Output::create(path)?, path: path.to_owned(), index: Vec::new() })
    }

    fn entry(&mut self, pretoken: &[u8], count: u64) -> Result<()> {
        self.out.number(count)?;
        self.out.pretoken(pretoken)
    }

    fn end_partition(&mut self) -> Result<()> {
        let (checksum, end) = self.out.checksum()?;
        self.index.extend_from_slice(&end.to_le_bytes());
        self.index.extend_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn finish(mut self, durable: bool) -> Result<Run> {
        let checksum = crc32fast::hash(&self.index);
        self.out.bytes(&self.index)?;
        self.out.bytes(&checksum.to_le_bytes())?;
        let n_bytes = self.out.finish(durable)?;
        Ok(Run { path: self.path, n_bytes, checksum })
    }
}

/// The partitions of a run.
pub struct Index {
    path: PathBuf,
    /// End and checksum of each partition.
    ends: Vec<(u64, u32)>,
}

impl Run {
    /// Reads the index.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file is not the one that was written.
    pub fn index(&self) -> Result<Index> {
        let wrong = || damaged(&self.path);
        let size = std::fs::metadata(&self.path)?.len();
        let start = self.n_bytes.checked_sub(INDEX_BYTES).filter(|_| size == self.n_bytes).ok_or_else(wrong)?;
        let mut bytes = Vec::new();
        Input::open(&self.path, start, INDEX_BYTES, 1 << 10)?.bytes(INDEX_BYTES, &mut bytes)?;
        let (entries, checksum) = bytes.split_at(12 * N_PARTITIONS);
        let actual = crc32fast::hash(entries);
        if actual != self.checksum || checksum != actual.to_le_bytes() {
            return Err(wrong());
        }
        let (entries, _) = entries.as_chunks::<12>();
        let ends: Vec<(u64, u32)> = entries
            .iter()
            .map(|&[a, b, c, d, e, f, g, h, checksum @ ..]| {
                (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(checksum))
            })
            .collect();
        let is_valid = ends.is_sorted_by_key(|&(end, _)| end) && ends.last().is_some_and(|&(end, _)| end == start);
        if is_valid { Ok(Index { path: self.path.clone(), ends }) } else { Err(wrong()) }
    }
}

impl Index {
    fn open(&self, partition: usize, buffer_bytes: usize) -> Result<RunReader> {
        let start = if partition == 0 { 0 } else { self.ends[partition - 1].0 };
        let (end, checksum) = self.ends[partition];
        let input = Input::open(&self.path, start, end - start, buffer_bytes)?;
        Ok(RunReader { pretoken: Vec::new(), count: 0, input, checksum })
    }
}

/// Reads a partition of a run.
struct RunReader {
    pretoken: Vec<u8>,
    count: u64,
    input: Input,
    checksum: u32,
}

impl RunReader {
    fn order(&self) -> (bool, &[u8]) {
        (self.pretoken.len() > PACKED_BYTES, &self.pretoken)
    }
}

impl SortedInput for RunReader {
    fn advance(&mut self) -> Result<bool> {
        if self.input.is_done() {
            self.input.check(self.checksum)?;
            return Ok(false);
        }
        self.count = self.input.number()?;
        self.input.pretoken(&mut self.pretoken)?;
        Ok(true)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Calls `each` with the pre-tokens of a partition, in order, and the sums of their counts.
pub fn merge_partition(
    runs: &[Index],
    partition: usize,
    buffer_bytes: usize,
    interrupt: Interrupt,
    mut each: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let inputs = runs.iter().map(|run| run.open(partition, buffer_bytes));
    let (mut pretoken, mut total) = (Vec::new(), 0u64);
    merge_sorted(inputs, interrupt, |input| {
        if input.pretoken == pretoken {
            let too_large = || Error::Invalid("the counts are too large: they add up to at least 2^64".to_owned());
            total = total.checked_add(input.count).ok_or_else(too_large)?;
            return Ok(());
        }
        if total > 0 {
            each(&pretoken, total)?;
        }
        std::mem::swap(&mut pretoken, &mut input.pretoken);
        total = input.count;
        Ok(())
    })?;
    if total > 0 { each(&pretoken, total) } else { Ok(()) }
}

/// Merges several runs into one.
pub fn merge_runs(runs: &[Run], path: &Path, buffer_bytes: usize, durable: bool, interrupt: Interrupt) -> Result<Run> {
    let indexes = runs.iter().map(Run::index).collect::<Result<Vec<_>>>()?;
    let mut writer = RunWriter::create(path)?;
    for partition in 0..N_PARTITIONS {
        interrupt()?;
        merge_partition(&indexes, partition, buffer_bytes, interrupt, |pretoken, count| writer.entry(pretoken, count))?;
        writer.end_partition()?;
    }
    writer.finish(durable)
}

// K-way merge of sorted inputs.

/// A sorted sequence that is read entry by entry.
pub trait SortedInput {
    /// Moves to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool>;

    /// Compares the current entries. The lesser one comes first.
    fn compare(&self, other: &Self) -> Ordering;
}

/// Orders inputs for a max-heap with the least entry on top.
struct Head<I>(I);

impl<I: SortedInput> Ord for Head<I> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.compare(&self.0)
    }
}

impl<I: SortedInput> PartialOrd for Head<I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<I: SortedInput> PartialEq for Head<I> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<I: SortedInput> Eq for Head<I> {}

/// Calls `each` with the input of every entry, in order. `each` may take the entry's contents, but not more.
pub fn merge_sorted<I: SortedInput>(
    inputs: impl Iterator<Item = Result<I>>,
    interrupt: Interrupt,
    mut each: impl FnMut(&mut I) -> Result<()>,
) -> Result<()> {
    let mut heap = BinaryHeap::new();
    for input in inputs {
        let mut input = input?;
        if input.advance()? {
            heap.push(Head(input));
        }
    }
    let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
    while let Some(mut head) = heap.peek_mut() {
        each(&mut head.0)?;
        if !head.0.advance()? {
            PeekMut::pop(head);
        }
        checks.advance(1)?;
    }
    Ok(())
}
