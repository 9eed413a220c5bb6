//! Lists of ids: Python's from ours, ours from Python's.

use crate::convert::one_id;
use bytemill::prefetch::prefetch_at;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How many ids are looked up at a time. Their places in the table, and the `int`s themselves, are all over some MB: so many
/// are on their way at once, and are there when the list is filled.
const AT_ONCE: usize = 64;

/// The Python `int` of each id, made when the id first stands in a list and kept from then on.
///
/// A list of them takes 8 bytes a token, in place of 40 with an `int` of its own for each, and no allocation.
#[derive(Default)]
pub struct IntOfId {
    /// Null, or an `int` to which the table holds one reference.
    ints: OnceLock<Box<[AtomicPtr<ffi::PyObject>]>>,
}

impl IntOfId {
    /// A list of `ids`, all below `n_ids`, which is the same at every call.
    pub fn list<'py, T>(&self, py: Python<'py>, n_ids: usize, ids: &[T]) -> PyResult<Bound<'py, PyList>>
    where
        T: Copy + Into<u32>,
    {
        let ints = self.ints.get_or_init(|| (0..n_ids).map(|_| AtomicPtr::default()).collect());
        // SAFETY: the thread is attached (`py`). PyList_New gives a new reference or null with an exception set; a
        // slice has no more than isize::MAX elements.
        let list = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(ids.len() as ffi::Py_ssize_t))? };
        let mut found = [ptr::null_mut(); AT_ONCE];
        for (chunk, first) in ids.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)) {
            for (found, &id) in found.iter_mut().zip(chunk) {
                *found = int_of(py, &ints[id.into() as usize], id.into())?;
                prefetch_at(*found);
            }
            for (&int, place) in found[..chunk.len()].iter().zip(first..) {
                // SAFETY: `int` is alive, since the table holds a reference that goes only with `self`. The list is new and
                // known to nobody else, and `place` is inside it; PyList_SetItem takes over the reference made here, also
                // where it fails. While entries are still null the list may be dropped, or visited by the collector.
                let set = unsafe {
                    ffi::Py_INCREF(int);
                    ffi::PyList_SetItem(list.as_ptr(), place, int)
                };
                if set != 0 {
                    return Err(PyErr::fetch(py));
                }
            }
        }
        // SAFETY: PyList_New makes lists.
        Ok(unsafe { list.cast_into_unchecked() })
    }
}

/// The `int` at a place of the table, which keeps the reference.
#[inline]
fn int_of(py: Python<'_>, entry: &AtomicPtr<ffi::PyObject>, id: u32) -> PyResult<*mut ffi::PyObject> {
    let int = entry.load(Ordering::Acquire);
    if int.is_null() { make(py, entry, id) } else { Ok(int) }
}

#[cold]
fn make(py: Python<'_>, entry: &AtomicPtr<ffi::PyObject>, id: u32) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: the thread is attached; PyLong_FromUnsignedLongLong gives a new reference or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(u64::from(id)))? };
    // The GIL lets nobody in between; should there be none, one of two threads wins and the other's `int` goes.
    match entry.compare_exchange(ptr::null_mut(), made.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made.into_ptr()),
        Err(theirs) => Ok(theirs),
    }
}

impl Drop for IntOfId {
    fn drop(&mut self) {
        let Some(ints) = self.ints.take() else { return };
        // Where the interpreter is gone, so are its objects.
        let _ = Python::try_attach(|_| {
            for int in ints {
                // SAFETY: the thread is attached; null, or a reference of the table, which nobody sees any more.
                unsafe { ffi::Py_XDECREF(int.into_inner()) };
            }
        });
    }
}

/// The ids of a list.
pub fn ids_of_list(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let py = list.py();
    let mut ids = Vec::with_capacity(list.len());
    loop {
        // No Python code runs while items are plain ints: the list stays as it is.
        for place in ids.len()..list.len() {
            // SAFETY: the thread is attached and `place` is inside the list, which keeps the item alive: between
            // here and the next turn nothing runs that could change the list. PyLong_AsLong of an exact int runs
            // no Python code; -1 stands for itself or for an overflow, which sets an exception.
            let value = unsafe {
                let item = ffi::PyList_GetItem(list.as_ptr(), place as ffi::Py_ssize_t);
                if ffi::PyLong_CheckExact(item) == 0 { -1 } else { ffi::PyLong_AsLong(item) }
            };
            match u32::try_from(value) {
                Ok(id) => ids.push(id),
                Err(_) => break,
            }
        }
        if ids.len() >= list.len() {
            return Ok(ids);
        }
        // A number of another type, one that no id can be, or no number at all. This may run Python code.
        drop(PyErr::take(py));
        ids.push(one_id(&list.get_item(ids.len())?)?);
    }
}
