//! Encoding on several threads.

use crate::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id, Pulse};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of text that a thread takes at a time: small enough that all threads end together, large enough (some
/// milliseconds of work) that taking one costs nothing.
const PART_BYTES: usize = 1 << 20;

/// Number of threads that the machine runs at once.
#[must_use]
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs `work(index)` for every index below `n`, on up to `n_threads` threads, and gives the results in order.
///
/// `pulse` is asked on the calling thread alone; once it or any work fails, the rest is not begun. Every piece of work
/// gets a pulse to ask now and then.
///
/// # Errors
/// The first error, whichever thread it came from.
pub fn map<R: Send>(
    n: usize,
    n_threads: usize,
    pulse: Pulse,
    work: impl Fn(usize, Pulse) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if n_threads <= 1 || n <= 1 {
        return (0..n).map(|index| work(index, pulse)).collect();
    }
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let stopped = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
    let run = |pulse: Pulse| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= n {
                return done;
            }
            match pulse().and_then(|()| work(index, pulse)) {
                Ok(result) => done.push((index, result)),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        // A thread that was told to stop has nothing to add.
                        failure.get_or_insert(error);
                    }
                    return done;
                }
            }
        }
    };
    let here = || {
        stopped()?;
        pulse()
    };
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(n, || None);
    std::thread::scope(|scope| {
        // Where no more threads are to be had, those there are do the work.
        let start = |_| {
            // Profiles show the name; Linux keeps 15 bytes of it.
            let helper = std::thread::Builder::new().name("bytemill-worker".to_owned());
            helper.spawn_scoped(scope, || run(&stopped)).ok()
        };
        let helpers: Vec<_> = (1..n_threads.min(n)).map_while(start).collect();
        let mut done = run(&here);
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (index, result) in done {
            results[index] = Some(result);
        }
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(results.into_iter().flatten().collect()),
    }
}

/// The ids of a text, joined as its parts are done.
///
/// A part is copied behind those before it by whichever thread closes the gap, so that its memory can be used again: memory that
/// is touched for the first time costs a fifth of what encoding into it does.
struct Joined<T> {
    ids: Vec<T>,
    n_parts: usize,
    /// Parts that are done before one ahead of them.
    waiting: BTreeMap<usize, Vec<T>>,
    /// Memory for parts to come.
    spare: Vec<Vec<T>>,
}

impl<T> Default for Joined<T> {
    fn default() -> Self {
        Self { ids: Vec::new(), n_parts: 0, waiting: BTreeMap::new(), spare: Vec::new() }
    }
}

impl<T: Id> Joined<T> {
    fn add(&mut self, part: usize, ids: Vec<T>) {
        self.waiting.insert(part, ids);
        while let Some(mut next) = self.waiting.remove(&self.n_parts) {
            self.ids.extend_from_slice(&next);
            self.n_parts += 1;
            next.clear();
            self.spare.push(next);
        }
    }
}

impl Encoder {
    /// The ids of `text`, by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_parallel<T: Id>(
        &self,
        text: &str,
        allowed: Allowed,
        n_threads: usize,
        pulse: Pulse,
    ) -> Result<Vec<T>> {
        if n_threads <= 1 || text.len() <= PART_BYTES {
            let mut ids = Vec::with_capacity(text.len() / 3);
            self.encode(text, allowed, &mut ids, pulse)?;
            if ids.len() < ids.capacity() / 2 {
                ids.shrink_to_fit();
            }
            return Ok(ids);
        }
        let (special, allowed) = match allowed {
            Allowed::All => (self.special(), allowed),
            Allowed::These(special) => (special, allowed),
            Allowed::None => (self.none(), allowed),
            Allowed::Refused => {
                self.refuse_special(text)?;
                (self.none(), Allowed::None)
            }
        };
        // Some parts for each thread, or one thread has the last of them and the others none.
        let part_bytes = (text.len() / (8 * n_threads)).clamp(PART_BYTES / 8, PART_BYTES);
        let ends = Cutter { pattern: self.pattern(), special }.cut_whole(text, part_bytes);
        let joined = Mutex::new(Joined { ids: Vec::with_capacity(text.len() / 4), ..Joined::default() });
        map(ends.len(), n_threads, pulse, |part, pulse| {
            let start = if part == 0 { 0 } else { ends[part - 1] };
            let mut ids = joined.lock().map(|mut joined| joined.spare.pop()).ok().flatten().unwrap_or_default();
            self.encode(&text[start..ends[part]], allowed, &mut ids, pulse)?;
            if let Ok(mut joined) = joined.lock() {
                joined.add(part, ids);
            }
            Ok(())
        })?;
        let mut ids = joined.into_inner().unwrap_or_else(PoisonError::into_inner).ids;
        if ids.len() < ids.capacity() / 2 {
            ids.shrink_to_fit();
        }
        Ok(ids)
    }

    /// The ids of each text, by up to `n_threads` threads.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_batch<T: Id>(
        &self,
        texts: &[&str],
        allowed: Allowed,
        n_threads: usize,
        pulse: Pulse,
    ) -> Result<Vec<Vec<T>>> {
        // Texts that follow each other go to one thread until they make a part.
        let mut groups = Vec::new();
        let (mut start, mut n_bytes) = (0, 0);
        let part_bytes = (texts.iter().map(|text| text.len()).sum::<usize>() / (8 * n_threads.max(1))).min(PART_BYTES);
        for (index, text) in texts.iter().enumerate() {
            n_bytes += text.len();
            if n_bytes >= part_bytes || index + 1 == texts.len() {
                groups.push(start..index + 1);
                (start, n_bytes) = (index + 1, 0);
            }
        }
        let encoded = map(groups.len(), n_threads, pulse, |group, pulse| {
            texts[groups[group].clone()]
                .iter()
                .map(|text| {
                    let mut ids = Vec::with_capacity(text.len() / 4 + 1);
                    self.encode(text, allowed, &mut ids, pulse)?;
                    Ok(ids)
                })
                .collect::<Result<Vec<Vec<T>>>>()
        })?;
        Ok(encoded.into_iter().flatten().collect())
    }
}
