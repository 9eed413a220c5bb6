//! `StreamEncoder`, and the iterator behind `encode_iterable`.

use crate::convert;
use crate::signals::Pulse;
use bytemill::encode::{Encoder, Id};
use bytemill::stream::{Stream, StreamAllowed};
use bytemill::utf8::{Malformed, Utf8Stream};
use numpy::PyArray1;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyString};
use std::sync::Arc;

/// Encodes one document that arrives in pieces, in constant memory, to what `encode` gives for the whole.
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

    fn take<T: Id + numpy::Element>(&mut self, py: Python<'_>, data: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        convert::arrays_ready(py)?;
        let mut ids: Vec<T> = Vec::new();
        let pulse = Pulse::new(None);
        let beat = || pulse.beat(0);
        let inside_character = self.utf8.is_inside_character();
        let (stream, utf8) = (&mut self.stream, &mut self.utf8);
        let mut push = |bytes: &[u8]| {
            py.detach(|| {
                utf8.push(bytes, stream.text())?;
                stream.encode_ready(&mut ids, &beat)
            })
            .map_err(|error| pulse.raise(error))
        };
        match data {
            None => py
                .detach(|| {
                    utf8.finish(stream.text())?;
                    stream.finish(&mut ids, &beat)
                })
                .map_err(|error| {
                    // Half a document is none: the next one starts afresh.
                    stream.reset();
                    pulse.raise(error)
                })?,
            Some(data) => {
                if let Ok(text) = data.cast::<PyString>() {
                    if inside_character {
                        return Err(PyValueError::new_err("the bytes before this str end inside a character"));
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
                    return Err(PyTypeError::new_err("feed takes str or bytes"));
                }
            }
        }
        Ok(PyArray1::from_vec(py, ids).into_any().unbind())
    }
}

#[pymethods]
impl PyStreamEncoder {
    fn feed(&mut self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if self.narrow { self.take::<u16>(py, Some(data)) } else { self.take::<u32>(py, Some(data)) }
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.narrow { self.take::<u16>(py, None) } else { self.take::<u32>(py, None) }
    }

    #[getter]
    fn n_replaced(&self) -> u64 {
        self.utf8.n_replaced()
    }
}

/// From this many bytes on pieces are encoded without the GIL, which takes milliseconds. Below, it takes less time than a
/// busy thread of Python may keep the GIL before it hands it back, so others would not gain what this one would lose.
const LONG_PIECE: usize = 1 << 20;

/// The ids of pieces of text, one by one, as `encode` gives them for the pieces joined.
#[pyclass(name = "TokenIterator", module = "bytemill._core")]
pub struct PyTokenIterator {
    stream: Stream,
    /// The source of pieces, until it is exhausted.
    pieces: Option<Py<PyIterator>>,
    /// How many pieces have been taken.
    n_pieces: usize,
    ids: Vec<u32>,
    /// How many of `ids` have been given.
    n_given: usize,
}

impl PyTokenIterator {
    pub fn new(encoder: Arc<Encoder>, allowed: StreamAllowed, pieces: Py<PyIterator>) -> Self {
        let ids = Vec::with_capacity(1 << 13);
        Self { stream: Stream::new(encoder, allowed, 1), pieces: Some(pieces), n_pieces: 0, ids, n_given: 0 }
    }

    /// Takes pieces until there are ids; none are left where it ends without. After an error nothing more comes: what
    /// follows a gap is not the text.
    fn refill(&mut self, py: Python<'_>) -> PyResult<()> {
        let refilled = self.take_pieces(py);
        if refilled.is_err() {
            self.pieces = None;
            self.stream.reset();
            self.ids.clear();
        }
        refilled
    }

    fn take_pieces(&mut self, py: Python<'_>) -> PyResult<()> {
        self.ids.clear();
        self.n_given = 0;
        while let Some(pieces) = &self.pieces {
            // Where C code iterates over an iterator in C, nobody else looks.
            py.check_signals()?;
            let pulse = Pulse::new(None);
            let beat = || pulse.beat(0);
            let next = pieces.bind(py).clone().next().transpose()?;
            if let Some(piece) = next {
                let piece = convert::string(piece, self.n_pieces)?;
                self.n_pieces += 1;
                self.stream.text().push_str(&convert::text(&piece)?);
            } else {
                self.pieces = None;
            }
            let (stream, ids, is_last) = (&mut self.stream, &mut self.ids, self.pieces.is_none());
            let n_bytes = stream.text().len();
            let mut encode = || if is_last { stream.finish(ids, &beat) } else { stream.encode_ready(ids, &beat) };
            let done = if n_bytes < LONG_PIECE { encode() } else { py.detach(encode) };
            done.map_err(|error| pulse.raise(error))?;
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
        if self.n_given == self.ids.len() {
            self.refill(py)?;
        }
        let next = self.ids.get(self.n_given).copied();
        self.n_given += usize::from(next.is_some());
        Ok(next)
    }
}
