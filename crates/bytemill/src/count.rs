//! Counting the pre-tokens of a corpus, on several threads.
//!
//! The calling thread collects text into chunks and cuts them where it is harmless; every other thread counts whole
//! chunks into a table of its own; at the end the tables are added up, again by all threads. Nothing is shared or
//! locked while counting, and since counts are sums the result depends on neither threads nor chunks.
//!
//! Where the tables may take only so much memory, a thread writes a full one to disk as a sorted run and begins afresh; in
//! the end the runs are merged, partition by partition of the hash. Runs are also what a counting that is to go on in
//! another process leaves behind.

use crate::cutter::Cutter;
use crate::error::{Error, Result};
use crate::parallel;
use crate::pretokenize::Pattern;
use crate::pulse::Pulse;
use crate::special::SpecialTokens;
use crate::tally::{N_PARTITIONS, Table, random_seed};
use crate::utf8::{Malformed, Utf8Stream};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use part::{Order, PartBuilder};
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::{Chunk, Shared, count_chunks};

mod checkpoint;
mod counts;
mod documents;
mod file;
mod merged;
mod part;
mod runs;
mod scale;
mod spill;
mod stream;
mod worker;

pub use counts::Counts;
pub use file::{VERSION, read_counts, read_header, visit_file, write_counts};
pub use merged::Merged;
pub use scale::Scale;
pub use spill::SpillCost;

/// Bytes of a chunk where the caller does not say: some tens of milliseconds of counting.
pub const CHUNK_BYTES: usize = 2 << 20;

/// Bytes asked of the operating system at once.
const READ_BYTES: usize = 1 << 18;

/// What was read, as it stands in the corpus.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Bytes of text.
    pub n_bytes: u64,
    /// Pre-tokens, whatever their weights.
    pub n_pretokens: u64,
    /// How often each special token stood there, in the order given.
    pub n_special: Vec<u64>,
    /// Malformed sequences replaced by U+FFFD.
    pub n_replaced: u64,
    /// Time spent reading and in checking UTF-8, while others counted.
    pub reading: Duration,
    /// What was written to disk on the way.
    pub spilled: SpillCost,
}

/// Counted pre-tokens, wherever they are.
pub enum Counted {
    /// In memory.
    Memory(Counts),
    /// On disk.
    Disk(Merged),
}

/// Counts the pre-tokens of texts as they come.
pub struct Counter {
    shared: Arc<Shared>,
    chunk_bytes: usize,
    chunks: Option<Sender<Chunk>>,
    used: Receiver<Chunk>,
    workers: Vec<JoinHandle<Table>>,
    chunk: Chunk,
    weight: u64,
    /// The beginning of a document that is still coming, and how much of it is to be there before it is cut again.
    open: String,
    enough: usize,
    /// What this thread counts itself: words that were counted before.
    own: Option<Table>,
    n_bytes: u64,
    n_replaced: u64,
    reading: Duration,
}

impl Counter {
    /// A counter with `n_threads` threads of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for empty or repeated special tokens, [`Error::Io`] where no thread can be started.
    pub fn new(pattern: Pattern, special: &[String], n_threads: usize, chunk_bytes: usize) -> Result<Self> {
        Self::within(pattern, special, n_threads, chunk_bytes, usize::MAX)
    }

    /// As [`Counter::new`], with tables that take no more than `table_bytes` together, once there is a folder.
    ///
    /// # Errors
    /// As [`Counter::new`].
    pub fn within(
        pattern: Pattern,
        special: &[String],
        n_threads: usize,
        chunk_bytes: usize,
        table_bytes: usize,
    ) -> Result<Self> {
        let n_special = special.iter().map(|_| AtomicU64::new(0)).collect();
        let special = SpecialTokens::new(special.iter().cloned().zip(0..).collect())?;
        let n_threads = n_threads.max(1);
        let shared = Arc::new(Shared {
            pattern,
            special,
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            n_pretokens: AtomicU64::new(0),
            n_special,
            n_weighted: Mutex::new(0),
            seed: random_seed(),
            table_bytes: if table_bytes == usize::MAX { usize::MAX } else { table_bytes / n_threads },
            spill: spill::Spill::default(),
        });
        let (_, used) = unbounded();
        let mut counter = Self {
            shared,
            chunk_bytes: chunk_bytes.max(1),
            chunks: None,
            used,
            workers: Vec::new(),
            chunk: Chunk::default(),
            weight: 1,
            open: String::new(),
            enough: 0,
            own: None,
            n_bytes: 0,
            n_replaced: 0,
            reading: Duration::ZERO,
        };
        counter.start((0..n_threads).map(|_| Table::new()).collect())?;
        Ok(counter)
    }

    /// From now on full tables can be written to this folder, which is there.
    pub fn set_folder(&mut self, folder: PathBuf) {
        self.shared.spill.set_folder(folder);
    }

    /// As how many the pre-tokens of the texts from now on count.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn set_weight(&mut self, weight: u64, pulse: Pulse) -> Result<()> {
        if weight != self.weight {
            self.send_chunk(pulse)?;
            self.weight = weight.max(1);
        }
        Ok(())
    }

    /// What has been read so far; what the threads have not counted yet is not in it.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            n_bytes: self.n_bytes,
            n_pretokens: self.shared.n_pretokens.load(Ordering::Relaxed),
            n_special: self.shared.n_special.iter().map(|n| n.load(Ordering::Relaxed)).collect(),
            n_replaced: self.n_replaced,
            reading: self.reading,
            spilled: self.shared.spill.cost(),
        }
    }

    /// Starts a thread for each table.
    fn start(&mut self, tables: Vec<Table>) -> Result<()> {
        let (chunks, incoming) = bounded::<Chunk>(tables.len());
        let (recycle, used) = unbounded();
        (self.chunks, self.used) = (Some(chunks), used);
        for table in tables {
            let (shared, incoming, recycle) = (Arc::clone(&self.shared), incoming.clone(), recycle.clone());
            let worker = std::thread::Builder::new().name("bytemill-count".to_owned());
            match worker.spawn(move || count_chunks(&shared, &incoming, &recycle, table)) {
                Ok(worker) => self.workers.push(worker),
                // Where no more threads are to be had, those there are do the work. Tables go with their threads, so that
                // is only where there is nothing in them: when they are started for the first time.
                Err(_) if !self.workers.is_empty() && self.n_bytes == 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until all that came is counted, and ends the threads; gives their tables.
    fn drain(&mut self, pulse: Pulse) -> Result<Vec<Table>> {
        self.send_chunk(pulse)?;
        self.chunks = None;
        while !self.workers.iter().all(JoinHandle::is_finished) {
            pulse()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut tables = Vec::with_capacity(self.workers.len());
        for worker in std::mem::take(&mut self.workers) {
            match worker.join() {
                Ok(table) => tables.push(table),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        self.check()?;
        Ok(tables)
    }

    /// Counts one text.
    ///
    /// # Errors
    /// What a counting thread met with earlier, and what `pulse` gives.
    pub fn add_text(&mut self, text: &str, pulse: Pulse) -> Result<()> {
        self.n_bytes += text.len() as u64;
        self.add_whole(text, pulse)
    }

    fn add_whole(&mut self, text: &str, pulse: Pulse) -> Result<()> {
        if text.len() <= self.chunk_bytes {
            self.push(text, pulse)?;
        } else {
            let ends = {
                let Shared { pattern, special, .. } = &*self.shared;
                Cutter { pattern, special }.cut_whole(text, self.chunk_bytes)
            };
            let mut start = 0;
            for end in ends {
                self.push(&text[start..end], pulse)?;
                start = end;
            }
        }
        Ok(())
    }

    /// Counts what a reader gives, as one text, and says how many bytes that was.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Utf8`] with the offset in this text, and as [`Counter::add_text`].
    pub fn add_reader(
        &mut self,
        reader: impl Read,
        malformed: Malformed,
        progress: impl FnMut(u64),
        pulse: Pulse,
    ) -> Result<u64> {
        self.add_reader_until(reader, malformed, progress, || false, pulse).map(|(n_bytes, _)| n_bytes)
    }

    /// As [`Counter::add_reader`], but ends once `is_enough` where the text may be cut: then what was counted are the bytes
    /// in front, and the rest is a text of its own. True at the end of the text.
    ///
    /// With [`Malformed::Replace`] no bytes of the text can be told apart, and it is read to its end.
    ///
    /// # Errors
    /// As [`Counter::add_reader`].
    pub fn add_reader_until(
        &mut self,
        mut reader: impl Read,
        malformed: Malformed,
        mut progress: impl FnMut(u64),
        is_enough: impl Fn() -> bool,
        pulse: Pulse,
    ) -> Result<(u64, bool)> {
        let mut utf8 = Utf8Stream::new(malformed);
        let mut block = vec![0; READ_BYTES];
        let mut text = self.empty_chunk().text;
        let mut enough = self.chunk_bytes;
        let (mut n_read, mut n_sent) = (0u64, 0u64);
        loop {
            let started = Instant::now();
            let n = match reader.read(&mut block) {
                Ok(n) => n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    // A signal: a pulse that was asked just now may not look again at once.
                    std::thread::sleep(Duration::from_millis(60));
                    pulse()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let taken = if n == 0 { utf8.finish(&mut text) } else { utf8.push(&block[..n], &mut text) };
            self.reading += started.elapsed();
            taken?;
            if n == 0 {
                break;
            }
            n_read += n as u64;
            progress(n_read);
            if text.len() >= enough {
                let Shared { pattern, special, .. } = &*self.shared;
                match (Cutter { pattern, special }).cut_stream(&text) {
                    Some(cut) => {
                        let mut chunk = self.empty_chunk();
                        chunk.text.push_str(&text[cut..]);
                        text.truncate(cut);
                        let rest = std::mem::replace(&mut text, chunk.text);
                        n_sent += rest.len() as u64;
                        self.send(Chunk { ends: vec![rest.len()], text: rest, weight: self.weight }, pulse)?;
                        enough = self.chunk_bytes.max(2 * text.len());
                        if malformed == Malformed::Refuse && is_enough() {
                            self.n_bytes += n_sent;
                            return Ok((n_sent, false));
                        }
                    }
                    None => enough = 2 * text.len(),
                }
            } else {
                pulse()?;
            }
        }
        if !text.is_empty() {
            self.send(Chunk { ends: vec![text.len()], text, weight: self.weight }, pulse)?;
        }
        self.n_bytes += n_read;
        self.n_replaced += utf8.n_replaced();
        Ok((n_read, true))
    }

    /// Waits for the counting threads and adds up what they counted, in memory.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn finish(self, pulse: Pulse) -> Result<Counts> {
        let (counted, totals) = self.finish_scaled(Scale::ONE, false, pulse)?;
        let mut counts = match counted {
            Counted::Memory(counts) => counts,
            Counted::Disk(_) => return Err(Error::Invalid("the counts are on disk".to_owned())),
        };
        counts.n_bytes = totals.n_bytes;
        counts.n_special = totals.n_special.iter().sum();
        counts.n_replaced = totals.n_replaced;
        counts.reading = totals.reading;
        Ok(counts)
    }

    /// Waits for the counting threads and adds up what they counted; weights were in units of `scale`.
    ///
    /// With `may_stay`, what had to be written to disk stays there, merged: to have it in memory would take more of that than
    /// the tables were given.
    ///
    /// # Errors
    /// As [`Counter::add_text`]; [`Error::Invalid`] where a sum is 2⁶⁴ or more.
    pub fn finish_scaled(mut self, scale: Scale, may_stay: bool, pulse: Pulse) -> Result<(Counted, Totals)> {
        self.end_open(pulse)?;
        let mut tables = self.drain(pulse)?;
        tables.extend(self.own.take());
        let mut totals = self.totals();
        let n_weighted = self.shared.n_weighted.lock().map_or(u128::MAX, |n| *n);
        if u64::try_from(n_weighted).is_err() {
            return Err(Error::Invalid("the counts are too large: with their weights they add up to 2^64".to_owned()));
        }
        let n_threads = tables.len();
        let spill = &self.shared.spill;
        let is_on_disk = !spill.runs().is_empty();
        let goes_to_disk = may_stay && spill.has_folder() && self.is_too_much(&tables);
        if !is_on_disk && !goes_to_disk {
            let counts = Counts::add_up(&tables, scale, n_threads, pulse)?;
            return Ok((Counted::Memory(counts.checked()?), totals));
        }
        drop(self.write_tables(tables, false, pulse)?);
        let started = Instant::now();
        let buffer_bytes = self.buffer_bytes();
        spill.merge_many(buffer_bytes, false, pulse)?;
        let runs = spill.runs().iter().map(runs::Run::index).collect::<Result<Vec<_>>>()?;
        let merged = |partition, order, pulse: Pulse| {
            let mut part = PartBuilder::new(order);
            let push = |word: &[u8], total| {
                part.push(word, scale.round(total));
                Ok(())
            };
            runs::merge_partition(&runs, partition, buffer_bytes, pulse, push)?;
            Ok(part.finish())
        };
        let counted = if may_stay {
            let parts = parallel::map(N_PARTITIONS, n_threads, pulse, |partition, pulse| {
                let part = merged(partition, Order::Bytes, pulse)?;
                let path = spill.new_path("part").ok_or(Error::Interrupted)?;
                merged::PartFile::write(&part, &path)
            })?;
            let merged = Merged::new(parts);
            spill.add_bytes(merged.n_file_bytes());
            Counted::Disk(merged.checked()?)
        } else {
            let parts =
                parallel::map(N_PARTITIONS, n_threads, pulse, |partition, pulse| merged(partition, Order::Any, pulse))?;
            Counted::Memory(Counts::from_parts(parts).checked()?)
        };
        spill.add_time(started);
        totals.spilled = spill.cost();
        Ok((counted, totals))
    }

    /// True where tables and what they hold, twice, are more than the tables may take: while counts are put together they
    /// are in memory twice.
    fn is_too_much(&self, tables: &[Table]) -> bool {
        let needed = tables.iter().map(|table| table.memory() + 2 * (table.n_bytes_at_most() + table.n_unique()));
        self.shared.table_bytes < usize::MAX
            && needed.sum::<usize>() > self.shared.table_bytes.saturating_mul(tables.len())
    }

    /// Bytes read of a run at once.
    fn buffer_bytes(&self) -> usize {
        let n_runs = self.shared.spill.runs().len().max(1);
        (self.shared.table_bytes / 4 / n_runs).clamp(1 << 12, spill::READ_BYTES)
    }

    /// Writes tables to the folder, those that hold anything; gives them back empty.
    fn write_tables(&self, tables: Vec<Table>, durable: bool, pulse: Pulse) -> Result<Vec<Table>> {
        let tables: Vec<Mutex<Table>> = tables.into_iter().map(Mutex::new).collect();
        parallel::map(tables.len(), tables.len(), pulse, |index, pulse| {
            let mut table = tables[index].lock().unwrap_or_else(PoisonError::into_inner);
            if table.n_unique() > 0 && self.shared.spill.write(&table, durable, pulse)? {
                table.clear(0);
            }
            Ok(())
        })?;
        Ok(tables.into_iter().map(|table| table.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
    }

    /// Adds a text to the chunk that is being filled.
    fn push(&mut self, text: &str, pulse: Pulse) -> Result<()> {
        let is_full = self.chunk.text.len() + text.len() > self.chunk_bytes
            || self.chunk.ends.len() * size_of::<usize>() > self.chunk_bytes;
        if is_full && !self.chunk.text.is_empty() {
            self.send_chunk(pulse)?;
        }
        self.chunk.text.push_str(text);
        self.chunk.ends.push(self.chunk.text.len());
        Ok(())
    }

    /// Sends the chunk that is being filled.
    fn send_chunk(&mut self, pulse: Pulse) -> Result<()> {
        if self.chunk.text.is_empty() {
            self.chunk.ends.clear();
            return Ok(());
        }
        let next = self.empty_chunk();
        let mut full = std::mem::replace(&mut self.chunk, next);
        full.weight = self.weight;
        self.send(full, pulse)
    }

    /// A chunk to fill, in memory that a counted one used where there is one.
    fn empty_chunk(&self) -> Chunk {
        let mut chunk = self.used.try_recv().unwrap_or_default();
        chunk.text.clear();
        chunk.ends.clear();
        chunk.text.reserve(self.chunk_bytes.min(CHUNK_BYTES) + READ_BYTES);
        chunk
    }

    fn send(&self, mut chunk: Chunk, pulse: Pulse) -> Result<()> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        loop {
            self.check()?;
            pulse()?;
            match chunks.send_timeout(chunk, Duration::from_millis(50)) {
                Ok(()) => return Ok(()),
                Err(crossbeam_channel::SendTimeoutError::Timeout(back)) => chunk = back,
                Err(crossbeam_channel::SendTimeoutError::Disconnected(_)) => return self.check(),
            }
        }
    }

    fn check(&self) -> Result<()> {
        match self.shared.failure.lock().ok().and_then(|mut failure| failure.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for Counter {
    /// Ends the threads, also where the counting was given up.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.chunks = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;
