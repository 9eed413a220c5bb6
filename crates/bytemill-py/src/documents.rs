//! Documents out of blocks of bytes.

use crate::signals::to_python;
use bytemill::documents::clean::clean_block;
use bytemill::documents::jsonl::JsonLines;
use bytemill::documents::packed::{check_packed, select};
use bytemill::documents::split::{Ends, Splitter};
use bytemill::documents::{Documents, Malformed, Reason};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn malformed(errors: &str) -> PyResult<Malformed> {
    match errors {
        "strict" => Ok(Malformed::Refuse),
        "replace" => Ok(Malformed::Replace),
        "skip" => Ok(Malformed::Skip),
        _ => Err(PyValueError::new_err(format!("errors must be 'strict', 'replace' or 'skip', not {errors:?}"))),
    }
}

/// The documents of a block.
#[pyclass(frozen, name = "BlockDocuments", module = "bytemill._core")]
pub struct PyBlockDocuments {
    text: Py<PyBytes>,
    ends: Py<PyArray1<i64>>,
    #[pyo3(get)]
    is_open: bool,
    #[pyo3(get)]
    consumed: usize,
    #[pyo3(get)]
    n_lines: u64,
    #[pyo3(get)]
    n_replaced: u64,
    #[pyo3(get)]
    n_skipped_bytes: u64,
    #[pyo3(get)]
    n_broken: u64,
    #[pyo3(get)]
    broken: Option<(u64, Option<usize>, String)>,
}

impl PyBlockDocuments {
    fn new(py: Python<'_>, block: &Bound<'_, PyBytes>, documents: Documents) -> Self {
        let text = match documents.text {
            Some(text) => PyBytes::new(py, &text).unbind(),
            None if documents.consumed == block.as_bytes().len() => block.clone().unbind(),
            None => PyBytes::new(py, &block.as_bytes()[..documents.consumed]).unbind(),
        };
        let broken = documents.broken.map(|broken| match broken.reason {
            Reason::NotUtf8(offset) => (broken.line, Some(offset), String::new()),
            Reason::Other(message) => (broken.line, None, message),
        });
        Self {
            text,
            ends: PyArray1::from_vec(py, documents.ends).unbind(),
            is_open: documents.is_open,
            consumed: documents.consumed,
            n_lines: documents.n_lines,
            n_replaced: documents.n_replaced,
            n_skipped_bytes: documents.n_skipped_bytes,
            n_broken: documents.n_broken,
            broken,
        }
    }
}

#[pymethods]
impl PyBlockDocuments {
    #[getter]
    fn text(&self, py: Python<'_>) -> Py<PyBytes> {
        self.text.clone_ref(py)
    }

    #[getter]
    fn ends(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        self.ends.clone_ref(py)
    }
}

/// A block of one long document.
#[pyfunction]
pub fn clean_text(
    py: Python<'_>,
    block: &Bound<'_, PyBytes>,
    is_last: bool,
    errors: &str,
) -> PyResult<PyBlockDocuments> {
    let (bytes, malformed) = (block.as_bytes(), malformed(errors)?);
    let documents = py.detach(|| clean_block(bytes, is_last, malformed));
    Ok(PyBlockDocuments::new(py, block, documents))
}

/// Cuts plain text into documents.
#[pyclass(frozen, name = "TextSplitter", module = "bytemill._core")]
pub struct PyTextSplitter(Splitter);

#[pymethods]
impl PyTextSplitter {
    #[new]
    fn new(separator: Option<&str>, errors: &str, leaves_out: bool) -> PyResult<Self> {
        let ends = match separator {
            None => Ends::Line,
            Some("") => return Err(PyValueError::new_err("the separator is empty")),
            Some(separator) => Ends::separator(separator),
        };
        Ok(Self(Splitter { ends, malformed: malformed(errors)?, leaves_out }))
    }

    fn split(
        &self,
        py: Python<'_>,
        block: &Bound<'_, PyBytes>,
        is_inside: bool,
        is_last: bool,
    ) -> PyResult<PyBlockDocuments> {
        let bytes = block.as_bytes();
        let documents = py.detach(|| self.0.split(bytes, is_inside, is_last));
        Ok(PyBlockDocuments::new(py, block, documents))
    }
}

/// Takes the text out of JSON lines.
#[pyclass(frozen, name = "JsonLines", module = "bytemill._core")]
pub struct PyJsonLines(JsonLines);

#[pymethods]
impl PyJsonLines {
    #[new]
    fn new(path: Vec<String>, errors: &str, leaves_out: bool) -> PyResult<Self> {
        if path.is_empty() {
            return Err(PyValueError::new_err("the path is empty"));
        }
        Ok(Self(JsonLines { path, malformed: malformed(errors)?, leaves_out }))
    }

    fn parse(&self, py: Python<'_>, block: &Bound<'_, PyBytes>, end: usize) -> PyResult<PyBlockDocuments> {
        let bytes = block.as_bytes();
        let bytes = bytes.get(..end).ok_or_else(|| PyValueError::new_err("the end lies behind the block"))?;
        let documents = py.detach(|| self.0.parse(bytes));
        Ok(PyBlockDocuments::new(py, block, documents))
    }
}

/// Documents whose ends are known, each checked to be UTF-8 and not missing.
#[pyfunction]
pub fn check_documents(
    py: Python<'_>,
    data: &Bound<'_, PyBytes>,
    ends: PyReadonlyArray1<'_, i64>,
    missing: Option<PyReadonlyArray1<'_, bool>>,
    errors: &str,
    leaves_out: bool,
) -> PyResult<PyBlockDocuments> {
    let (bytes, ends, malformed) = (data.as_bytes(), ends.as_slice()?.to_vec(), malformed(errors)?);
    let missing = missing.map(|missing| missing.as_slice().map(<[bool]>::to_vec)).transpose()?.unwrap_or_default();
    let documents = py.detach(|| check_packed(bytes, &ends, &missing, malformed, leaves_out)).map_err(to_python)?;
    Ok(PyBlockDocuments::new(py, data, documents))
}

/// The documents that are to be kept: their text, and where they end in it.
#[pyfunction]
pub fn select_documents<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    ends: PyReadonlyArray1<'py, i64>,
    keep: PyReadonlyArray1<'py, bool>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyArray1<i64>>)> {
    let (bytes, ends, keep) = (data.as_bytes(), ends.as_slice()?.to_vec(), keep.as_slice()?.to_vec());
    let (text, ends) = py.detach(|| select(bytes, &ends, &keep)).map_err(to_python)?;
    Ok((PyBytes::new(py, &text), PyArray1::from_vec(py, ends)))
}
