//! Large buffers, whose allocation may fail: `MemoryError` instead of an abort.

use crate::signals::to_python;
use bytemill::Error;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::mem::MaybeUninit;

/// An empty vector with room for `n` values.
pub fn reserved<T>(n: usize) -> PyResult<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| to_python(Error::memory::<T>(n)))?;
    Ok(values)
}

/// A copy of `bytes`.
pub fn copied_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    filled_bytes(py, bytes.len(), |out| {
        for (to, &byte) in out.iter_mut().zip(bytes) {
            to.write(byte);
        }
        Ok(())
    })
}

/// A new `bytes` object of `n_bytes`, which `fill` must initialize completely unless it fails.
///
/// [`PyBytes::new_with`] would write zeros first.
pub fn filled_bytes<'py>(
    py: Python<'py>,
    n_bytes: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(n_bytes).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: the thread is attached. Without bytes to copy, the call returns a new reference to `n_bytes` uninitialized
    // bytes, or null with an exception set. Nobody else knows the object while `fill` writes to it; only the empty
    // object is shared, which has nothing to write to. If `fill` fails, the object is dropped and its bytes are never
    // read.
    let (bytes, out) = unsafe {
        let bytes = Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?;
        let start = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>();
        (bytes, std::slice::from_raw_parts_mut(start, n_bytes))
    };
    fill(out)?;
    Ok(bytes.cast_into()?)
}
