//! Too little memory as an error instead of the end of the process, and memory in huge pages, as long as these come quickly: for
//! lookup tables and for large results.
//!
//! Lookup tables are read and written at random, and with pages of 4 KiB the processor spends as long on translating
//! addresses as on the work. A result is written once, and each page costs a page fault: 100 MB take 45 to 90 ms in small
//! pages and 11 ms in huge ones. Linux gives pages of 2 MiB on request (`madvise`). But if the host of a virtual machine has
//! taken back free memory, the first access to a huge page takes up to 8 ms. So each one is timed, and after a slow one the
//! next are small. Nothing depends on all this but time.

use crate::error::{Error, Result};
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// Checks that `n_bytes` can be allocated now, by allocating them untouched and freeing them.
///
/// A step that allocates in many places asks first for all that it may take. Other threads may still take the memory in
/// between, and systems that promise more than they have refuse only what exceeds a limit.
///
/// # Errors
/// [`Error::Memory`].
pub fn check_available(n_bytes: usize) -> Result<()> {
    Vec::<u8>::new().try_reserve_exact(n_bytes).map_err(|_| Error::Memory { n_bytes })
}

/// Bytes of a huge page.
const HUGE_PAGE: usize = 1 << 21;

/// Takes the memory that the next `n_more` values are the first to reach. `spare` is the rest of a buffer filled from the front.
///
/// Must be called before every write to the buffer, at most once for each value. Buffers without a whole huge page are left alone.
#[inline]
pub fn prepare<T>(spare: &mut [MaybeUninit<T>], n_more: usize) {
    let start = spare.as_ptr().addr();
    let end = start + size_of::<T>() * n_more.min(spare.len());
    let first = start.next_multiple_of(HUGE_PAGE);
    if first < end {
        let n_pages =
            (end - first).div_ceil(HUGE_PAGE).min((start + size_of_val(spare)).saturating_sub(first) / HUGE_PAGE);
        system::take_pages(spare.as_mut_ptr().cast::<u8>().with_addr(first), n_pages);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::HUGE_PAGE;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// A huge page that takes longer is slow. The 512 small pages in its place take about as long.
    const SLOW: Duration = Duration::from_millis(1);

    /// How many pages stay small after a slow one, which takes as long as 4 to 10 of them.
    const N_SMALL: u32 = 128;

    /// How many of the next pages stay small, whichever thread takes them.
    static N_SMALL_LEFT: AtomicU32 = AtomicU32::new(0);

    /// Takes the memory of whole pages.
    #[cold]
    pub fn take_pages(start: *mut u8, n_pages: usize) {
        for index in 0..n_pages {
            let page = start.wrapping_add(index * HUGE_PAGE);
            let is_huge = N_SMALL_LEFT.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err();
            if is_huge {
                advise(page, HUGE_PAGE, libc::MADV_HUGEPAGE);
            }
            let started = Instant::now();
            take(page, HUGE_PAGE);
            if is_huge && started.elapsed() > SLOW {
                N_SMALL_LEFT.store(N_SMALL, Relaxed);
            }
        }
    }

    /// Takes memory at once, which is quicker than page by page, above all while other threads take memory too.
    pub fn take(start: *mut u8, n_bytes: usize) {
        advise(start, n_bytes, libc::MADV_POPULATE_WRITE);
    }

    fn advise(start: *mut u8, n_bytes: usize, advice: libc::c_int) {
        // SAFETY: `MADV_HUGEPAGE` and `MADV_POPULATE_WRITE` do not change the contents of memory. A failure only costs time.
        unsafe { libc::madvise(start.cast(), n_bytes, advice) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub fn take_pages(_: *mut u8, _: usize) {}
    pub fn take(_: *mut u8, _: usize) {}
}

/// Types for which every bit pattern is a value, all zeros included.
///
/// # Safety
/// The type must be `Copy`, valid for every bit pattern, and aligned to at most 64 bytes.
pub unsafe trait AnyBits: Copy {}

/// A slice that starts as zeros. The system provides its pages when they are first written to, so what is never used takes
/// address space and no memory.
pub struct ZeroedArray<T> {
    start: NonNull<T>,
    len: usize,
    /// Owns the memory that `start` points into.
    _map: MmapMut,
    _values: PhantomData<T>,
}

// SAFETY: the array owns its memory and hands out references by the usual borrowing rules.
unsafe impl<T: AnyBits + Send> Send for ZeroedArray<T> {}
// SAFETY: as above.
unsafe impl<T: AnyBits + Sync> Sync for ZeroedArray<T> {}

impl<T: AnyBits> ZeroedArray<T> {
    /// An array of `len` zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] if the system refuses the memory.
    pub fn new(len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= 64) };
        let n_bytes = len * size_of::<T>();
        let slack = if n_bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let mut map = MmapMut::map_anon((n_bytes + slack).max(1)).map_err(|_| Error::Memory { n_bytes })?;
        let offset = if slack > 0 { map.as_ptr().align_offset(HUGE_PAGE) } else { 0 };
        let start = NonNull::from(&mut map[offset..offset + n_bytes]).cast();
        Ok(Self { start, len, _map: map, _values: PhantomData })
    }

    /// Takes the memory of a range of values that will be used soon.
    pub fn prepare(&mut self, range: Range<usize>) {
        let values = self[range].as_mut_ptr_range();
        let (start, n_bytes) = (values.start.cast::<u8>(), values.end.addr() - values.start.addr());
        if start.addr().is_multiple_of(HUGE_PAGE) && n_bytes.is_multiple_of(HUGE_PAGE) {
            system::take_pages(start, n_bytes / HUGE_PAGE);
        } else {
            system::take(start, n_bytes);
        }
    }
}

impl<T: AnyBits> Deref for ZeroedArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie within the map, which lives as long as `self`; it is aligned to a page, which is enough
        // for `T`; its bits are zeros or values written through `deref_mut`, and any bits are a `T`.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl<T: AnyBits> DerefMut for ZeroedArray<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively as long as the slice lives.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }
}

#[cfg(test)]
#[path = "tests/memory.rs"]
mod tests;
