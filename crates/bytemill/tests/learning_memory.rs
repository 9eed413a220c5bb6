//! Learning takes no more memory than it may: every allocation is added up.

#![allow(missing_docs, reason = "a test")]

use bytemill::Result;
use bytemill::count::Counts;
use bytemill::merges::{Ties, WordSource, learn, learn_from, learn_within, least_bytes_within};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which counts what is taken and not given back.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn take(n_bytes: usize) {
    PEAK.fetch_max(TAKEN.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes, Ordering::Relaxed);
}

fn give_back(n_bytes: usize) {
    TAKEN.fetch_sub(n_bytes, Ordering::Relaxed);
}

// SAFETY: all is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, n_bytes: usize) -> *mut u8 {
        if n_bytes > layout.size() {
            take(n_bytes - layout.size());
        } else {
            give_back(layout.size() - n_bytes);
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(start, layout, n_bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the most bytes that were taken during it beyond those before it and `held` ones of them.
fn peak<R>(held: u64, work: impl FnOnce() -> R) -> (R, u64) {
    let before = TAKEN.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, (PEAK.load(Ordering::Relaxed) - before) as u64 + held)
}

/// Words made anew whenever they are asked for.
#[derive(Clone, Copy)]
struct Made {
    n_words: u64,
    /// Letters, of which the first are the most frequent.
    n_letters: u64,
    max_letters: u64,
    /// Longest repetition of a letter.
    max_run: u64,
}

impl WordSource for Made {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut state = 1u64;
        let mut chance = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * u128::from(n)) >> 64) as u64
        };
        let mut word = Vec::new();
        for number in 0..self.n_words {
            word.clear();
            for _ in 0..1 + chance(self.max_letters) {
                let letter = chance(self.n_letters + 1);
                let letter = chance(letter + 1) as u8 + 32;
                for _ in 0..1 + chance(self.max_run) {
                    word.push(letter);
                }
            }
            each(&word, 1 + 1_000_000 / (number + 1) * (1 + chance(3)))?;
        }
        Ok(())
    }
}

impl Made {
    fn counts(mut self) -> Counts {
        let mut items = Vec::new();
        self.visit(&mut |word, count| {
            items.push((word.to_vec(), count));
            Ok(())
        })
        .unwrap();
        Counts::from_items(items.into_iter()).unwrap()
    }
}

const MB: u64 = 1 << 20;

// One test, as others at the same time would be counted too.
#[test]
fn no_more_is_taken_than_may_be() {
    let many_pairs = Made { n_words: 30_000, n_letters: 200, max_letters: 16, max_run: 1 };
    let few_letters = Made { n_words: 30_000, n_letters: 12, max_letters: 24, max_run: 1 };
    // A pair has as many places as a quarter of the slots.
    let runs = Made { n_words: 10_000, n_letters: 2, max_letters: 12, max_run: 9 };
    for (made, n_merges) in [(many_pairs, 1_500), (few_letters, 1_000), (runs, 500)] {
        let counts = made.counts();
        let (expected, unlimited) = peak(0, || learn(&counts, n_merges, Ties::Bytes, 1, 2, |_| Ok(())).unwrap());
        let least = least_bytes_within(&counts, n_merges);
        let held = counts.n_unique_bytes() as u64 + 24 * counts.n_unique() as u64;
        for more in [0, 4 * MB] {
            let max_bytes = least + more;
            let again = made.counts();
            let ((), taken) = peak(held, || {
                let learnt = learn_within(again, n_merges, Ties::Bytes, 1, 2, Some(max_bytes), |_| Ok(())).unwrap();
                assert_eq!(learnt, expected);
            });
            println!("{n_merges} merges in {max_bytes}: {taken}, unlimited {unlimited}");
            assert!(taken <= max_bytes, "{taken} bytes were taken, {max_bytes} may be");
        }
        drop(counts);
        let needed = learn_from(made, n_merges, Ties::Bytes, 1, 2, Some(0), |_| Ok(())).unwrap_err().to_string();
        let needed: u64 = needed.split(' ').find_map(|word| word.parse().ok()).unwrap();
        for (more, n_threads) in [(0, 1), (MB / 4, 3), (8 * MB, 4)] {
            let max_bytes = needed + more;
            let (learnt, taken) =
                peak(0, || learn_from(made, n_merges, Ties::Bytes, 1, n_threads, Some(max_bytes), |_| Ok(())).unwrap());
            println!("{n_merges} merges of a source in {max_bytes}: {taken}");
            assert!(taken <= max_bytes, "{taken} bytes were taken, {max_bytes} may be");
            assert_eq!(learnt, expected);
        }
    }
}
