//! Zeroed memory for lookup tables, in huge pages where the system has them.
//!
//! Lookup tables are read and written at random. With pages of 4 KiB the processor spends as long on translating
//! addresses as on the work; Linux gives pages of 2 MiB on request (`madvise`). Nothing depends on it but time.

use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::MmapMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 1 << 21;

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
    map: MmapMut,
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
        Ok(Self { start, len, map, _values: PhantomData })
    }

    /// Takes the memory of a range of values that will be used soon, in huge pages if the whole array has at least one.
    ///
    /// Taken at once it is cheaper than page by page, above all while other threads take memory too.
    pub fn prepare(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        {
            let offset = self.start.as_ptr().addr() - self.map.as_ptr().addr();
            let (start, end) = (range.start * size_of::<T>(), range.end * size_of::<T>());
            // A refusal only costs time.
            if end >= HUGE_PAGE {
                let _ = self.map.advise_range(Advice::HugePage, offset, end);
            }
            let _ = self.map.advise_range(Advice::PopulateWrite, offset + start, end - start);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (range, &self.map);
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
#[path = "tests/huge_pages.rs"]
mod tests;
