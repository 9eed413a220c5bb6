//! Asking for memory before it is needed.

/// Asks the processor to bring `slice[index]` into its cache; does nothing where it cannot be asked.
///
/// # Panics
/// Where `index` is outside `slice`.
#[inline]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_at(&raw const slice[index]);
}

/// Asks the processor to bring what is at `address`, which may be anything, into its cache.
#[inline]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64; a prefetch changes nothing a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
