//! Counts of what token boundaries cut.

use crate::signals::to_python;
use bytemill::Error;
use bytemill::measure::{Bits, Counts, Marks, Tokens};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Documents, and the places in them that token boundaries should respect.
#[pyclass(frozen, name = "TextMarks", module = "bytemill._core")]
pub struct PyTextMarks {
    data: Py<PyBytes>,
    marks: Marks,
}

/// The bytes of a vocabulary's tokens.
#[pyclass(frozen, name = "TokenBytes", module = "bytemill._core")]
pub struct PyTokenBytes(Tokens);

#[pymethods]
impl PyTokenBytes {
    #[new]
    #[pyo3(signature = (data, offsets, adds_space=false))]
    fn new(data: Vec<u8>, offsets: PyReadonlyArray1<'_, u32>, adds_space: bool) -> PyResult<Self> {
        Ok(Self(Tokens::new(data, offsets.as_slice()?.to_vec()).map_err(to_python)?.adding_space(adds_space)))
    }
}

/// The boundaries between the tokens of documents.
#[pyclass(frozen, name = "TokenBoundaries", module = "bytemill._core")]
pub struct PyTokenBoundaries(Bits);

#[pymethods]
impl PyTokenBoundaries {
    fn n(&self) -> u64 {
        self.0.n()
    }

    fn n_shared(&self, other: &Self) -> u64 {
        self.0.n_shared(&other.0)
    }
}

#[derive(FromPyObject)]
enum Ids<'py> {
    Narrow(PyReadonlyArray1<'py, u16>),
    Wide(PyReadonlyArray1<'py, u32>),
}

#[pymethods]
impl PyTextMarks {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyBytes>, ends: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let ends = offsets(ends.as_slice()?.iter().copied())?;
        let bytes = data.as_bytes();
        let marks = py.detach(|| {
            let text = std::str::from_utf8(bytes).map_err(|_| Error::Invalid("the documents are not UTF-8".into()))?;
            Marks::new(text, &ends)
        });
        Ok(Self { data: data.clone().unbind(), marks: marks.map_err(to_python)? })
    }

    /// Numbers of places by document.
    fn numbers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let marks = &self.marks;
        let numbers = PyDict::new(py);
        for (name, values) in [
            ("n_characters", &marks.n_characters),
            ("n_words", &marks.n_words),
            ("n_short_numbers", &marks.n_short_numbers),
            ("n_long_numbers", &marks.n_long_numbers),
            ("n_indents", &marks.n_indents),
        ] {
            numbers.set_item(name, PyArray1::from_slice(py, values))?;
        }
        Ok(numbers)
    }

    /// Counts by document and boundaries, for the ids of one tokenizer; adds the uses of each id to `histogram`.
    fn count<'py>(
        &self,
        py: Python<'py>,
        ids: Ids<'py>,
        ends: PyReadonlyArray1<'py, i64>,
        tokens: &PyTokenBytes,
        mut histogram: PyReadwriteArray1<'py, i64>,
    ) -> PyResult<(Bound<'py, PyDict>, PyTokenBoundaries)> {
        let ends = offsets(ends.as_slice()?.iter().copied())?;
        let tokens = &tokens.0;
        let (text, uses, marks) = (self.data.bind(py).as_bytes(), histogram.as_slice_mut()?, &self.marks);
        let counts = match &ids {
            Ids::Narrow(ids) => {
                let ids = ids.as_slice()?;
                py.detach(|| Counts::new(marks, text, ids.iter().map(|&id| id.into()), &ends, tokens, uses))
            }
            Ids::Wide(ids) => {
                let ids = ids.as_slice()?;
                py.detach(|| Counts::new(marks, text, ids.iter().map(|&id| id as usize), &ends, tokens, uses))
            }
        };
        let (counts, boundaries) = counts.map_err(to_python)?;
        let result = PyDict::new(py);
        for (name, values) in [
            ("n_tokens", counts.n_tokens),
            ("round_trips", counts.round_trips),
            ("n_whole_words", counts.n_whole_words),
            ("n_split_characters", counts.n_split_characters),
            ("n_whole_short_numbers", counts.n_whole_short_numbers),
            ("n_grouped_numbers", counts.n_grouped_numbers),
            ("n_whole_indents", counts.n_whole_indents),
        ] {
            result.set_item(name, PyArray1::from_vec(py, values))?;
        }
        Ok((result, PyTokenBoundaries(boundaries)))
    }
}

fn offsets(ends: impl Iterator<Item = i64>) -> PyResult<Vec<usize>> {
    ends.map(|end| usize::try_from(end).map_err(|_| to_python(Error::Invalid("ends must not be negative".into()))))
        .collect()
}
