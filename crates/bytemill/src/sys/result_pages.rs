//! Large results in huge pages, as long as these come quickly.
//!
//! A result is written once, so each page costs a page fault: 100 MB take 45 to 90 ms in pages of 4 KiB and 11 ms in huge pages.
//! But if the host of a virtual machine has taken back free memory, the first access to a huge page takes up to 8 ms. So each
//! huge page is timed, and after a slow one the next pages are small.

use std::mem::MaybeUninit;

/// Takes the memory that the next `n_more` values are the first to reach. `spare` is the rest of a buffer filled from the front.
///
/// To be called before every write to the buffer. Results below a few megabytes are not affected.
#[inline]
pub fn prepare<T>(spare: &mut [MaybeUninit<T>], n_more: usize) {
    #[cfg(target_os = "linux")]
    {
        let start = spare.as_ptr().addr();
        let end = start + size_of::<T>() * n_more.min(spare.len());
        if start.next_multiple_of(linux::HUGE_PAGE) < end {
            linux::take_pages(spare, end);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (spare, n_more);
}

#[cfg(target_os = "linux")]
mod linux {
    pub use crate::sys::huge_pages::HUGE_PAGE;
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// A huge page that takes longer is slow. The 512 small pages in its place take about as long.
    const SLOW: Duration = Duration::from_millis(1);

    /// How many pages stay small after a slow one, which takes as long as 4 to 10 of them.
    const N_SMALL: u32 = 128;

    /// How many of the next pages stay small, whichever thread takes them.
    static N_SMALL_LEFT: AtomicU32 = AtomicU32::new(0);

    /// Takes each whole page of `spare` that starts before the address `end`.
    #[cold]
    pub fn take_pages<T>(spare: &mut [MaybeUninit<T>], end: usize) {
        let (start, memory) = (spare.as_ptr().addr(), spare.as_mut_ptr());
        let mut page = start.next_multiple_of(HUGE_PAGE);
        while page < end && page + HUGE_PAGE <= start + size_of_val(spare) {
            let advise = |advice| {
                // SAFETY: the page lies within `spare`, which is borrowed exclusively, and neither advice changes its contents.
                // A refusal only costs time.
                unsafe { libc::madvise(memory.with_addr(page).cast(), HUGE_PAGE, advice) };
            };
            let is_huge = N_SMALL_LEFT.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err();
            if is_huge {
                advise(libc::MADV_HUGEPAGE);
            }
            let started = Instant::now();
            // Small pages taken together are quicker than one by one, too.
            advise(libc::MADV_POPULATE_WRITE);
            if is_huge && started.elapsed() > SLOW {
                N_SMALL_LEFT.store(N_SMALL, Relaxed);
            }
            page += HUGE_PAGE;
        }
    }
}

#[cfg(test)]
#[path = "tests/result_pages.rs"]
mod tests;
