//! Lists of ids: from Rust to Python and back.

use crate::buffers::reserved;
use crate::convert::one_id;
use once_cell::race::OnceBox;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};

/// Ids whose `int` objects are made together.
const CHUNK: usize = 64;

/// The Python `int` of each id, made with its chunk of ids when one of them first appears in a list, and then shared.
///
/// A list then takes 8 bytes per token instead of 40, and no allocation per token. Two threads that fill one chunk at the
/// same time do not wait for each other: the first result wins. So no lock can be left held in a forked child.
pub struct IntCache {
    chunks: Vec<OnceBox<[Py<PyInt>; CHUNK]>>,
}

impl IntCache {
    /// A cache for ids below `n_ids`.
    pub fn new(n_ids: usize) -> PyResult<Self> {
        let mut chunks = reserved(n_ids.div_ceil(CHUNK))?;
        chunks.resize_with(n_ids.div_ceil(CHUNK), OnceBox::new);
        Ok(Self { chunks })
    }

    /// A list of `ids`.
    pub fn list<'py>(&self, py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: the thread is attached. The call returns a new reference, or null with an exception set. A slice has at
        // most isize::MAX elements. Until all items are set, nobody else knows the list; it may be dropped while some
        // are null. (`PyList::new` panics if the allocation fails.)
        let list = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(ids.len() as ffi::Py_ssize_t))? };
        let list = list.cast_into::<PyList>()?;
        for (index, &id) in ids.iter().enumerate() {
            list.set_item(index, self.int(py, id))?;
        }
        Ok(list)
    }

    fn int<'a, 'py>(&'a self, py: Python<'py>, id: u32) -> Borrowed<'a, 'py, PyInt> {
        let (chunk, index) = (id as usize / CHUNK, id as usize % CHUNK);
        let ints = self.chunks[chunk]
            .get_or_init(|| Box::new(std::array::from_fn(|index| PyInt::new(py, chunk * CHUNK + index).unbind())));
        ints[index].bind_borrowed(py)
    }
}

/// The ids of a list.
pub fn ids_of_list(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let py = list.py();
    let mut ids = reserved(list.len())?;
    loop {
        // Plain ints run no Python code, so the list does not change in this loop.
        for index in ids.len()..list.len() {
            // SAFETY: the thread is attached, and `index` is inside the list. The list keeps the item alive, as nothing
            // that could change the list runs before the next iteration. PyLong_AsLong of an exact int runs no Python
            // code; -1 is the value itself or an overflow with an exception set.
            let value = unsafe {
                let item = ffi::PyList_GetItem(list.as_ptr(), index as ffi::Py_ssize_t);
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
        // Another type, a number out of range, or no number at all. This may run Python code.
        drop(PyErr::take(py));
        ids.push(one_id(&list.get_item(ids.len())?)?);
    }
}
