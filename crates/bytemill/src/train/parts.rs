//! Work on several threads: parts that each task owns, and shared state.

use crate::batch::parallel;
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs `work(index, part)` for every part on up to `n_threads` threads and returns the results in order.
///
/// Unlike [`parallel::map`], each task owns its part.
///
/// # Errors
/// The first error of `work` or of the interrupt check.
pub fn map_parts<P: Send, R: Send>(
    parts: Vec<P>,
    n_threads: usize,
    interrupt: Interrupt,
    work: impl Fn(usize, P, Interrupt) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let results = parallel::map(parts.len(), n_threads, interrupt, |index, interrupt| {
        let part = lock(&parts[index]).take();
        part.map(|part| work(index, part, interrupt)).transpose()
    })?;
    Ok(results.into_iter().flatten().collect())
}

/// Locks state that no update leaves half-done, so that a panic of another thread does not matter.
pub fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
