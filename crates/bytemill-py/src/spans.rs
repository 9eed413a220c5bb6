//! Ids with the bytes of the text that each stands for.

use crate::encoder::PyEncoder;
use crate::signals::Pulse;
use bytemill::encode::{Allowed, Id};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

impl PyEncoder {
    /// The ids of `text` as an array, and the bytes that each stands for: a row with start and end.
    pub fn ids_and_spans<'py, T: Id + Into<u32> + numpy::Element>(
        &self,
        py: Python<'py>,
        text: &str,
        allowed: Allowed<'_>,
        n_threads: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray2<i64>>)> {
        let pulse = Pulse::new(None);
        let encoded = py.detach(|| {
            let ids: Vec<T> = self.core().encode_parallel(text, allowed, n_threads, &|| pulse.beat(0))?;
            let mut ends = Vec::with_capacity(2 * ids.len());
            // A text has no more than isize::MAX bytes.
            self.core().spans(text, allowed, &ids, |span| ends.extend([span.start as i64, span.end as i64]))?;
            Ok((ids, ends))
        });
        let (ids, ends) = encoded.map_err(|error| pulse.raise(error))?;
        let spans = PyArray1::from_vec(py, ends).reshape([ids.len(), 2])?;
        Ok((PyArray1::from_vec(py, ids).into_any(), spans))
    }
}
