//! Work that is divided among threads.

use crate::error::Result;
use crate::parallel;
use crate::pulse::Pulse;
use std::sync::{Mutex, PoisonError};

/// `parallel::map` over parts that each piece of work owns; gives the results in their order.
pub fn for_each_part<P: Send, R: Send>(
    parts: Vec<P>,
    n_threads: usize,
    pulse: Pulse,
    work: impl Fn(usize, P, Pulse) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let done = parallel::map(parts.len(), n_threads, pulse, |index, pulse| {
        let part = parts[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        part.map(|part| work(index, part, pulse)).transpose()
    })?;
    Ok(done.into_iter().flatten().collect())
}
