//! Decode ids from Python to `bytes` and `str`.

use crate::buffers::{filled_bytes, reserved};
use crate::convert::{arrays_ready, one_id};
use crate::lists::ids_of_list;
use crate::signals::{CancellationCheck, UnknownTokenError, to_python};
use bytemill::decode::{Decoder, SharedId};
use bytemill::sys::interrupt::no_interrupt;
use numpy::{PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU16, AtomicU32};

/// Up to this many ids, decoding ends before another thread could take over the GIL.
const FEW_IDS: usize = 1 << 12;

/// Decode `ids`, a list, an array or any other iterable of integers, to `bytes`.
pub fn bytes<'py>(py: Python<'py>, decoder: &Decoder, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match some_ids(ids)? {
        SomeIds::Owned(ids) => decode(py, decoder, &ids),
        SomeIds::Wide(array) => decode::<AtomicU32>(py, decoder, shared(&array)),
        SomeIds::Narrow(array) => decode::<AtomicU16>(py, decoder, shared(&array)),
    }
}

/// Decode `ids` to a `str`, like `bytes.decode("utf-8", errors)`.
pub fn text<'py>(
    py: Python<'py>,
    decoder: &Decoder,
    ids: &Bound<'py, PyAny>,
    errors: &CStr,
) -> PyResult<Bound<'py, PyString>> {
    let bytes = bytes(py, decoder, ids)?;
    PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(errors))
}

fn decode<'py, I: SharedId>(py: Python<'py>, decoder: &Decoder, ids: &[I]) -> PyResult<Bound<'py, PyBytes>> {
    if ids.len() <= FEW_IDS {
        let n_bytes = decoder.n_bytes(ids, &no_interrupt).map_err(to_python)?;
        return filled_bytes(py, n_bytes, |out| decoder.fill(ids, out, &no_interrupt).map_err(to_python));
    }
    let check = CancellationCheck::new(None);
    let interrupt = || check.poll(0);
    let n_bytes = py.detach(|| decoder.n_bytes(ids, &interrupt)).map_err(|error| check.raise(error))?;
    filled_bytes(py, n_bytes, |out| {
        py.detach(|| decoder.fill(ids, out, &interrupt)).map_err(|error| check.raise(error))
    })
}

/// Ids in their own vector or in the caller's array.
enum SomeIds<'py> {
    Owned(Vec<u32>),
    Wide(PyReadonlyArray1<'py, u32>),
    Narrow(PyReadonlyArray1<'py, u16>),
}

/// Ids from a list, an array or any other iterable of integers.
///
/// Arrays of `uint32` and `uint16` are not copied: copying takes as long as decoding.
fn some_ids<'py>(ids: &Bound<'py, PyAny>) -> PyResult<SomeIds<'py>> {
    if let Ok(list) = ids.cast::<PyList>() {
        return Ok(SomeIds::Owned(ids_of_list(list)?));
    }
    if ids.hasattr("__array_interface__")? {
        arrays_ready(ids.py())?;
        if let Some(ids) = array(ids) {
            return ids;
        }
        // Not contiguous, or not aligned.
        let contiguous = ids.py().import("numpy")?.call_method1("require", (ids, ids.py().None(), ("C", "A")))?;
        if let Some(ids) = array(&contiguous) {
            return ids;
        }
    }
    if ids.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("ids must be integers, not a str"));
    }
    Ok(SomeIds::Owned(ids.try_iter()?.map(|id| one_id(&id?)).collect::<PyResult<_>>()?))
}

/// The elements of a contiguous array as atomics: other threads may write to the array while this one runs without the
/// GIL.
///
/// `A` is the atomic type of `T`.
fn shared<'a, T: numpy::Element, A: SharedId>(array: &'a PyReadonlyArray1<'_, T>) -> &'a [A] {
    const { assert!(size_of::<A>() == size_of::<T>() && align_of::<A>() == align_of::<T>()) };
    let n = array.as_slice().map_or(0, <[T]>::len);
    if n == 0 {
        return &[];
    }
    // SAFETY: `as_slice` has checked that the array holds `n` contiguous, aligned elements, and the borrow keeps the array
    // alive (numpy does not resize arrays that are referenced). `A` has the size and alignment of `T`, every bit pattern
    // is a valid value, and relaxed loads are allowed in read-only memory.
    unsafe { std::slice::from_raw_parts(array.data().cast(), n) }
}

/// The ids of a contiguous integer array. Returns `None` for any other array.
fn array<'py>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>> {
    let dtype = ids.cast::<PyUntypedArray>().ok()?.dtype();
    match (dtype.kind(), dtype.itemsize()) {
        (b'u', 2) => Some(Ok(SomeIds::Narrow(contiguous_array(ids)?))),
        (b'u', 4) => Some(Ok(SomeIds::Wide(contiguous_array(ids)?))),
        (b'u', 8) => array_ids::<u64>(ids),
        (b'i', 2) => array_ids::<i16>(ids),
        (b'i', 4) => array_ids::<i32>(ids),
        (b'i', 8) => array_ids::<i64>(ids),
        _ => None,
    }
}

fn contiguous_array<'py, T: numpy::Element>(ids: &Bound<'py, PyAny>) -> Option<PyReadonlyArray1<'py, T>> {
    let array: PyReadonlyArray1<'py, T> = ids.extract().ok()?;
    array.as_slice().is_ok().then_some(array)
}

fn array_ids<'py, T>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>>
where
    T: numpy::Element + Copy + TryInto<u32> + Into<i128>,
{
    let array = contiguous_array::<T>(ids)?;
    let ids = array.as_slice().ok()?;
    // Two passes without early exit, so that both vectorize.
    if ids.iter().fold(true, |all, &id| all & TryInto::<u32>::try_into(id).is_ok()) {
        return Some(reserved(ids.len()).map(|mut converted| {
            converted.extend(ids.iter().map(|&id| TryInto::<u32>::try_into(id).unwrap_or(u32::MAX)));
            SomeIds::Owned(converted)
        }));
    }
    let wrong = ids.iter().find(|&&id| TryInto::<u32>::try_into(id).is_err());
    Some(Err(UnknownTokenError::new_err(wrong.map(|&id| Into::<i128>::into(id)))))
}
