//! Keeps the threads of one piece of work on different cores.
//!
//! Some systems leave two busy threads of a process on one core while another idles. Seen on Linux 6.18 in a small virtual machine:
//! two threads, each with half of a text, took 390, 299 and 246 ms, with a core each 284, 274 and 201.

use std::sync::atomic::{AtomicUsize, Ordering};

/// No core.
const NONE: usize = usize::MAX;

/// Where the thread runs that others help.
pub struct Home {
    core: AtomicUsize,
    allowed: Option<system::Cores>,
}

/// A thread that helps: it keeps off the core of the one that it helps.
pub struct Away<'h> {
    home: &'h Home,
    /// The core it keeps off.
    from: AtomicUsize,
}

impl Home {
    /// For the calling thread and its helpers, `n_threads` in all. Where there are fewer cores, they are left alone.
    pub fn new(n_threads: usize) -> Self {
        let allowed = system::Cores::allowed().filter(|cores| cores.len() >= n_threads);
        let home = Self { core: AtomicUsize::new(NONE), allowed };
        home.tell();
        home
    }

    /// Tells the helpers where this thread runs now: to be called now and then, as the system may have moved it.
    pub fn tell(&self) {
        if self.allowed.is_some() {
            self.core.store(system::core().unwrap_or(NONE), Ordering::Relaxed);
        }
    }

    /// To be made by each helper.
    pub fn away(&self) -> Away<'_> {
        let away = Away { home: self, from: AtomicUsize::new(NONE) };
        away.keep();
        away
    }
}

impl Away<'_> {
    /// Keeps this thread off the other's core: to be called now and then, as the system may have moved the other.
    pub fn keep(&self) {
        let core = self.home.core.load(Ordering::Relaxed);
        if core != self.from.load(Ordering::Relaxed)
            && let Some(allowed) = &self.home.allowed
        {
            self.from.store(core, Ordering::Relaxed);
            allowed.without(core).keep_to();
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use libc::{CPU_CLR, CPU_COUNT, CPU_SETSIZE, cpu_set_t, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// A set of cores.
    #[derive(Clone, Copy)]
    pub struct Cores(cpu_set_t);

    impl Cores {
        /// Those that the calling thread may run on, unless the system has more than a set can name.
        pub fn allowed() -> Option<Self> {
            // SAFETY: a set is an array of bits, of which all may be 0; the call is told its size and writes no more.
            unsafe {
                let mut cores = std::mem::zeroed();
                (sched_getaffinity(0, size_of::<cpu_set_t>(), &raw mut cores) == 0).then_some(Self(cores))
            }
        }

        pub fn len(&self) -> usize {
            // SAFETY: it reads the set.
            usize::try_from(unsafe { CPU_COUNT(&self.0) }).unwrap_or(0)
        }

        pub fn without(mut self, core: usize) -> Self {
            if core < CPU_SETSIZE as usize {
                // SAFETY: it changes a bit of the set, and `core` is one of them.
                unsafe { CPU_CLR(core, &mut self.0) };
            }
            self
        }

        /// Has the calling thread run on these alone, if the system agrees.
        pub fn keep_to(&self) {
            // SAFETY: the call reads as many bytes of the set as it has.
            unsafe { sched_setaffinity(0, size_of::<cpu_set_t>(), &raw const self.0) };
        }
    }

    /// The core that the calling thread runs on.
    pub fn core() -> Option<usize> {
        // SAFETY: it has no arguments.
        usize::try_from(unsafe { sched_getcpu() }).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Not known here.
    #[derive(Clone, Copy)]
    pub struct Cores(());

    impl Cores {
        pub fn allowed() -> Option<Self> {
            None
        }

        pub fn len(&self) -> usize {
            0
        }

        pub fn without(self, _: usize) -> Self {
            self
        }

        pub fn keep_to(&self) {}
    }

    pub fn core() -> Option<usize> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn n_allowed() -> usize {
        system::Cores::allowed().unwrap().len()
    }

    #[test]
    fn a_helper_follows_the_other_threads_core_and_keeps_off_it() {
        let n_cores = n_allowed();
        if n_cores < 2 {
            // Nothing to keep off.
            return;
        }
        let home = Home::new(2);
        assert_ne!(home.core.load(Ordering::Relaxed), NONE);
        let first =
            |core: usize| (core..1024).find(|&core| system::Cores::allowed().unwrap().without(core).len() < n_cores);
        let one = first(0).unwrap();
        let other = first(one + 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let away = home.away();
                assert_eq!(n_allowed(), n_cores - 1);
                for core in [one, other, one, one] {
                    home.core.store(core, Ordering::Relaxed);
                    away.keep();
                    assert_eq!(n_allowed(), n_cores - 1);
                    assert_eq!(system::Cores::allowed().unwrap().without(core).len(), n_cores - 1);
                    assert!(n_cores > 2 || system::core() != Some(core));
                }
            });
        });
        assert_eq!(n_allowed(), n_cores, "only helpers are moved");
    }

    #[test]
    fn helpers_are_left_alone_where_there_are_more_threads_than_cores() {
        let n_cores = n_allowed();
        let home = Home::new(n_cores + 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                home.away().keep();
                assert_eq!(n_allowed(), n_cores);
            });
        });
    }
}
