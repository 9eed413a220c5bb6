//! The process-wide pool of idle workspaces.
//!
//! All tokenizers share it, so what stays in memory between calls depends neither on how many there are nor on how many
//! threads encoded: at most [`MAX_IDLE_BYTES`], of which the least recently used workspaces are given up first. A workspace
//! belongs to one tokenizer, since its cache holds that tokenizer's ids.
//!
//! The lock is only tried: in a forked child, a thread that does not exist there may hold it. Who does not get it makes a new
//! workspace, or drops one.

use super::workspace::Workspace;
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Bytes of idle workspaces. One that has seen a large text takes 21 MB.
const MAX_IDLE_BYTES: usize = 64 << 20;

/// How often the lock is tried. A thread holds it for less than a microsecond, unless it is suspended there; each try leaves
/// the processor to it.
const MAX_TRIES: usize = 1 << 8;

/// The workspaces, the least recently used first.
static POOL: Mutex<Idle> = Mutex::new(Idle(Vec::new()));

/// Identifies a tokenizer among those of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(u64);

impl Owner {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Takes an idle workspace of `owner`, or creates one.
///
/// # Errors
/// [`crate::Error::Memory`] if the system refuses the memory.
pub fn take(owner: Owner) -> Result<Box<Workspace>> {
    let idle = lock().and_then(|mut idle| idle.take(owner));
    idle.map_or_else(|| Workspace::new().map(Box::new), Ok)
}

/// Makes a workspace available to later calls of `owner`.
pub fn put_back(owner: Owner, mut workspace: Box<Workspace>) {
    workspace.reset();
    let surplus = lock().map(|mut idle| idle.put_back(owner, workspace, MAX_IDLE_BYTES));
    // Outside the lock: to free memory takes a while.
    drop(surplus);
}

/// Drops the idle workspaces of a tokenizer that is no longer used.
pub fn discard(owner: Owner) {
    let discarded = lock().map(|mut idle| idle.discard(owner));
    drop(discarded);
}

fn lock() -> Option<MutexGuard<'static, Idle>> {
    for _ in 0..MAX_TRIES {
        match POOL.try_lock() {
            Ok(idle) => return Some(idle),
            // A panic elsewhere cannot leave the list half changed.
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

#[derive(Default)]
struct Idle(Vec<IdleWorkspace>);

struct IdleWorkspace {
    owner: Owner,
    n_bytes: usize,
    workspace: Box<Workspace>,
}

impl Idle {
    fn take(&mut self, owner: Owner) -> Option<Box<Workspace>> {
        let index = self.0.iter().rposition(|idle| idle.owner == owner)?;
        Some(self.0.remove(index).workspace)
    }

    /// Returns what has to be given up for it.
    fn put_back(&mut self, owner: Owner, workspace: Box<Workspace>, max_bytes: usize) -> Vec<IdleWorkspace> {
        self.0.push(IdleWorkspace { owner, n_bytes: workspace.n_bytes(), workspace });
        let mut n_bytes: usize = self.0.iter().map(|idle| idle.n_bytes).sum();
        let mut n_surplus = 0;
        while n_bytes > max_bytes {
            n_bytes -= self.0[n_surplus].n_bytes;
            n_surplus += 1;
        }
        self.0.drain(..n_surplus).collect()
    }

    fn discard(&mut self, owner: Owner) -> Vec<IdleWorkspace> {
        self.0.extract_if(.., |idle| idle.owner == owner).collect()
    }
}

#[cfg(test)]
#[path = "tests/workspace_pool.rs"]
mod tests;
