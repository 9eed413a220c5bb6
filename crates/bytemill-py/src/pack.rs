//! `DocumentEncoder`.

use crate::convert::{self, with_id_type};
use crate::encoder::PyEncoder;
use crate::signals::{CancellationCheck, to_python};
use bytemill::batch::pack::{Assembly, Batch, Carry, DocumentEncoder, Frame, OpenDocument, Side, Split};
use bytemill::encode::Id;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::ops::Range;
use std::sync::Arc;

/// The state of an unfinished document: text, bytes before it, side, ids held back, last id.
type CarryTuple = (String, usize, Option<usize>, Vec<u32>, Option<u32>);

/// A side: chunks of ids, ends of documents, bytes of text by batch, number of documents without ids.
type SideTuple = (Vec<Py<PyAny>>, Py<PyArray1<u64>>, Vec<u64>, u64);

/// The text of a batch.
pub enum Data<'py> {
    /// A range of an immutable object.
    Bytes(Bound<'py, PyBytes>, Range<usize>),
    Copy(Vec<u8>),
}

impl<'py> Data<'py> {
    pub fn new(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone(), 0..bytes.as_bytes().len()));
        }
        let Ok(buffer) = PyBuffer::<u8>::get(data) else {
            return Err(PyTypeError::new_err("a batch of documents must be bytes or a memoryview"));
        };
        // Other objects may change while they are encoded without the GIL.
        if data.is_instance_of::<PyMemoryView>()
            && buffer.is_c_contiguous()
            && let Ok(bytes) = data.getattr("obj")?.cast_into_exact::<PyBytes>()
        {
            let start = (buffer.buf_ptr() as usize).wrapping_sub(bytes.as_bytes().as_ptr() as usize);
            let range = start..start.wrapping_add(buffer.len_bytes());
            if bytes.as_bytes().get(range.clone()).is_some() {
                return Ok(Self::Bytes(bytes, range));
            }
        }
        Ok(Self::Copy(buffer.to_vec(data.py())?))
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes, range) => &bytes.as_bytes()[range.clone()],
            Self::Copy(bytes) => bytes,
        }
    }
}

/// The side on which a document is split: 1 if its hash is below a number, else 0.
#[pyfunction]
pub fn document_side(text: &str, seed: u64, below: u64) -> usize {
    Split { seed, below }.side(text)
}

/// Encodes packed documents, batch after batch.
#[pyclass(name = "DocumentEncoder", module = "bytemill._core")]
pub struct PyDocumentEncoder {
    documents: DocumentEncoder,
    narrow: bool,
}

impl PyDocumentEncoder {
    fn encode_batches<T>(
        &mut self,
        py: Python<'_>,
        batches: &[(Data<'_>, Vec<usize>, bool)],
    ) -> PyResult<Vec<SideTuple>>
    where
        T: Id + Into<u32> + numpy::Element,
    {
        let batches: Vec<_> =
            batches.iter().map(|(data, ends, is_open)| (data.as_bytes(), ends.clone(), *is_open)).collect();
        let check = CancellationCheck::new(None);
        let documents = &mut self.documents;
        let encoded = py.detach(|| {
            let batches = batches.into_iter().map(|(data, ends, is_open)| Batch::from_utf8(data, ends, is_open));
            let batches = batches.collect::<bytemill::Result<Vec<_>>>()?;
            documents.encode::<T>(&batches, &|| check.poll(0))
        });
        let sides = encoded.map_err(|error| check.raise(error))?;
        sides.into_iter().map(|side| side_to_python(py, side)).collect()
    }
}

fn side_to_python<T>(py: Python<'_>, side: Side<T>) -> PyResult<SideTuple>
where
    T: numpy::Element,
{
    let chunks = side.ids.into_iter().map(|ids| PyArray1::from_vec(py, ids).into_any().unbind()).collect();
    Ok((chunks, PyArray1::from_vec(py, side.ends).unbind(), side.n_bytes, side.n_empty))
}

#[pymethods]
impl PyDocumentEncoder {
    #[new]
    #[pyo3(signature = (encoder, allowed_special, num_threads, prefix, suffix=None, stripped=None, split=None))]
    #[expect(clippy::too_many_arguments, reason = "all options that influence the ids")]
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
    ) -> PyResult<Vec<SideTuple>> {
        let mut checked = Vec::with_capacity(batches.len());
        for (data, ends, is_open) in batches {
            let ends: Result<Vec<usize>, _> = ends.as_array().iter().map(|&end| usize::try_from(end)).collect();
            let ends = ends.map_err(|_| PyValueError::new_err("a document ends at a negative offset"))?;
            checked.push((Data::new(&data)?, ends, is_open));
        }
        with_id_type!(self.narrow, Id => self.encode_batches::<Id>(py, &checked))
    }

    fn carry(&self) -> Option<CarryTuple> {
        let Carry { document, assembly } = self.documents.carry()?;
        Some((document.text, document.n_done, document.side, assembly.held, assembly.last))
    }

    fn resume(&mut self, carry: Option<CarryTuple>) -> PyResult<()> {
        if carry.as_ref().is_some_and(|(_, _, side, _, _)| side.is_some_and(|side| side > 1)) {
            return Err(to_python(bytemill::Error::Invalid("a side must be 0 or 1".to_owned())));
        }
        self.documents.resume(carry.map(|(text, n_done, side, held, last)| Carry {
            document: OpenDocument::new(text, n_done, side),
            assembly: Assembly { held, last },
        }));
        Ok(())
    }
}
