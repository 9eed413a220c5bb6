//! Prefetching memory into the processor's cache.

/// Prefetches `slice[index]`; does nothing on processors without such an instruction.
///
/// # Panics
/// If `index` is out of bounds.
#[inline]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_at(&raw const slice[index]);
}

/// Prefetches the memory at any address, valid or not.
#[inline]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64; a prefetch has no effect that a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
