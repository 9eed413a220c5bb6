//! Memory in large pages.
//!
//! Tables are read and written all over. With pages of 4 kB the processor spends as long on finding where they are as the
//! work on them takes; pages of 2 MB are asked for where the system gives them (Linux), and nothing depends on it.
//!
//! Results grow into large pages too, as long as that is quick: 100 MB take 11 ms, in small pages 45 to 70. But where the host
//! of a virtual machine has taken free memory back, the first touch of a large page costs up to 5 ms, 230 ms for 100 MB.

use memmap2::MmapMut;
use std::alloc::{Layout, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Bytes of a large page.
const LARGE_PAGE: usize = 1 << 21;

/// Types that may be all zeros, in memory that any bits may fill.
///
/// # Safety
/// Every pattern of bits must be a value of the type, and it must need no drop and no more than [`LARGE_PAGE`] alignment.
pub unsafe trait Plain: Copy {}

/// `N` values that begin as zeros. Memory is taken as they fill.
///
/// Their number is part of the type, so that an index of as many bits needs no check.
pub struct HugeArray<T, const N: usize> {
    start: NonNull<[T; N]>,
    /// Owns the memory.
    _map: MmapMut,
}

// SAFETY: it owns its memory, and hands it out by the rules of borrowing.
unsafe impl<T: Plain + Send, const N: usize> Send for HugeArray<T, N> {}
// SAFETY: as above.
unsafe impl<T: Plain + Sync, const N: usize> Sync for HugeArray<T, N> {}

impl<T: Plain, const N: usize> HugeArray<T, N> {
    /// Zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        let n_bytes = size_of::<[T; N]>();
        let Ok(mut map) = MmapMut::map_anon(n_bytes + LARGE_PAGE) else {
            handle_alloc_error(Layout::new::<[T; N]>());
        };
        #[cfg(target_os = "linux")]
        // Without large pages it is the same memory, only slower.
        let _ = map.advise(memmap2::Advice::HugePage);
        let offset = map.as_ptr().align_offset(LARGE_PAGE);
        let start = NonNull::from(&mut map[offset..offset + n_bytes]).cast();
        Self { start, _map: map }
    }
}

impl<T: Plain, const N: usize> Deref for HugeArray<T, N> {
    type Target = [T; N];

    #[inline]
    fn deref(&self) -> &[T; N] {
        // SAFETY: `N` values lie within the map, which lives as long as `self`, is at a multiple of `LARGE_PAGE`, and is zeros
        // or what was written since; any bits are a `T`.
        unsafe { self.start.as_ref() }
    }
}

impl<T: Plain, const N: usize> DerefMut for HugeArray<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T; N] {
        // SAFETY: as in `deref`; `self` is borrowed for as long as the array.
        unsafe { self.start.as_mut() }
    }
}

/// What the 512 small pages in place of a large one cost, 2 µs each.
const SLOW: Duration = Duration::from_millis(1);

/// After a slow one, so many pages stay small: at most 1 % of the time that their ids take is lost.
const PAGES_TO_SKIP: u32 = 32;

/// Has what is appended to vectors go to large pages, as long as the system is quick to give them.
#[derive(Default)]
pub struct LargePages {
    /// Where the vector begins, and up to where its pages have been seen to; addresses.
    vector: usize,
    until: usize,
    n_to_skip: u32,
}

impl LargePages {
    /// To be called before another vector, which may be where one was that is gone.
    pub fn begin(&mut self) {
        (self.vector, self.until) = (0, 0);
    }

    /// To be called before up to `n_more` values are appended.
    #[inline]
    pub fn take<T: Copy + Default>(&mut self, values: &mut Vec<T>, n_more: usize) {
        let end = values.as_ptr().addr() + size_of::<T>() * (values.len() + n_more);
        if end > self.until || values.as_ptr().addr() != self.vector {
            self.take_up_to(end, values);
        }
    }

    #[cold]
    fn take_up_to<T: Copy + Default>(&mut self, end: usize, values: &mut Vec<T>) {
        if values.as_ptr().addr() != self.vector {
            (self.vector, self.until) = (values.as_ptr().addr(), 0);
        }
        let spare = values.spare_capacity_mut();
        let start = spare.as_ptr().addr();
        let mut page = self.until.max(start).next_multiple_of(LARGE_PAGE);
        while page < end {
            let place = (page - start) / size_of::<T>();
            let Some(place) = spare.get_mut(place..place + LARGE_PAGE / size_of::<T>()) else { break };
            if self.n_to_skip > 0 {
                self.n_to_skip -= 1;
            } else if touch(place) > SLOW {
                self.n_to_skip = PAGES_TO_SKIP;
            }
            page += LARGE_PAGE;
        }
        self.until = page.max(end);
    }
}

/// Asks for the page of `place` as a large one, writes to it, and tells how long that took.
fn touch<T: Copy + Default>(place: &mut [MaybeUninit<T>]) -> Duration {
    #[cfg(target_os = "linux")]
    // SAFETY: the pages are whole ones of memory that is ours. The advice changes nothing of what is in them.
    unsafe {
        // Without large pages it is the same memory, only slower.
        libc::madvise(place.as_mut_ptr().cast(), size_of_val(place), libc::MADV_HUGEPAGE);
    }
    let begun = Instant::now();
    if let Some(first) = place.first_mut() {
        first.write(T::default());
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: any bits are an array of numbers.
    unsafe impl Plain for [u64; 8] {}

    #[test]
    fn an_array_begins_as_zeros_and_keeps_what_is_written() {
        let mut array = HugeArray::<[u64; 8], 100_000>::zeroed();
        assert!(array.iter().all(|element| *element == [0; 8]));
        for (index, element) in (0..).zip(array.iter_mut()) {
            *element = [index; 8];
        }
        assert!((0..).zip(array.iter()).all(|(index, element)| *element == [index; 8]));
        assert!(HugeArray::<[u64; 8], 0>::zeroed().is_empty());
    }

    #[test]
    fn a_vector_keeps_its_values_as_it_grows_into_large_pages() {
        let mut pages = LargePages::default();
        let mut values: Vec<u16> = Vec::with_capacity(3 * LARGE_PAGE);
        let mut expected = Vec::new();
        for number in 0..400u32 {
            let some: Vec<u16> = (0..20_000).map(|k| (number * 31 + k) as u16).collect();
            pages.take(&mut values, some.len());
            // It moves to other places once its room is full.
            values.extend_from_slice(&some);
            expected.extend_from_slice(&some);
        }
        assert!(values == expected);
        // No room at all, and more than there is.
        LargePages::default().take(&mut Vec::<u32>::new(), 0);
        LargePages::default().take(&mut Vec::<u32>::new(), LARGE_PAGE);
    }
}
