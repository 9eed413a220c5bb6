//! Ids from Python back to bytes and texts.

use crate::convert::{arrays_ready, one_id};
use crate::lists::ids_of_list;
use crate::signals::{Pulse, to_python};
use bytemill::decode::{Decoder, SharedId};
use bytemill::pulse::no_pulse;
use numpy::{PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, AtomicU32};

/// Up to so many ids the work is done before another thread could take the GIL over.
const FEW_IDS: usize = 1 << 12;

/// The bytes of `ids`: of a list, an array of integers, or any iterable of integers.
pub fn bytes<'py>(py: Python<'py>, decoder: &Decoder, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    decode_to(py, decoder, ids, |n_bytes, fill| filled_bytes(py, n_bytes, fill))
}

/// The text of `ids`, as `bytes.decode("utf-8", errors)` gives it.
pub fn text<'py>(
    py: Python<'py>,
    decoder: &Decoder,
    ids: &Bound<'py, PyAny>,
    errors: &CStr,
) -> PyResult<Bound<'py, PyString>> {
    decode_to(py, decoder, ids, |n_bytes, fill| {
        let mut bytes = Vec::new();
        // A quarter more than is needed: glibc gives free memory back to the system beyond twice the largest block that was freed,
        // and without it that would be the bytes and a str of their size, at every call: up to a third slower.
        bytes.try_reserve_exact(n_bytes.saturating_add(n_bytes / 4)).map_err(|_| PyMemoryError::new_err(()))?;
        fill(&mut bytes.spare_capacity_mut()[..n_bytes])?;
        // SAFETY: there is room for so much, and all of it has been filled: else `Decoder::fill` would have failed.
        unsafe { bytes.set_len(n_bytes) };
        decoded(py, &bytes, errors)
    })
}

/// Fills all of the room it is given, or fails.
type Filling<'f> = dyn FnMut(&mut [MaybeUninit<u8>]) -> PyResult<()> + 'f;

/// Calls `make` with the number of bytes that `ids` stand for and with what fills room for so many.
fn decode_to<R>(
    py: Python<'_>,
    decoder: &Decoder,
    ids: &Bound<'_, PyAny>,
    make: impl FnOnce(usize, &mut Filling<'_>) -> PyResult<R>,
) -> PyResult<R> {
    match some_ids(ids)? {
        SomeIds::Own(ids) => decode_shared(py, decoder, &ids, make),
        SomeIds::Wide(array) => decode_shared::<AtomicU32, R>(py, decoder, shared(&array), make),
        SomeIds::Narrow(array) => decode_shared::<AtomicU16, R>(py, decoder, shared(&array), make),
    }
}

fn decode_shared<I: SharedId, R>(
    py: Python<'_>,
    decoder: &Decoder,
    ids: &[I],
    make: impl FnOnce(usize, &mut Filling<'_>) -> PyResult<R>,
) -> PyResult<R> {
    if ids.len() <= FEW_IDS {
        let n_bytes = decoder.n_bytes(ids, &no_pulse).map_err(to_python)?;
        return make(n_bytes, &mut |room| decoder.fill(ids, room, &no_pulse).map_err(to_python));
    }
    let pulse = Pulse::new(None);
    let beat = || pulse.beat(0);
    let n_bytes = py.detach(|| decoder.n_bytes(ids, &beat)).map_err(|error| pulse.raise(error))?;
    make(n_bytes, &mut |room| py.detach(|| decoder.fill(ids, room, &beat)).map_err(|error| pulse.raise(error)))
}

/// `bytes.decode("utf-8", errors)`.
fn decoded<'py>(py: Python<'py>, bytes: &[u8], errors: &CStr) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: the thread is attached; the bytes and the name outlive the call, which gives a new reference to a str or
    // null with an exception set. A slice has no more than isize::MAX bytes.
    unsafe {
        let text = ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t, errors.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, text)?.cast_into_unchecked())
    }
}

/// New bytes, all of which `fill` fills, unless it fails.
fn filled_bytes<'py>(
    py: Python<'py>,
    n_bytes: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    let n_asked = ffi::Py_ssize_t::try_from(n_bytes).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: the thread is attached; without bytes to copy, the call gives a new reference to as many that are not written yet, or
    // null with an exception set.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), n_asked))? };
    // SAFETY: they are `n_bytes` from there on, and nobody else knows of them as long as `fill` runs. Only the empty ones are shared,
    // of which there is nothing to write to.
    let room = unsafe { std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast(), n_bytes) };
    // All of it, or it fails, and nobody ever sees them.
    fill(room)?;
    // SAFETY: they are bytes, as said.
    Ok(unsafe { bytes.cast_into_unchecked() })
}

/// Ids in a vector of their own, or in the array that they came in.
enum SomeIds<'py> {
    Own(Vec<u32>),
    Wide(PyReadonlyArray1<'py, u32>),
    Narrow(PyReadonlyArray1<'py, u16>),
}

/// Ids from a list, an array of integers, or any iterable of integers.
///
/// Those of `uint32` and `uint16` stay where they are: to copy many takes as long as to decode them.
fn some_ids<'py>(ids: &Bound<'py, PyAny>) -> PyResult<SomeIds<'py>> {
    if let Ok(list) = ids.cast::<PyList>() {
        return Ok(SomeIds::Own(ids_of_list(list)?));
    }
    if ids.hasattr("__array_interface__")? {
        arrays_ready(ids.py())?;
        if let Some(ids) = array(ids) {
            return ids;
        }
        // An array may have gaps or lie at an odd address.
        let tidy = ids.py().import("numpy")?.call_method1("require", (ids, ids.py().None(), ("C", "A")))?;
        if let Some(ids) = array(&tidy) {
            return ids;
        }
    }
    if ids.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("ids must be integers, not a str"));
    }
    Ok(SomeIds::Own(ids.try_iter()?.map(|id| one_id(&id?)).collect::<PyResult<_>>()?))
}

/// The numbers of an array in a row as what may change at any time: other threads may write to it while this one has not the GIL.
///
/// `A` is the atomic of `T`.
fn shared<'a, T: numpy::Element, A: SharedId>(array: &'a PyReadonlyArray1<'_, T>) -> &'a [A] {
    const { assert!(size_of::<A>() == size_of::<T>() && align_of::<A>() == align_of::<T>()) };
    let n = array.as_slice().map_or(0, <[T]>::len);
    if n == 0 {
        return &[];
    }
    // SAFETY: as_slice has made sure of so many numbers in a row from there on, well aligned, and the array stays as long as it is
    // borrowed: numpy resizes no array that others refer to, unless told not to look. An atomic number of as many bytes is any of
    // its bits, and to load it, relaxed, is allowed in memory that is only to be read.
    unsafe { std::slice::from_raw_parts(array.data().cast(), n) }
}

/// The ids of an array of integers in a row, None for any other array.
fn array<'py>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>> {
    let dtype = ids.cast::<PyUntypedArray>().ok()?.dtype();
    match (dtype.kind(), dtype.itemsize()) {
        (b'u', 2) => Some(Ok(SomeIds::Narrow(in_a_row(ids)?))),
        (b'u', 4) => Some(Ok(SomeIds::Wide(in_a_row(ids)?))),
        (b'u', 8) => array_ids::<u64>(ids),
        (b'i', 2) => array_ids::<i16>(ids),
        (b'i', 4) => array_ids::<i32>(ids),
        (b'i', 8) => array_ids::<i64>(ids),
        _ => None,
    }
}

fn in_a_row<'py, T: numpy::Element>(ids: &Bound<'py, PyAny>) -> Option<PyReadonlyArray1<'py, T>> {
    let array: PyReadonlyArray1<'py, T> = ids.extract().ok()?;
    array.as_slice().is_ok().then_some(array)
}

fn array_ids<'py, T>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>>
where
    T: numpy::Element + Copy + TryInto<u32> + Into<i128>,
{
    let array = in_a_row::<T>(ids)?;
    let ids = array.as_slice().ok()?;
    // In two passes, neither with a way out, so that several ids are converted at once.
    if ids.iter().fold(true, |all, &id| all & TryInto::<u32>::try_into(id).is_ok()) {
        return Some(Ok(SomeIds::Own(ids.iter().map(|&id| id.try_into().unwrap_or(u32::MAX)).collect())));
    }
    let wrong = ids.iter().find(|&&id| TryInto::<u32>::try_into(id).is_err());
    Some(Err(PyKeyError::new_err(wrong.map(|&id| Into::<i128>::into(id)))))
}
