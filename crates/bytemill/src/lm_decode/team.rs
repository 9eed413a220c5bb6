//! Threads that work on short pieces in step.
//!
//! A token is about sixty parallel steps of 10 to 500 µs each: starting a thread or waking one for each would take as long. The
//! threads of a team wait for the next step in a loop, yield after some microseconds, and sleep soon after.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// Turns of a waiting loop before it yields, a few microseconds.
const SPINS: usize = 500;
/// Turns of a waiting loop before it sleeps.
const TURNS: usize = SPINS + 200;

type Step<'a> = &'a (dyn Fn(usize) + Sync);

/// A fixed number of threads, the caller's included.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The caller works alone.
    is_alone: bool,
}

struct Shared {
    /// The current step. Written by the owner of the team while no thread works, read by the threads after `round` has changed.
    step: UnsafeCell<Option<Step<'static>>>,
    round: AtomicUsize,
    n_working: AtomicUsize,
    stops: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: the only field that is not `Sync` is `step`. `Team::run` has the team alone (`&mut self`) and writes it when `n_working`
// is 0, before the `Release` store to `round`; threads read it after an `Acquire` load of `round` and before they lower
// `n_working`, for which `Team::run` waits. So no read coincides with a write.
unsafe impl Sync for Shared {}
// SAFETY: as above; a `Step` is a reference to something `Sync`.
unsafe impl Send for Shared {}

impl Team {
    /// Starts `n_threads - 1` threads; fewer if the system refuses.
    pub fn new(n_threads: usize) -> Self {
        let shared = Arc::new(Shared {
            step: UnsafeCell::new(None),
            round: AtomicUsize::new(0),
            n_working: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let start = |number| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("bytemill-decode".into()).spawn(move || shared.work(number)).ok()
        };
        let threads = (1..n_threads).map_while(start).collect();
        Self { shared, threads, is_alone: false }
    }

    /// Lets the caller work alone from now on, or with its threads again: where other programs use the cores, waiting for a thread
    /// that has none takes longer than its work.
    pub fn work_alone(&mut self, alone: bool) {
        self.is_alone = alone;
    }

    /// Number of threads that work, the caller's included.
    pub fn n_threads(&self) -> usize {
        if self.is_alone { 1 } else { self.threads.len() + 1 }
    }

    /// Calls `work` once for each part, each on a thread of its own.
    ///
    /// # Panics
    /// If there are more parts than threads, or `work` panics.
    pub fn for_each<P: Send>(&mut self, parts: &mut [P], work: impl Fn(&mut P) + Sync) {
        struct Parts<P>(*mut P);
        // SAFETY: threads use the pointer for different elements only, see below, and `P` can be sent to them.
        unsafe impl<P: Send> Sync for Parts<P> {}
        impl<P> Parts<P> {
            fn at(&self, index: usize) -> *mut P {
                self.0.wrapping_add(index)
            }
        }
        assert!(parts.len() <= self.n_threads());
        if self.is_alone {
            return parts.iter_mut().for_each(work);
        }
        let n_parts = parts.len();
        let parts = Parts(parts.as_mut_ptr());
        self.run(&|number| {
            if number < n_parts {
                // SAFETY: `number` is within the slice, which `run` outlives no thread's use of, and differs between threads.
                work(unsafe { &mut *parts.at(number) });
            }
        });
    }

    /// Calls `step` with the number of each thread, and returns when all have finished.
    fn run(&mut self, step: Step<'_>) {
        // SAFETY: the reference is used by threads until `n_working` is 0, for which this function waits before it returns,
        // also if `step` panics here: the panic is caught.
        let step_of_threads = unsafe { std::mem::transmute::<Step<'_>, Step<'static>>(step) };
        // SAFETY: no thread reads `step` now, see `Shared`.
        unsafe { *self.shared.step.get() = Some(step_of_threads) };
        self.shared.n_working.store(self.threads.len(), Ordering::Relaxed);
        self.shared.round.fetch_add(1, Ordering::Release);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        let own: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| step(0)));
        let mut turns = 0;
        while self.shared.n_working.load(Ordering::Acquire) > 0 {
            turns += 1;
            if turns < SPINS { spin_loop() } else { thread::yield_now() }
        }
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!self.shared.panicked.load(Ordering::Relaxed), "a thread of the decoder panicked");
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        self.shared.round.fetch_add(1, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

impl Shared {
    fn work(&self, number: usize) {
        let mut seen = 0;
        loop {
            let mut turns = 0;
            while self.round.load(Ordering::Acquire) == seen {
                turns += 1;
                if turns < SPINS {
                    spin_loop();
                } else if turns < TURNS {
                    thread::yield_now();
                } else {
                    thread::park();
                }
            }
            seen += 1;
            if self.stops.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: `run` wrote the step before it changed `round`, and writes no other while this thread counts as working.
            let step = unsafe { *self.step.get() };
            if let Some(step) = step
                && catch_unwind(AssertUnwindSafe(|| step(number))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.n_working.fetch_sub(1, Ordering::Release);
        }
    }
}
