//! Learning stays within its memory limit, measured by a counting allocator.

#![allow(missing_docs, reason = "a test")]

use bytemill::Result;
use bytemill::train::count::Counts;
use bytemill::train::merges::{PretokenSource, Ties, learn, learn_from, learn_within, least_bytes_within};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system allocator, counting the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn allocate(n_bytes: usize) {
    PEAK.fetch_max(IN_USE.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes, Ordering::Relaxed);
}

fn release(n_bytes: usize) {
    IN_USE.fetch_sub(n_bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        release(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, n_bytes: usize) -> *mut u8 {
        if n_bytes > layout.size() {
            allocate(n_bytes - layout.size());
        } else {
            release(layout.size() - n_bytes);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(start, layout, n_bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of `work`, and its peak memory beyond what was in use before, plus `held`.
fn peak<R>(held: u64, work: impl FnOnce() -> R) -> (R, u64) {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, (PEAK.load(Ordering::Relaxed) - before) as u64 + held)
}

/// Pre-tokens generated at every visit.
#[derive(Clone, Copy)]
struct Generated {
    n_pretokens: u64,
    /// Number of letters; the first are the most frequent.
    n_letters: u64,
    max_letters: u64,
    /// Longest repetition of a letter.
    max_run: u64,
}

impl PretokenSource for Generated {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut state = 1u64;
        let mut chance = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * u128::from(n)) >> 64) as u64
        };
        let mut pretoken = Vec::new();
        for number in 0..self.n_pretokens {
            pretoken.clear();
            for _ in 0..1 + chance(self.max_letters) {
                let letter = chance(self.n_letters + 1);
                let letter = chance(letter + 1) as u8 + 32;
                for _ in 0..1 + chance(self.max_run) {
                    pretoken.push(letter);
                }
            }
            each(&pretoken, 1 + 1_000_000 / (number + 1) * (1 + chance(3)))?;
        }
        Ok(())
    }
}

impl Generated {
    fn counts(mut self) -> Counts {
        let mut items = Vec::new();
        self.visit(&mut |pretoken, count| {
            items.push((pretoken.to_vec(), count));
            Ok(())
        })
        .unwrap();
        Counts::from_items(items.into_iter()).unwrap()
    }
}

const MB: u64 = 1 << 20;

// A single test, because the allocator counts all threads of the process.
#[test]
fn learning_stays_within_its_memory_limit() {
    let many_pairs = Generated { n_pretokens: 30_000, n_letters: 200, max_letters: 16, max_run: 1 };
    let few_letters = Generated { n_pretokens: 30_000, n_letters: 12, max_letters: 24, max_run: 1 };
    // The most frequent pair has as many positions as a quarter of the slots.
    let runs = Generated { n_pretokens: 10_000, n_letters: 2, max_letters: 12, max_run: 9 };
    for (made, n_merges) in [(many_pairs, 1_500), (few_letters, 1_000), (runs, 500)] {
        let counts = made.counts();
        let (expected, unlimited) = peak(0, || learn(&counts, n_merges, Ties::Bytes, 1, 2, |_| Ok(())).unwrap());
        let least = least_bytes_within(&counts, n_merges);
        let held = counts.n_unique_bytes() as u64 + 24 * counts.n_unique() as u64;
        for more in [0, 4 * MB] {
            let max_bytes = least + more;
            let again = made.counts();
            let ((), used) = peak(held, || {
                let learned = learn_within(again, n_merges, Ties::Bytes, 1, 2, Some(max_bytes), |_| Ok(())).unwrap();
                assert_eq!(learned, expected);
            });
            println!("{n_merges} merges in {max_bytes}: {used}, unlimited {unlimited}");
            assert!(used <= max_bytes, "{used} bytes were in use, the limit is {max_bytes}");
        }
        drop(counts);
        let needed = learn_from(made, n_merges, Ties::Bytes, 1, 2, Some(0), |_| Ok(())).unwrap_err().to_string();
        let needed: u64 = needed.split(' ').find_map(|word| word.parse().ok()).unwrap();
        for (more, n_threads) in [(0, 1), (MB / 4, 3), (8 * MB, 4)] {
            let max_bytes = needed + more;
            let (learned, used) =
                peak(0, || learn_from(made, n_merges, Ties::Bytes, 1, n_threads, Some(max_bytes), |_| Ok(())).unwrap());
            println!("{n_merges} merges of a source in {max_bytes}: {used}");
            assert!(used <= max_bytes, "{used} bytes were in use, the limit is {max_bytes}");
            assert_eq!(learned, expected);
        }
    }
}
