//! The scheduler: reads items in order, works on them in parallel, writes the results in order.
//!
//! The calling thread works too. It also does all the writing, and calls the caller's interrupt, at least every
//! [`POLL_INTERVAL`] while it waits. Waiting threads sleep on a condition variable.

use crate::error::{Error, Result};
use crate::sys::interrupt::{Interrupt, no_interrupt};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// How often the calling thread calls the interrupt while it waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Items per thread that are under way at most, finished ones that wait to be written included. It bounds the memory.
const MAX_ITEMS_PER_THREAD: usize = 4;

/// Runs `read`, `work` and `write` on one item after another, until `read` returns false, on up to `n_threads` threads.
///
/// - `read` puts the next item into a buffer. One thread at a time calls it.
/// - `work` processes an item. Threads call it at the same time.
/// - `write` takes the result out of the buffer, in the order of the items. Only the calling thread calls it.
///
/// A buffer starts as its default and is used for item after item, so `write` has to leave it ready for the next one.
/// If threads cannot be started, fewer do the work, at the least the calling thread alone.
///
/// # Errors
/// The error of the first item that fails, whichever thread works on it. The error of `interrupt` takes precedence.
///
/// # Panics
/// If a stage panics, after all threads have ended.
pub fn pipeline<B: Default + Send>(
    n_threads: usize,
    interrupt: Interrupt,
    read: impl FnMut(&mut B, Interrupt) -> Result<bool> + Send,
    work: impl Fn(&mut B, Interrupt) -> Result<()> + Sync,
    write: impl FnMut(&mut B) -> Result<()>,
) -> Result<()> {
    run(n_threads, n_threads.saturating_mul(MAX_ITEMS_PER_THREAD), spawn, interrupt, read, work, write)
}

/// Runs `work(index)` for every index below `n`, on up to `n_threads` threads, and returns the results in order.
///
/// Only the calling thread calls `interrupt`. After a failure, no further item is begun. `work` gets an interrupt to call
/// regularly.
///
/// # Errors
/// As [`pipeline`].
pub fn map<R: Send>(
    n: usize,
    n_threads: usize,
    interrupt: Interrupt,
    work: impl Fn(usize, Interrupt) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut indices = 0..n;
    let mut results = Vec::new();
    results.try_reserve_exact(n).map_err(|_| Error::memory::<R>(n))?;
    run(
        n_threads.min(n),
        // All results stay in memory anyway: no limit for those that wait.
        usize::MAX,
        spawn,
        interrupt,
        |item: &mut (usize, Option<R>), _| Ok(indices.next().map(|index| item.0 = index).is_some()),
        |(index, result), interrupt| work(*index, interrupt).map(|done| *result = Some(done)),
        |(_, result)| {
            results.extend(result.take());
            Ok(())
        },
    )?;
    Ok(results)
}

/// Starts a worker; false if the system refuses.
type Spawn = for<'scope, 'env> fn(&'scope Scope<'scope, 'env>, &'scope (dyn Fn() + Sync)) -> bool;

fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, worker: &'scope (dyn Fn() + Sync)) -> bool {
    // Profilers show the name, of which Linux keeps 15 bytes.
    thread::Builder::new().name("bytemill-worker".to_owned()).spawn_scoped(scope, worker).is_ok()
}

fn run<B: Default + Send>(
    n_threads: usize,
    max_items: usize,
    spawn: Spawn,
    interrupt: Interrupt,
    mut read: impl FnMut(&mut B, Interrupt) -> Result<bool> + Send,
    work: impl Fn(&mut B, Interrupt) -> Result<()> + Sync,
    mut write: impl FnMut(&mut B) -> Result<()>,
) -> Result<()> {
    if n_threads <= 1 {
        let mut item = B::default();
        while read(&mut item, interrupt)? {
            work(&mut item, interrupt)?;
            write(&mut item)?;
        }
        return Ok(());
    }
    let scheduler = Scheduler {
        state: Mutex::new(State {
            read: Some(read),
            at_end: false,
            n_begun: 0,
            n_written: 0,
            finished: BTreeMap::new(),
            spare: Vec::new(),
            n_workers: 0,
            failure: None,
        }),
        changed: Condvar::new(),
        cancelled_from: AtomicUsize::new(usize::MAX),
        max_items,
        work,
    };
    let worker = || scheduler.work_until_end();
    thread::scope(|scope| {
        for _ in 1..n_threads {
            scheduler.lock().n_workers += 1;
            if !spawn(scope, &worker) {
                scheduler.lock().n_workers -= 1;
                break;
            }
        }
        scheduler.work_and_write(interrupt, &mut write);
    });
    match scheduler.state.into_inner().unwrap_or_else(PoisonError::into_inner).failure {
        None => Ok(()),
        Some(Ok(error)) => Err(error),
        Some(Err(panic)) => resume_unwind(panic),
    }
}

struct Scheduler<B, R, W> {
    state: Mutex<State<B, R>>,
    /// Notified after every change of the state that another thread may wait for.
    changed: Condvar,
    /// The first item that failed. It and later ones are cancelled; earlier ones continue, since their errors come first.
    cancelled_from: AtomicUsize,
    max_items: usize,
    work: W,
}

struct State<B, R> {
    /// The `read` stage, unless a thread is in it.
    read: Option<R>,
    /// No further item is begun: all are read, or one failed.
    at_end: bool,
    n_begun: usize,
    n_written: usize,
    /// Items by number, ready to be written.
    finished: BTreeMap<usize, B>,
    spare: Vec<B>,
    n_workers: isize,
    /// The first error or panic.
    failure: Option<thread::Result<Error>>,
}

impl<B, R, W> Scheduler<B, R, W>
where
    B: Default + Send,
    R: FnMut(&mut B, Interrupt) -> Result<bool> + Send,
    W: Fn(&mut B, Interrupt) -> Result<()> + Sync,
{
    fn lock(&self) -> MutexGuard<'_, State<B, R>> {
        // No stage runs while the lock is held, so a panic cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's loop.
    fn work_until_end(&self) {
        let mut state = self.lock();
        while !state.at_end {
            state = match self.take_read(&mut state) {
                Some(read) => self.process(state, read, &no_interrupt),
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.n_workers -= 1;
        self.changed.notify_all();
    }

    /// The calling thread's loop. It ends after the last worker.
    fn work_and_write(&self, interrupt: Interrupt, write: &mut impl FnMut(&mut B) -> Result<()>) {
        let mut state = self.lock();
        loop {
            let index = state.n_written;
            let is_failed = state.failure.is_some();
            if !is_failed && let Some(mut item) = state.finished.remove(&index) {
                drop(state);
                let is_written = self.attempt(index, || {
                    self.check(index, interrupt)?;
                    write(&mut item)
                });
                state = self.lock();
                if is_written.is_some() {
                    state.n_written += 1;
                    state.spare.push(item);
                    self.changed.notify_all();
                }
            } else if let Some(read) = self.take_read(&mut state) {
                state = self.process(state, read, interrupt);
            } else if state.at_end && state.n_workers == 0 && (is_failed || index == state.n_begun) {
                return;
            } else {
                drop(self.changed.wait_timeout(state, POLL_INTERVAL));
                // A failure is recorded.
                let _ = self.check(0, interrupt);
                state = self.lock();
            }
        }
    }

    /// The `read` stage, if an item may be begun.
    fn take_read(&self, state: &mut State<B, R>) -> Option<R> {
        let has_room = state.n_begun - state.n_written < self.max_items;
        if has_room && !state.at_end { state.read.take() } else { None }
    }

    /// Reads the next item and works on it.
    fn process<'s>(
        &'s self,
        mut state: MutexGuard<'s, State<B, R>>,
        mut read: R,
        interrupt: Interrupt,
    ) -> MutexGuard<'s, State<B, R>> {
        let index = state.n_begun;
        let mut item = state.spare.pop().unwrap_or_default();
        drop(state);
        let check = || self.check(index, interrupt);
        let is_read = self.attempt(index, || {
            check()?;
            read(&mut item, &check)
        });
        state = self.lock();
        state.read = Some(read);
        self.changed.notify_all();
        if is_read != Some(true) {
            state.at_end = true;
            return state;
        }
        state.n_begun += 1;
        drop(state);
        let is_done = self.attempt(index, || (self.work)(&mut item, &check)).is_some();
        state = self.lock();
        if is_done {
            state.finished.insert(index, item);
            self.changed.notify_all();
        }
        state
    }

    /// Calls the interrupt on behalf of an item, unless the item is cancelled.
    fn check(&self, index: usize, interrupt: Interrupt) -> Result<()> {
        let is_cancelled = index >= self.cancelled_from.load(Ordering::Relaxed);
        if is_cancelled || self.attempt(0, interrupt).is_none() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Runs a stage for an item. An error or a panic cancels this item and all later ones.
    fn attempt<T>(&self, index: usize, stage: impl FnOnce() -> Result<T>) -> Option<T> {
        // What a panicking stage leaves behind is dropped, or never used again.
        let failure = match catch_unwind(AssertUnwindSafe(stage)) {
            Ok(Ok(result)) => return Some(result),
            Ok(Err(error)) => Ok(error),
            Err(panic) => Err(panic),
        };
        let mut state = self.lock();
        // The error of a cancelled item says only that it was cancelled.
        if index < self.cancelled_from.load(Ordering::Relaxed) {
            self.cancelled_from.store(index, Ordering::Relaxed);
            state.failure = Some(failure);
        }
        state.at_end = true;
        self.changed.notify_all();
        None
    }
}

#[cfg(test)]
#[path = "tests/scheduler.rs"]
mod tests;
