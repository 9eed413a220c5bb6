//! `StreamEncoder`, and the iterator behind `encode_iterable`.

use crate::convert::{self, with_id_type};
use crate::signals::{CancellationCheck, to_python};
use bytemill::encode::stream::{Stream, StreamAllowed};
use bytemill::encode::{Encoder, Id};
use bytemill::text::utf8::{Malformed, Utf8Stream, append};
use numpy::PyArray1;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyString};
use std::sync::Arc;

/// Encodes one document that arrives in chunks, in constant memory, to the ids of the whole.
#[pyclass(name = "StreamEncoder", module = "bytemill._core")]
pub struct PyStreamEncoder {
    stream: Stream,
    utf8: Utf8Stream,
    narrow: bool,
    #[pyo3(get)]
    n_bytes: u64,
}

impl PyStreamEncoder {
    pub fn new(
        encoder: Arc<Encoder>,
        allowed: StreamAllowed,
        malformed: Malformed,
        n_threads: usize,
        narrow: bool,
    ) -> Self {
        Self { stream: Stream::new(encoder, allowed, n_threads), utf8: Utf8Stream::new(malformed), narrow, n_bytes: 0 }
    }

    /// Encodes more text, or the rest for `None`.
    fn encode<T: Id + numpy::Element>(
        &mut self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        convert::arrays_ready(py)?;
        let mut ids: Vec<T> = Vec::new();
        let check = CancellationCheck::new(None);
        let interrupt = || check.poll(0);
        let inside_character = self.utf8.is_inside_character();
        let (stream, utf8) = (&mut self.stream, &mut self.utf8);
        let mut push = |bytes: &[u8]| {
            py.detach(|| {
                utf8.push(bytes, stream.text())?;
                stream.encode_ready(&mut ids, &interrupt)
            })
            .map_err(|error| check.raise(error))
        };
        match data {
            None => py
                .detach(|| {
                    utf8.finish(stream.text())?;
                    stream.finish(&mut ids, &interrupt)
                })
                .map_err(|error| {
                    // After an error the next document starts.
                    stream.reset();
                    check.raise(error)
                })?,
            Some(data) => {
                if let Ok(text) = data.cast::<PyString>() {
                    if inside_character {
                        return Err(PyValueError::new_err(
                            "cannot feed a str here: the bytes before it end inside a character",
                        ));
                    }
                    let text = convert::text(text)?;
                    self.n_bytes += text.len() as u64;
                    push(text.as_bytes())?;
                } else if let Ok(bytes) = data.cast::<PyBytes>() {
                    self.n_bytes += bytes.as_bytes().len() as u64;
                    push(bytes.as_bytes())?;
                } else if let Ok(buffer) = PyBuffer::<u8>::get(data) {
                    let bytes = buffer.to_vec(py)?;
                    self.n_bytes += bytes.len() as u64;
                    push(&bytes)?;
                } else {
                    return Err(PyTypeError::new_err("feed expects str or bytes"));
                }
            }
        }
        Ok(PyArray1::from_vec(py, ids).into_any().unbind())
    }
}

#[pymethods]
impl PyStreamEncoder {
    fn feed(&mut self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        with_id_type!(self.narrow, Id => self.encode::<Id>(py, Some(data)))
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        with_id_type!(self.narrow, Id => self.encode::<Id>(py, None))
    }

    #[getter]
    fn n_replaced(&self) -> u64 {
        self.utf8.n_replaced()
    }
}

/// Texts of this size are encoded without the GIL, which takes milliseconds. Shorter ones take less time than getting the GIL
/// back from a busy Python thread.
const MIN_DETACHED_BYTES: usize = 1 << 20;

/// The ids of consecutive chunks of text, one by one. They are those of the concatenated text.
#[pyclass(name = "TokenIterator", module = "bytemill._core")]
pub struct PyTokenIterator {
    stream: Stream,
    /// The source of chunks, until it is exhausted.
    chunks: Option<Py<PyIterator>>,
    /// Number of chunks read.
    n_chunks: usize,
    ids: Vec<u32>,
    /// Number of `ids` returned.
    n_returned: usize,
}

impl PyTokenIterator {
    pub fn new(encoder: Arc<Encoder>, allowed: StreamAllowed, chunks: Py<PyIterator>) -> Self {
        let ids = Vec::with_capacity(1 << 13);
        Self { stream: Stream::new(encoder, allowed, 1), chunks: Some(chunks), n_chunks: 0, ids, n_returned: 0 }
    }

    /// Reads chunks until there are ids, or none are left. An error ends the iteration, since the text after it would follow
    /// a gap.
    fn refill(&mut self, py: Python<'_>) -> PyResult<()> {
        let refilled = self.read_chunks(py);
        if refilled.is_err() {
            self.chunks = None;
            self.stream.reset();
            self.ids.clear();
        }
        refilled
    }

    fn read_chunks(&mut self, py: Python<'_>) -> PyResult<()> {
        self.ids.clear();
        self.n_returned = 0;
        while let Some(chunks) = &self.chunks {
            // If C code consumes this iterator and produces the chunks, nothing else checks.
            py.check_signals()?;
            let check = CancellationCheck::new(None);
            let interrupt = || check.poll(0);
            let next = chunks.bind(py).clone().next().transpose()?;
            if let Some(chunk) = next {
                let chunk = convert::string(chunk, self.n_chunks)?;
                self.n_chunks += 1;
                append(&convert::text(&chunk)?, self.stream.text()).map_err(to_python)?;
            } else {
                self.chunks = None;
            }
            let (stream, ids, is_last) = (&mut self.stream, &mut self.ids, self.chunks.is_none());
            let n_bytes = stream.text().len();
            let mut encode =
                || if is_last { stream.finish(ids, &interrupt) } else { stream.encode_ready(ids, &interrupt) };
            let done = if n_bytes < MIN_DETACHED_BYTES { encode() } else { py.detach(encode) };
            done.map_err(|error| check.raise(error))?;
            if !self.ids.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PyTokenIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<u32>> {
        if self.n_returned == self.ids.len() {
            self.refill(py)?;
        }
        let next = self.ids.get(self.n_returned).copied();
        self.n_returned += usize::from(next.is_some());
        Ok(next)
    }
}
