//! The process-wide pool of idle workspaces.
//!
//! All tokenizers share it, so what stays in memory between calls depends neither on how many there are nor on how many
//! threads encoded: at most [`MAX_IDLE_BYTES`], of which the least recently used workspaces are given up first. A workspace
//! belongs to one tokenizer, since its cache holds that tokenizer's ids.
//!
//! A forked child gets an empty pool: in the copy that it inherits, the lock may be held by a thread that does not exist
//! there.

use super::workspace::Workspace;
use crate::error::Result;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of idle workspaces. One that has seen a large text takes 23 MB.
const MAX_IDLE_BYTES: usize = 64 << 20;

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
    let idle = Pool::get().lock().take(owner);
    idle.map_or_else(|| Workspace::new().map(Box::new), Ok)
}

/// Makes a workspace available to later calls of `owner`.
pub fn put_back(owner: Owner, mut workspace: Box<Workspace>) {
    workspace.reset();
    let surplus = Pool::get().lock().put_back(owner, workspace, MAX_IDLE_BYTES);
    // Outside the lock: to free memory takes a while.
    drop(surplus);
}

/// Drops the idle workspaces of a tokenizer that is no longer used.
pub fn discard(owner: Owner) {
    let discarded = Pool::get().lock().discard(owner);
    drop(discarded);
}

#[derive(Default)]
struct Pool(Mutex<Idle>);

/// The workspaces, the least recently used first.
#[derive(Default)]
struct Idle(Vec<IdleWorkspace>);

struct IdleWorkspace {
    owner: Owner,
    n_bytes: usize,
    workspace: Box<Workspace>,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

impl Pool {
    /// The pool of this process.
    fn get() -> &'static Self {
        let pool = POOL.load(Ordering::Acquire);
        // SAFETY: null, or a pool leaked by `create`, which is never freed.
        unsafe { pool.as_ref() }.unwrap_or_else(Self::create)
    }

    #[cold]
    fn create() -> &'static Self {
        replace_in_forked_children();
        let pool = Box::into_raw(Box::default());
        match POOL.compare_exchange(ptr::null_mut(), pool, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the pool just leaked.
            Ok(_) => unsafe { &*pool },
            Err(earlier) => {
                // SAFETY: `pool` comes from `into_raw`, and no one else knows it; `earlier` was leaked by another thread.
                unsafe {
                    drop(Box::from_raw(pool));
                    &*earlier
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        // A panic elsewhere cannot leave the list half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// Has children that are forked from now on start without a pool. What the parent's holds is leaked there.
fn replace_in_forked_children() {
    #[cfg(unix)]
    {
        extern "C" fn forget_pool() {
            POOL.store(ptr::null_mut(), Ordering::Release);
        }
        static ONCE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !ONCE.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler stores to an atomic and nothing else, which is allowed in a forked child. A refusal (no
            // memory) leaves children with a copy of the parent's pool.
            unsafe { libc::pthread_atfork(None, None, Some(forget_pool)) };
        }
    }
}

#[cfg(test)]
#[path = "tests/workspace_pool.rs"]
mod tests;
