//! Memory in large pages.
//!
//! Tables are read and written all over. With pages of 4 kB the processor spends as long on finding where they are as the
//! work on them takes; pages of 2 MB are asked for where the system gives them (Linux), and nothing depends on it.
//!
//! (Results are not in large pages. Where the host of a virtual machine has taken free memory back, the first touch of a
//! large page costs up to 5 ms, and 100 MB of results up to 270 ms instead of 12; of small pages it is 45 to 70 ms.)

use memmap2::MmapMut;
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a large page.
const LARGE_PAGE: usize = 1 << 21;

/// Types that may be all zeros, in memory that any bits may fill.
///
/// # Safety
/// Every pattern of bits must be a value of the type, and it must need no drop and no more than [`LARGE_PAGE`] alignment.
pub unsafe trait Plain: Copy {}

/// A slice that begins as zeros. Memory is taken as it fills.
pub struct HugeBox<T> {
    start: NonNull<T>,
    n: usize,
    /// Owns the memory.
    _map: MmapMut,
}

// SAFETY: it owns its memory, and hands it out by the rules of borrowing.
unsafe impl<T: Plain + Send> Send for HugeBox<T> {}
// SAFETY: as above.
unsafe impl<T: Plain + Sync> Sync for HugeBox<T> {}

impl<T: Plain> HugeBox<T> {
    /// `n` zeros.
    #[must_use]
    pub fn zeroed(n: usize) -> Self {
        let n_bytes = n * size_of::<T>();
        let Ok(mut map) = MmapMut::map_anon(n_bytes + LARGE_PAGE) else {
            handle_alloc_error(Layout::array::<T>(n).unwrap_or(Layout::new::<T>()));
        };
        #[cfg(target_os = "linux")]
        // Without large pages it is the same memory, only slower.
        let _ = map.advise(memmap2::Advice::HugePage);
        let offset = map.as_ptr().align_offset(LARGE_PAGE);
        let start = NonNull::from(&mut map[offset..offset + n_bytes]).cast();
        Self { start, n, _map: map }
    }
}

impl<T: Plain> Deref for HugeBox<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `n` values lie within the map, which lives as long as `self`, is at a multiple of `LARGE_PAGE`, and is zeros
        // or what was written since; any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n) }
    }
}

impl<T: Plain> DerefMut for HugeBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: any bits are an array of numbers.
    unsafe impl Plain for [u64; 8] {}

    #[test]
    fn a_slice_begins_as_zeros_and_keeps_what_is_written() {
        let mut slice = HugeBox::<[u64; 8]>::zeroed(100_000);
        assert_eq!(slice.len(), 100_000);
        assert!(slice.iter().all(|element| *element == [0; 8]));
        for (index, element) in (0..).zip(slice.iter_mut()) {
            *element = [index; 8];
        }
        assert!((0..).zip(slice.iter()).all(|(index, element)| *element == [index; 8]));
        assert!(HugeBox::<[u64; 8]>::zeroed(0).is_empty());
    }
}
