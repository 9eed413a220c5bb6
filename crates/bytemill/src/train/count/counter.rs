//! Counting texts as they arrive, also as packed documents.

use super::part::sum_too_large;
use super::pretoken_counts::{PretokenCounts, random_seed};
use super::spill::{Spill, SpillCost};
use super::worker::{Chunk, Shared, count_chunks};
use crate::encode::cutter::Cutter;
use crate::error::{Error, Result};
use crate::pretokenize::Pattern;
use crate::special::SpecialTokens;
use crate::sys::interrupt::Interrupt;
use crate::text::utf8::{Malformed, Utf8Stream, append};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, unbounded};
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Default size of a chunk: some tens of milliseconds of counting.
pub const CHUNK_BYTES: usize = 2 << 20;

/// Bytes per read.
const READ_BYTES: usize = 1 << 18;

/// Longest time between two interrupt checks while waiting for the workers.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// What was read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Bytes of text.
    pub n_bytes: u64,
    /// Number of pre-tokens, without weights.
    pub n_pretokens: u64,
    /// Occurrences of each special token, in the order of the special tokens.
    pub n_special: Vec<u64>,
    /// Malformed sequences replaced by U+FFFD.
    pub n_replaced: u64,
    /// Time spent reading and checking UTF-8, in parallel to counting.
    pub reading: Duration,
    /// Cost of writing tables to disk.
    pub spilled: SpillCost,
}

/// Counts the pre-tokens of texts on several threads.
pub struct Counter {
    pub(super) shared: Arc<Shared>,
    pub(super) chunk_bytes: usize,
    /// Chunks to count; closing it ends the workers.
    chunks: Option<Sender<Chunk>>,
    /// Chunks that were counted, for their memory.
    recycled: Receiver<Chunk>,
    /// The table of each worker when it ends.
    tables: Receiver<PretokenCounts>,
    workers: Vec<JoinHandle<()>>,
    chunk: Chunk,
    weight: u64,
    /// The beginning of a document that continues, and the length at which to look for a cut in it.
    pub(super) open: String,
    pub(super) next_cut: usize,
    /// The table of the calling thread, for pre-tokens that were counted before.
    pub(super) own_table: Option<PretokenCounts>,
    pub(super) n_bytes: u64,
    pub(super) n_replaced: u64,
    reading: Duration,
}

impl Counter {
    /// Creates a counter with `n_threads` threads.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for empty or repeated special tokens,
    /// [`Error::Io`](crate::Error::Io) if no thread can be started.
    pub fn new(pattern: Pattern, special: &[String], n_threads: usize, chunk_bytes: usize) -> Result<Self> {
        Self::with_table_limit(pattern, special, n_threads, chunk_bytes, usize::MAX)
    }

    /// Like [`Counter::new`], but tables that take more than `table_bytes` together are written to the folder of
    /// [`Counter::set_folder`], once there is one.
    ///
    /// # Errors
    /// As [`Counter::new`].
    pub fn with_table_limit(
        pattern: Pattern,
        special: &[String],
        n_threads: usize,
        chunk_bytes: usize,
        table_bytes: usize,
    ) -> Result<Self> {
        Self::with_seed(pattern, special, n_threads, chunk_bytes, table_bytes, random_seed())
    }

    /// Like [`Counter::with_table_limit`]; counters with the same seed divide pre-tokens into the same partitions. A predictable
    /// seed would allow a text whose pre-tokens collide.
    ///
    /// # Errors
    /// As [`Counter::new`].
    pub fn with_seed(
        pattern: Pattern,
        special: &[String],
        n_threads: usize,
        chunk_bytes: usize,
        table_bytes: usize,
        seed: u64,
    ) -> Result<Self> {
        let special = SpecialTokens::new(special.iter().cloned().zip(0..).collect())?;
        Self::with_special(pattern, special, n_threads, chunk_bytes, table_bytes, seed)
    }

    /// Like [`Counter::with_seed`], for special tokens with rules and a normalizer. Their ids are 0, 1, ….
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if no thread can be started.
    pub fn with_special(
        pattern: Pattern,
        special: SpecialTokens,
        n_threads: usize,
        chunk_bytes: usize,
        table_bytes: usize,
        seed: u64,
    ) -> Result<Self> {
        let n_special = special.tokens().iter().map(|_| AtomicU64::new(0)).collect();
        let n_threads = n_threads.max(1);
        let shared = Arc::new(Shared {
            pattern,
            special,
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            n_pretokens: AtomicU64::new(0),
            n_special,
            n_weighted: Mutex::new(0),
            seed,
            table_bytes: if table_bytes == usize::MAX { usize::MAX } else { table_bytes / n_threads },
            spill: Spill::default(),
        });
        let mut counter = Self {
            shared,
            chunk_bytes: chunk_bytes.max(1),
            chunks: None,
            recycled: unbounded().1,
            tables: unbounded().1,
            workers: Vec::new(),
            chunk: Chunk::default(),
            weight: 1,
            open: String::new(),
            next_cut: 0,
            own_table: None,
            n_bytes: 0,
            n_replaced: 0,
            reading: Duration::ZERO,
        };
        counter.start((0..n_threads).map(|_| PretokenCounts::new(seed)).collect())?;
        Ok(counter)
    }

    /// Sets the folder for full tables. It must exist.
    pub fn set_folder(&mut self, folder: PathBuf) {
        self.shared.spill.set_folder(folder);
    }

    /// Sets the weight of all following texts.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn set_weight(&mut self, weight: u64, interrupt: Interrupt) -> Result<()> {
        if weight != self.weight {
            self.send_chunk(interrupt)?;
            self.weight = weight.max(1);
        }
        Ok(())
    }

    /// What was read so far, without what the threads have not counted yet.
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

    /// Starts one worker per table. If threads run out, the workers that could be started share the work.
    pub(super) fn start(&mut self, tables: Vec<PretokenCounts>) -> Result<()> {
        let (chunks, incoming) = bounded::<Chunk>(tables.len());
        let (recycle, recycled) = unbounded();
        let (finished, finished_tables) = unbounded();
        (self.chunks, self.recycled, self.tables) = (Some(chunks), recycled, finished_tables);
        for table in tables {
            let is_empty = table.n_unique() == 0;
            let (shared, incoming) = (Arc::clone(&self.shared), incoming.clone());
            let (recycle, finished) = (recycle.clone(), finished.clone());
            let work = move || {
                let table = count_chunks(&shared, &incoming, &recycle, table);
                // End the sharing before the counter learns that this worker is done.
                drop(shared);
                let _ = finished.send(table);
            };
            match std::thread::Builder::new().name("bytemill-count".to_owned()).spawn(work) {
                Ok(worker) => self.workers.push(worker),
                Err(_) if is_empty && !self.workers.is_empty() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until everything is counted, ends the threads and returns their tables.
    pub(super) fn drain(&mut self, interrupt: Interrupt) -> Result<Vec<PretokenCounts>> {
        self.send_chunk(interrupt)?;
        self.chunks = None;
        let mut tables = Vec::with_capacity(self.workers.len());
        // The channel closes when the last worker has ended, with a table or with a panic.
        loop {
            match self.tables.recv_timeout(MAX_WAIT) {
                Ok(table) => tables.push(table),
                Err(RecvTimeoutError::Timeout) => interrupt()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for worker in std::mem::take(&mut self.workers) {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.check_failure()?;
        interrupt()?;
        Ok(tables)
    }

    pub(super) fn cutter(&self) -> Cutter<'_> {
        Cutter { pattern: &self.shared.pattern, special: &self.shared.special }
    }

    /// Counts one text.
    ///
    /// # Errors
    /// Earlier errors of the counting threads; errors of `interrupt`.
    pub fn add_text(&mut self, text: &str, interrupt: Interrupt) -> Result<()> {
        self.n_bytes += text.len() as u64;
        self.add_whole(text, interrupt)
    }

    pub(super) fn add_whole(&mut self, text: &str, interrupt: Interrupt) -> Result<()> {
        if text.len() <= self.chunk_bytes {
            return self.push(text, interrupt);
        }
        let mut start = 0;
        for end in self.cutter().cut_whole(text, self.chunk_bytes) {
            self.push(&text[start..end], interrupt)?;
            start = end;
        }
        Ok(())
    }

    /// Counts the data of a reader as one text and returns its size.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); [`Error::Utf8`](crate::Error::Utf8) with the offset in this text; as
    /// [`Counter::add_text`].
    pub fn add_reader(
        &mut self,
        reader: impl Read,
        malformed: Malformed,
        progress: impl FnMut(u64),
        interrupt: Interrupt,
    ) -> Result<u64> {
        self.add_reader_until(reader, malformed, progress, || false, interrupt).map(|(n_bytes, _)| n_bytes)
    }

    /// Like [`Counter::add_reader`], but stops at the next possible cut once `is_enough` returns true. Returns the
    /// number of counted bytes, after which the rest is a text of its own, and whether the reader is at its end.
    ///
    /// With [`Malformed::Replace`], offsets in the text differ from offsets in the data, so it is read to its end.
    ///
    /// # Errors
    /// As [`Counter::add_reader`].
    pub fn add_reader_until(
        &mut self,
        mut reader: impl Read,
        malformed: Malformed,
        mut progress: impl FnMut(u64),
        is_enough: impl Fn() -> bool,
        interrupt: Interrupt,
    ) -> Result<(u64, bool)> {
        let mut utf8 = Utf8Stream::new(malformed);
        let mut block = vec![0; READ_BYTES];
        let mut text = self.empty_chunk()?.text;
        let mut next_cut = self.chunk_bytes;
        let (mut n_read, mut n_sent) = (0u64, 0u64);
        loop {
            let started = Instant::now();
            let n = match reader.read(&mut block) {
                Ok(n) => n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    // A signal arrived. The interrupt check may look only once per 50 ms, so wait for its next look.
                    std::thread::sleep(MAX_WAIT + Duration::from_millis(10));
                    interrupt()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let decoded = if n == 0 { utf8.finish(&mut text) } else { utf8.push(&block[..n], &mut text) };
            self.reading += started.elapsed();
            decoded?;
            if n == 0 {
                break;
            }
            n_read += n as u64;
            progress(n_read);
            if text.len() < next_cut {
                interrupt()?;
                continue;
            }
            let Some(cut) = self.cutter().cut_stream(&text) else {
                next_cut = 2 * text.len();
                continue;
            };
            let mut rest = self.empty_chunk()?.text;
            append(&text[cut..], &mut rest)?;
            text.truncate(cut);
            n_sent += cut as u64;
            self.send_text(std::mem::replace(&mut text, rest), interrupt)?;
            next_cut = self.chunk_bytes.max(2 * text.len());
            if malformed == Malformed::Refuse && is_enough() {
                self.n_bytes += n_sent;
                return Ok((n_sent, false));
            }
        }
        self.send_text(text, interrupt)?;
        self.n_bytes += n_read;
        self.n_replaced += utf8.n_replaced();
        Ok((n_read, true))
    }

    /// Adds a text to the current chunk.
    fn push(&mut self, text: &str, interrupt: Interrupt) -> Result<()> {
        let is_full = self.chunk.text.len() + text.len() > self.chunk_bytes
            || self.chunk.ends.len() * size_of::<usize>() > self.chunk_bytes;
        if is_full {
            self.send_chunk(interrupt)?;
        }
        append(text, &mut self.chunk.text)?;
        self.chunk.ends.push(self.chunk.text.len());
        Ok(())
    }

    /// Sends the current chunk to the workers.
    fn send_chunk(&mut self, interrupt: Interrupt) -> Result<()> {
        if self.chunk.text.is_empty() {
            self.chunk.ends.clear();
            return Ok(());
        }
        let next = self.empty_chunk()?;
        let chunk = std::mem::replace(&mut self.chunk, next);
        self.send(Chunk { weight: self.weight, ..chunk }, interrupt)
    }

    /// Sends a text as a chunk of its own.
    fn send_text(&self, text: String, interrupt: Interrupt) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.send(Chunk { ends: vec![text.len()], text, weight: self.weight }, interrupt)
    }

    /// An empty chunk, in the memory of a counted one if possible.
    fn empty_chunk(&self) -> Result<Chunk> {
        let mut chunk = self.recycled.try_recv().unwrap_or_default();
        chunk.text.clear();
        chunk.ends.clear();
        let n_bytes = self.chunk_bytes.min(CHUNK_BYTES) + READ_BYTES;
        chunk.text.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(n_bytes))?;
        Ok(chunk)
    }

    /// Waits for room in the channel and sends a chunk.
    fn send(&self, mut chunk: Chunk, interrupt: Interrupt) -> Result<()> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        loop {
            self.check_failure()?;
            interrupt()?;
            match chunks.send_timeout(chunk, MAX_WAIT) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(unsent)) => chunk = unsent,
                // All workers have failed.
                Err(SendTimeoutError::Disconnected(_)) => return self.check_failure(),
            }
        }
    }

    fn check_failure(&self) -> Result<()> {
        match self.shared.failure.lock().ok().and_then(|mut failure| failure.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Drop for Counter {
    /// Ends the threads, also of an unfinished counter.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.chunks = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

// Documents in packed batches, and pre-tokens that were counted before.

impl Counter {
    /// Counts documents that are concatenated in `text` and end at `ends`.
    ///
    /// If `is_open`, the last document continues with the first document of the next call.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ends do not ascend to the end of the text or split characters; as
    /// [`Counter::add_text`].
    pub fn add_documents(&mut self, text: &str, ends: &[i64], is_open: bool, interrupt: Interrupt) -> Result<()> {
        let wrong = || Error::Invalid("the ends of the documents do not fit their text".to_owned());
        let last_end = ends.last().map_or(Ok(0), |&end| usize::try_from(end));
        if last_end != Ok(text.len()) {
            return Err(wrong());
        }
        let mut start = 0;
        for (index, &end) in ends.iter().enumerate() {
            let end = usize::try_from(end).map_err(|_| wrong())?;
            let document = text.get(start..end).ok_or_else(wrong)?;
            start = end;
            let continues = is_open && index + 1 == ends.len();
            if continues || index == 0 && !self.open.is_empty() {
                self.add_open(document, interrupt)?;
                if !continues {
                    self.end_open(interrupt)?;
                }
            } else {
                self.add_text(document, interrupt)?;
            }
        }
        Ok(())
    }

    /// Appends to the open document, and counts the part whose pre-tokens are final.
    fn add_open(&mut self, text: &str, interrupt: Interrupt) -> Result<()> {
        append(text, &mut self.open)?;
        self.n_bytes += text.len() as u64;
        if self.open.len() < self.next_cut.max(self.chunk_bytes) {
            return interrupt();
        }
        if let Some(cut) = self.cutter().cut_stream(&self.open) {
            let rest = self.open.split_off(cut);
            let finished = std::mem::replace(&mut self.open, rest);
            self.add_whole(&finished, interrupt)?;
        }
        // Try again at twice the length, so that a text without cuts takes linear time.
        self.next_cut = 2 * self.open.len();
        Ok(())
    }

    /// Counts the rest of the open document.
    pub(super) fn end_open(&mut self, interrupt: Interrupt) -> Result<()> {
        let rest = std::mem::take(&mut self.open);
        self.next_cut = 0;
        self.add_whole(&rest, interrupt)
    }

    /// Adds pre-tokens that were counted before. Their counts are multiplied by `weight`.
    ///
    /// `visit` calls its argument with every pre-token and its count.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the weighted counts add up to 2⁶⁴ or more; [`Error::Output`]; errors of `visit`.
    pub fn add_counts(
        &mut self,
        visit: impl FnOnce(&mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>,
        weight: u64,
    ) -> Result<()> {
        let shared = &*self.shared;
        let table = self.own_table.get_or_insert_with(|| PretokenCounts::new(shared.seed));
        let mut n_weighted = 0u128;
        visit(&mut |pretoken, count| {
            let weighted = count.checked_mul(weight).ok_or_else(sum_too_large)?;
            n_weighted += u128::from(weighted);
            // The count of one pre-token cannot overflow before the sum does.
            if n_weighted >= 1 << 64 {
                return Err(sum_too_large());
            }
            table.add(pretoken, weighted)?;
            shared.spill_if_full(table)
        })?;
        match shared.n_weighted.lock() {
            Ok(mut total) if *total + n_weighted < 1 << 64 => *total += n_weighted,
            Ok(_) => return Err(sum_too_large()),
            Err(_) => {}
        }
        Ok(())
    }
}
