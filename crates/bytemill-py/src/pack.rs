//! `DocumentEncoder`.

use crate::convert;
use crate::encoder::PyEncoder;
use crate::signals::{Pulse, to_python};
use bytemill::encode::Id;
use bytemill::pack::{Batch, Carry, DocumentEncoder, Frame, Side, Split};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::sync::Arc;

/// What is left of a document that goes on: text, bytes before it, side, ids that are held, last id.
type CarryOfPython = (String, usize, Option<usize>, Vec<u32>, Option<u32>);

/// A side: pieces of ids, ends of documents, bytes of text by batches, documents without ids.
type SideOfPython = (Vec<Py<PyAny>>, Py<PyArray1<u64>>, Vec<u64>, u64);

/// The text of a batch.
enum Data<'py> {
    Bytes(Bound<'py, PyBytes>),
    /// A view of immutable bytes.
    View(PyBuffer<u8>),
    Copy(Vec<u8>),
}

impl<'py> Data<'py> {
    fn new(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        let Ok(buffer) = PyBuffer::<u8>::get(data) else {
            return Err(PyTypeError::new_err("a batch of documents is bytes or a memoryview"));
        };
        let is_immutable =
            data.is_instance_of::<PyMemoryView>() && data.getattr("obj")?.is_exact_instance_of::<PyBytes>();
        if is_immutable && buffer.is_c_contiguous() {
            Ok(Self::View(buffer))
        } else {
            Ok(Self::Copy(buffer.to_vec(data.py())?))
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            // SAFETY: the buffer is contiguous, holds `item_count` bytes at `buf_ptr`, and is kept as long as `self`. Its
            // bytes are those of a `bytes` object, which never change.
            Self::View(buffer) if buffer.item_count() > 0 => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.item_count())
            },
            Self::View(_) => &[],
            Self::Copy(bytes) => bytes,
        }
    }
}

/// Encodes packed documents, batch after batch.
#[pyclass(name = "DocumentEncoder", module = "bytemill._core")]
pub struct PyDocumentEncoder {
    documents: DocumentEncoder,
    narrow: bool,
}

impl PyDocumentEncoder {
    fn take<T>(&mut self, py: Python<'_>, batches: &[(Data<'_>, Vec<usize>, bool)]) -> PyResult<Vec<SideOfPython>>
    where
        T: Id + Into<u32> + numpy::Element,
    {
        let mut packed = Vec::with_capacity(batches.len());
        for (data, ends, is_open) in batches {
            packed.push((data.as_bytes(), ends.clone(), *is_open));
        }
        let pulse = Pulse::new(None);
        let documents = &mut self.documents;
        let encoded = py.detach(|| {
            let batches = packed.into_iter().map(|(data, ends, is_open)| Batch::from_utf8(data, ends, is_open));
            let batches = batches.collect::<bytemill::Result<Vec<_>>>()?;
            documents.encode::<T>(&batches, &|| pulse.beat(0))
        });
        let sides = encoded.map_err(|error| pulse.raise(error))?;
        sides.into_iter().map(|side| side_to_python(py, side)).collect()
    }
}

fn side_to_python<T>(py: Python<'_>, side: Side<T>) -> PyResult<SideOfPython>
where
    T: numpy::Element,
{
    let pieces = side.ids.into_iter().map(|ids| PyArray1::from_vec(py, ids).into_any().unbind()).collect();
    Ok((pieces, PyArray1::from_vec(py, side.ends).unbind(), side.n_bytes, side.n_empty))
}

#[pymethods]
impl PyDocumentEncoder {
    #[new]
    #[pyo3(signature = (encoder, allowed_special, num_threads, prefix, suffix=None, stripped=None, split=None))]
    #[expect(clippy::too_many_arguments, reason = "what decides the ids of a document")]
    fn new(
        py: Python<'_>,
        encoder: &Bound<'_, PyEncoder>,
        allowed_special: &Bound<'_, PyAny>,
        num_threads: Option<i64>,
        prefix: Vec<u32>,
        suffix: Option<u32>,
        stripped: Option<u32>,
        split: Option<(u64, u64)>,
    ) -> PyResult<Self> {
        convert::arrays_ready(py)?;
        let encoder = encoder.get();
        let allowed = convert::allowed(encoder.core(), allowed_special)?;
        let n_ids = encoder.core().vocab().n_ids();
        if let Some(id) = prefix.iter().chain(&suffix).find(|&&id| id as usize >= n_ids) {
            return Err(PyValueError::new_err(format!("no token has the id {id}")));
        }
        let split = split.map(|(seed, below)| Split { seed, below });
        let documents = DocumentEncoder::new(
            Arc::clone(encoder.core()),
            allowed,
            convert::threads(num_threads)?,
            Frame { prefix, suffix, stripped },
            split,
        );
        Ok(Self { documents, narrow: encoder.narrow() })
    }

    fn encode(
        &mut self,
        py: Python<'_>,
        batches: Vec<(Bound<'_, PyAny>, PyReadonlyArray1<'_, i64>, bool)>,
    ) -> PyResult<Vec<SideOfPython>> {
        let mut checked = Vec::with_capacity(batches.len());
        for (data, ends, is_open) in batches {
            let ends: Result<Vec<usize>, _> = ends.as_array().iter().map(|&end| usize::try_from(end)).collect();
            let ends = ends.map_err(|_| PyValueError::new_err("a document ends before the beginning"))?;
            checked.push((Data::new(&data)?, ends, is_open));
        }
        if self.narrow { self.take::<u16>(py, &checked) } else { self.take::<u32>(py, &checked) }
    }

    fn carry(&self) -> Option<CarryOfPython> {
        let carry = self.documents.carry()?;
        Some((carry.text, carry.n_done, carry.side, carry.held, carry.last))
    }

    fn go_on(&mut self, carry: Option<CarryOfPython>) -> PyResult<()> {
        if carry.as_ref().is_some_and(|(_, _, side, _, _)| side.is_some_and(|side| side > 1)) {
            return Err(to_python(bytemill::Error::Invalid("there are two sides, 0 and 1".to_owned())));
        }
        self.documents.go_on(carry.map(|(text, n_done, side, held, last)| Carry { text, n_done, side, held, last }));
        Ok(())
    }
}
