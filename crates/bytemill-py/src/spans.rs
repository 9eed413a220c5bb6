//! Ids together with the byte ranges of the text that they stand for.

use crate::encoder::PyEncoder;
use crate::signals::CancellationCheck;
use bytemill::encode::{Allowed, Id};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

impl PyEncoder {
    /// The ids of `text` as an array, and an array with a row (start, end) of byte offsets for each id.
    pub fn ids_and_spans<'py, T: Id + Into<u32> + numpy::Element>(
        &self,
        py: Python<'py>,
        text: &str,
        allowed: Allowed<'_>,
        n_threads: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray2<i64>>)> {
        let check = CancellationCheck::new(None);
        let encoded = py.detach(|| {
            let ids: Vec<T> = self.core().encode_parallel(text, allowed, n_threads, &|| check.poll(0))?;
            let mut offsets = Vec::new();
            let n_offsets = 2 * ids.len();
            offsets.try_reserve_exact(n_offsets).map_err(|_| bytemill::Error::memory::<i64>(n_offsets))?;
            // A text has at most isize::MAX bytes.
            self.core().spans(text, allowed, &ids, |span| offsets.extend([span.start as i64, span.end as i64]))?;
            Ok((ids, offsets))
        });
        let (ids, offsets) = encoded.map_err(|error| check.raise(error))?;
        let spans = PyArray1::from_vec(py, offsets).reshape([ids.len(), 2])?;
        Ok((PyArray1::from_vec(py, ids).into_any(), spans))
    }
}
