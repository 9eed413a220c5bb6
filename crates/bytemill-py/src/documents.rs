//! Documents out of blocks of bytes.

use crate::buffers::copied_bytes;
use crate::signals::to_python;
use bytemill::documents::{Documents, Ends, JsonLines, Malformed, Reason, Splitter, check_packed, clean_block, select};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Mutex;

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

/// A buffer for the text of a block, reused for the next one: fresh pages take as long as the parsing that fills them.
/// Buffers of huge documents are not kept.
#[derive(Default)]
struct Buffer(Mutex<Vec<u8>>);

impl Buffer {
    const KEPT_BYTES: usize = 16 << 20;

    fn take(&self) -> Vec<u8> {
        self.0.lock().map(|mut buffer| std::mem::take(&mut *buffer)).unwrap_or_default()
    }

    /// Convert the documents to Python and take their text back as the buffer.
    fn converted(
        &self,
        py: Python<'_>,
        block: &Bound<'_, PyBytes>,
        documents: bytemill::Result<Documents>,
    ) -> PyResult<PyBlockDocuments> {
        let mut documents = documents.map_err(to_python)?;
        let converted = PyBlockDocuments::new(py, block, &mut documents);
        if let (Some(text), Ok(mut buffer)) = (documents.text, self.0.lock())
            && text.capacity() <= Self::KEPT_BYTES
        {
            *buffer = text;
        }
        converted
    }
}

impl PyBlockDocuments {
    fn new(py: Python<'_>, block: &Bound<'_, PyBytes>, documents: &mut Documents) -> PyResult<Self> {
        let text = match &documents.text {
            Some(text) => copied_bytes(py, text)?,
            None if documents.consumed == block.as_bytes().len() => block.clone(),
            None => copied_bytes(py, &block.as_bytes()[..documents.consumed])?,
        };
        let broken = documents.broken.take().map(|broken| match broken.reason {
            Reason::NotUtf8(offset) => (broken.line, Some(offset), String::new()),
            Reason::Other(message) => (broken.line, None, message),
        });
        Ok(Self {
            text: text.unbind(),
            ends: PyArray1::from_vec(py, std::mem::take(&mut documents.ends)).unbind(),
            is_open: documents.is_open,
            consumed: documents.consumed,
            n_lines: documents.n_lines,
            n_replaced: documents.n_replaced,
            n_skipped_bytes: documents.n_skipped_bytes,
            n_broken: documents.n_broken,
            broken,
        })
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

/// Clean a block of one long document.
#[pyfunction]
pub fn clean_text(
    py: Python<'_>,
    block: &Bound<'_, PyBytes>,
    is_last: bool,
    errors: &str,
) -> PyResult<PyBlockDocuments> {
    let (bytes, malformed) = (block.as_bytes(), malformed(errors)?);
    let mut documents = py.detach(|| clean_block(bytes, is_last, malformed)).map_err(to_python)?;
    PyBlockDocuments::new(py, block, &mut documents)
}

/// Splits plain text into documents.
#[pyclass(frozen, name = "TextSplitter", module = "bytemill._core")]
pub struct PyTextSplitter(Splitter, Buffer);

#[pymethods]
impl PyTextSplitter {
    #[new]
    fn new(separator: Option<&str>, errors: &str, leaves_out: bool) -> PyResult<Self> {
        let ends = match separator {
            None => Ends::Line,
            Some("") => return Err(PyValueError::new_err("the separator is empty")),
            Some(separator) => Ends::separator(separator),
        };
        Ok(Self(Splitter { ends, malformed: malformed(errors)?, skip_broken: leaves_out }, Buffer::default()))
    }

    fn split(
        &self,
        py: Python<'_>,
        block: &Bound<'_, PyBytes>,
        is_inside: bool,
        is_last: bool,
    ) -> PyResult<PyBlockDocuments> {
        let bytes = block.as_bytes();
        let split = py.detach(|| self.0.split(bytes, is_inside, is_last, self.1.take()));
        self.1.converted(py, block, split)
    }
}

/// Extracts the text from JSON lines.
#[pyclass(frozen, name = "JsonLines", module = "bytemill._core")]
pub struct PyJsonLines(JsonLines, Buffer);

#[pymethods]
impl PyJsonLines {
    #[new]
    fn new(path: Vec<String>, errors: &str, leaves_out: bool) -> PyResult<Self> {
        if path.is_empty() {
            return Err(PyValueError::new_err("the path is empty"));
        }
        Ok(Self(JsonLines { path, malformed: malformed(errors)?, skip_broken: leaves_out }, Buffer::default()))
    }

    fn parse(&self, py: Python<'_>, block: &Bound<'_, PyBytes>, end: usize) -> PyResult<PyBlockDocuments> {
        let bytes = block.as_bytes();
        let bytes = bytes.get(..end).ok_or_else(|| PyValueError::new_err("the end is beyond the block"))?;
        let parsed = py.detach(|| self.0.parse(bytes, self.1.take()));
        self.1.converted(py, block, parsed)
    }
}

/// Check documents with known ends: each must be UTF-8 and not missing.
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
    let mut documents = py.detach(|| check_packed(bytes, &ends, &missing, malformed, leaves_out)).map_err(to_python)?;
    PyBlockDocuments::new(py, data, &mut documents)
}

/// Select the documents flagged in `keep`: their text, and their ends in it.
#[pyfunction]
pub fn select_documents<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    ends: PyReadonlyArray1<'py, i64>,
    keep: PyReadonlyArray1<'py, bool>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyArray1<i64>>)> {
    let (bytes, ends, keep) = (data.as_bytes(), ends.as_slice()?.to_vec(), keep.as_slice()?.to_vec());
    let (text, ends) = py.detach(|| select(bytes, &ends, &keep)).map_err(to_python)?;
    Ok((copied_bytes(py, &text)?, PyArray1::from_vec(py, ends)))
}
