//! Asking for memory before it is needed.

/// Asks the processor to bring `slice[index]` into its cache; does nothing where it cannot be asked.
///
/// # Panics
/// Where `index` is outside `slice`.
#[inline]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let element: *const T = &raw const slice[index];
        // SAFETY: SSE is part of every x86-64; a prefetch changes nothing a program can see, and the address is that
        // of an element of the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(element.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = &slice[index];
}
