//! Counting the pre-tokens of a corpus, on several threads.
//!
//! The calling thread collects text into chunks and cuts them where it is harmless; every other thread counts whole
//! chunks into a table of its own; at the end the tables are added up, again by all threads. Nothing is shared or
//! locked while counting, and since counts are sums the result depends on neither threads nor chunks.

use crate::cutter::Cutter;
use crate::error::{Error, Result};
use crate::hash::long_hash;
use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::pretokenize::Pattern;
use crate::pulse::Pulse;
use crate::pulse::no_pulse;
use crate::special::{Segment, SpecialTokens};
use crate::tally::{Table, random_seed};
use crate::utf8::{Malformed, Utf8Stream};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod counts;

pub use counts::Counts;

/// Bytes of a chunk where the caller does not say: some tens of milliseconds of counting.
pub const CHUNK_BYTES: usize = 2 << 20;

/// Bytes asked of the operating system at once.
const READ_BYTES: usize = 1 << 18;

/// Texts that a thread counts at a time.
#[derive(Default)]
struct Chunk {
    text: String,
    /// Where each text ends.
    ends: Vec<usize>,
}

/// What all threads see.
struct Shared {
    pattern: Pattern,
    special: SpecialTokens,
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
    n_pretokens: AtomicU64,
    n_special: AtomicU64,
    /// Of the tables' hashes.
    seed: u64,
}

/// Counts the pre-tokens of texts as they come.
pub struct Counter {
    shared: Arc<Shared>,
    chunk_bytes: usize,
    chunks: Option<Sender<Chunk>>,
    used: Receiver<Chunk>,
    workers: Vec<JoinHandle<Table>>,
    chunk: Chunk,
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
        let special = SpecialTokens::new(special.iter().cloned().zip(0..).collect())?;
        let shared = Arc::new(Shared {
            pattern,
            special,
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            n_pretokens: AtomicU64::new(0),
            n_special: AtomicU64::new(0),
            seed: random_seed(),
        });
        let n_threads = n_threads.max(1);
        let (chunks, incoming) = bounded::<Chunk>(n_threads);
        let (recycle, used) = unbounded();
        let mut workers = Vec::with_capacity(n_threads);
        for _ in 0..n_threads {
            let (shared, incoming, recycle) = (Arc::clone(&shared), incoming.clone(), recycle.clone());
            let worker = std::thread::Builder::new().name("bytemill-count".to_owned());
            match worker.spawn(move || count_chunks(&shared, &incoming, &recycle)) {
                Ok(worker) => workers.push(worker),
                // Where no more threads are to be had, those there are do the work.
                Err(_) if !workers.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self {
            shared,
            chunk_bytes: chunk_bytes.max(1),
            chunks: Some(chunks),
            used,
            workers,
            chunk: Chunk::default(),
            n_bytes: 0,
            n_replaced: 0,
            reading: Duration::ZERO,
        })
    }

    /// Counts one text.
    ///
    /// # Errors
    /// What a counting thread met with earlier, and what `pulse` gives.
    pub fn add_text(&mut self, text: &str, pulse: Pulse) -> Result<()> {
        self.n_bytes += text.len() as u64;
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
        mut reader: impl Read,
        malformed: Malformed,
        mut progress: impl FnMut(u64),
        pulse: Pulse,
    ) -> Result<u64> {
        let mut utf8 = Utf8Stream::new(malformed);
        let mut block = vec![0; READ_BYTES];
        let mut text = self.empty_chunk().text;
        let mut enough = self.chunk_bytes;
        let mut n_read = 0u64;
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
                        self.send(Chunk { ends: vec![rest.len()], text: rest }, pulse)?;
                        enough = self.chunk_bytes.max(2 * text.len());
                    }
                    None => enough = 2 * text.len(),
                }
            } else {
                pulse()?;
            }
        }
        if !text.is_empty() {
            self.send(Chunk { ends: vec![text.len()], text }, pulse)?;
        }
        self.n_bytes += n_read;
        self.n_replaced += utf8.n_replaced();
        Ok(n_read)
    }

    /// Waits for the counting threads and adds up what they counted.
    ///
    /// # Errors
    /// As [`Counter::add_text`].
    pub fn finish(mut self, pulse: Pulse) -> Result<Counts> {
        let chunk = std::mem::take(&mut self.chunk);
        if !chunk.text.is_empty() {
            self.send(chunk, pulse)?;
        }
        self.chunks = None;
        while !self.workers.iter().all(JoinHandle::is_finished) {
            pulse()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let n_threads = self.workers.len();
        let mut tables = Vec::with_capacity(n_threads);
        for worker in std::mem::take(&mut self.workers) {
            match worker.join() {
                Ok(table) => tables.push(table),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        self.check()?;
        let mut counts = Counts::add_up(&tables, n_threads, pulse)?;
        counts.n_bytes = self.n_bytes;
        counts.n_pretokens = self.shared.n_pretokens.load(Ordering::Relaxed);
        counts.n_special = self.shared.n_special.load(Ordering::Relaxed);
        counts.n_replaced = self.n_replaced;
        counts.reading = self.reading;
        Ok(counts)
    }

    /// Adds a text to the chunk that is being filled.
    fn push(&mut self, text: &str, pulse: Pulse) -> Result<()> {
        if self.chunk.text.len() + text.len() > self.chunk_bytes && !self.chunk.text.is_empty() {
            let next = self.empty_chunk();
            let full = std::mem::replace(&mut self.chunk, next);
            self.send(full, pulse)?;
        }
        self.chunk.text.push_str(text);
        self.chunk.ends.push(self.chunk.text.len());
        Ok(())
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

/// A counting thread: chunks in, one table out.
fn count_chunks(shared: &Shared, chunks: &Receiver<Chunk>, recycle: &Sender<Chunk>) -> Table {
    let mut table = Table::new();
    let mut workspace = Workspace::default();
    let (mut n_pretokens, mut n_special) = (0, 0);
    for chunk in chunks {
        let mut start = 0;
        for &end in &chunk.ends {
            let counted = shared.special.segments(&chunk.text[start..end], &no_pulse, |segment| match segment {
                Segment::Text(text) => {
                    n_pretokens += count_text(shared, text, &mut table, &mut workspace)?;
                    Ok(())
                }
                Segment::Special(_) => {
                    n_special += 1;
                    Ok(())
                }
            });
            start = end;
            if let Err(error) = counted {
                if let Ok(mut failure) = shared.failure.lock() {
                    failure.get_or_insert(error);
                }
                shared.stop.store(true, Ordering::Relaxed);
                return table;
            }
        }
        let _ = recycle.send(chunk);
    }
    shared.n_pretokens.fetch_add(n_pretokens, Ordering::Relaxed);
    shared.n_special.fetch_add(n_special, Ordering::Relaxed);
    table
}

#[derive(Default)]
struct Workspace {
    ends: Vec<usize>,
    keys: Vec<(Packed, u64)>,
    long: Vec<(Range<usize>, u64)>,
}

/// Counts the pre-tokens of a text without special tokens; gives their number.
fn count_text(shared: &Shared, text: &str, table: &mut Table, workspace: &mut Workspace) -> Result<u64> {
    let Workspace { ends, keys, long } = workspace;
    let bytes = text.as_bytes();
    let mut n_pretokens = 0;
    let mut splits = shared.pattern.splits(text);
    let mut start = 0;
    while splits.fill(ends)? {
        if shared.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        keys.clear();
        long.clear();
        for &end in ends.iter() {
            if end - start <= PACKED_BYTES {
                let key = pack(bytes, start, end);
                let hash = key.hash();
                table.prefetch(hash);
                keys.push((key, hash));
            } else {
                let hash = long_hash(&bytes[start..end], shared.seed);
                table.long.prefetch(hash);
                long.push((start..end, hash));
            }
            start = end;
        }
        for &(key, hash) in keys.iter() {
            table.add(key, hash, 1);
        }
        for (range, hash) in long.drain(..) {
            table.long.add(&bytes[range], hash, 1);
        }
        n_pretokens += ends.len() as u64;
    }
    Ok(n_pretokens)
}

#[cfg(test)]
mod tests;
