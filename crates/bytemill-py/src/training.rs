//! `PretokenCounter` and `PretokenCounts`.

use crate::convert;
use crate::signals::{Pulse, to_python};
use bytemill::count::{CHUNK_BYTES, Counter, Counts};
use bytemill::merges::{Ties, learn};
use bytemill::pretokenize::Pattern;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Counts the pre-tokens of a corpus in parallel.
#[pyclass(name = "PretokenCounter", module = "bytemill._core")]
pub struct PyPretokenCounter {
    counter: Option<Counter>,
}

impl PyPretokenCounter {
    fn counter(&mut self) -> PyResult<&mut Counter> {
        self.counter.as_mut().ok_or_else(|| PyValueError::new_err("this counter is finished, or failed earlier"))
    }

    /// After an error a part of the text is counted, so nothing more must be.
    fn give_up<R>(&mut self, result: PyResult<R>) -> PyResult<R> {
        if result.is_err() {
            self.counter = None;
        }
        result
    }
}

#[pymethods]
impl PyPretokenCounter {
    #[new]
    fn new(
        pattern: Option<&str>,
        special_tokens: Vec<String>,
        num_threads: Option<i64>,
        chunk_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let pattern = Pattern::new(pattern).map_err(to_python)?;
        let n_threads = convert::threads(num_threads)?;
        let counter = Counter::new(pattern, &special_tokens, n_threads, chunk_bytes.unwrap_or(CHUNK_BYTES));
        Ok(Self { counter: Some(counter.map_err(to_python)?) })
    }

    fn add_file(&mut self, py: Python<'_>, path: PathBuf, errors: &str, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let malformed = convert::malformed(errors)?;
        let counter = self.counter()?;
        let pulse = Pulse::new(progress.as_ref());
        let n_read = std::sync::atomic::AtomicU64::new(0);
        let order = std::sync::atomic::Ordering::Relaxed;
        let counted = py.detach(|| {
            let file = File::open(&path)?;
            counter.add_reader(file, malformed, |n| n_read.store(n, order), &|| pulse.beat(n_read.load(order)))
        });
        let counted = counted.map(drop).map_err(|error| pulse.raise(error));
        self.give_up(counted)
    }

    fn add_stream(
        &mut self,
        py: Python<'_>,
        stream: Py<PyAny>,
        errors: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let malformed = convert::malformed(errors)?;
        let counter = self.counter()?;
        let pulse = Pulse::new(progress.as_ref());
        let n_read = std::sync::atomic::AtomicU64::new(0);
        let order = std::sync::atomic::Ordering::Relaxed;
        let stream = PyStream(stream);
        let counted = py.detach(|| {
            counter.add_reader(stream, malformed, |n| n_read.store(n, order), &|| pulse.beat(n_read.load(order)))
        });
        let counted = counted.map(drop).map_err(|error| pulse.raise(error));
        self.give_up(counted)
    }

    fn add_texts(&mut self, py: Python<'_>, texts: Vec<Bound<'_, PyString>>) -> PyResult<()> {
        let texts = texts.iter().map(convert::text).collect::<PyResult<Vec<_>>>()?;
        let counter = self.counter()?;
        let pulse = Pulse::new(None);
        let counted = py.detach(|| texts.iter().try_for_each(|text| counter.add_text(text, &|| pulse.beat(0))));
        let counted = counted.map_err(|error| pulse.raise(error));
        self.give_up(counted)
    }

    fn finish(&mut self, py: Python<'_>) -> PyResult<PyPretokenCounts> {
        self.counter()?;
        let pulse = Pulse::new(None);
        match self.counter.take() {
            Some(counter) => {
                let counts = py.detach(|| counter.finish(&|| pulse.beat(0))).map_err(|error| pulse.raise(error))?;
                Ok(PyPretokenCounts { counts })
            }
            None => Err(PyValueError::new_err("this counter is finished")),
        }
    }
}

/// A binary stream of Python's.
struct PyStream(Py<PyAny>);

impl Read for PyStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Python::attach(|py| {
            let block = self.0.bind(py).call_method1("read", (buffer.len(),))?;
            let block = block.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
            let Some(room) = buffer.get_mut(..block.len()) else {
                return Err(std::io::Error::other("read(n) gave more than n bytes"));
            };
            room.copy_from_slice(block);
            Ok(block.len())
        })
    }
}

/// Unique pre-tokens with their counts.
#[pyclass(frozen, name = "PretokenCounts", module = "bytemill._core")]
pub struct PyPretokenCounts {
    counts: Counts,
}

type PyMerge<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl PyPretokenCounts {
    #[staticmethod]
    fn from_items(items: &Bound<'_, PyAny>) -> PyResult<Self> {
        let items = items
            .try_iter()?
            .map(|item| {
                let (pretoken, count): (Bound<'_, PyBytes>, u64) = item?.extract()?;
                Ok((pretoken.as_bytes().to_vec(), count))
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self { counts: Counts::from_items(items.into_iter()).map_err(to_python)? })
    }

    #[getter]
    fn n_bytes(&self) -> u64 {
        self.counts.n_bytes
    }

    #[getter]
    fn n_pretokens(&self) -> u64 {
        self.counts.n_pretokens
    }

    #[getter]
    fn n_unique(&self) -> usize {
        self.counts.n_unique()
    }

    #[getter]
    fn n_special(&self) -> u64 {
        self.counts.n_special
    }

    #[getter]
    fn n_replaced(&self) -> u64 {
        self.counts.n_replaced
    }

    #[getter]
    fn read_seconds(&self) -> f64 {
        self.counts.reading.as_secs_f64()
    }

    fn items<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, u64)> {
        let mut all: Vec<(&[u8], u64)> = self.counts.iter().collect();
        all.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        all.into_iter().map(|(pretoken, count)| (PyBytes::new(py, pretoken), count)).collect()
    }

    fn learn_merges<'py>(
        &self,
        py: Python<'py>,
        n_merges: usize,
        ties: &str,
        min_frequency: u64,
        num_threads: Option<i64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<PyMerge<'py>>, Vec<u64>)> {
        let n_threads = convert::threads(num_threads)?;
        let ties = match ties {
            "bytes" => Ties::Bytes,
            "huggingface" => Ties::HuggingFace,
            _ => return Err(PyValueError::new_err(format!("ties must be 'bytes' or 'huggingface', not {ties:?}"))),
        };
        let pulse = Pulse::new(progress.as_ref());
        let learnt = py
            .detach(|| learn(&self.counts, n_merges, ties, min_frequency, n_threads, |n| pulse.beat(n as u64)))
            .map_err(|error| pulse.raise(error))?;
        let mut symbols: Vec<Bound<'py, PyBytes>> = (0..=255).map(|byte| PyBytes::new(py, &[byte])).collect();
        let mut merges = Vec::with_capacity(learnt.len());
        for merge in &learnt {
            let (left, right) = (symbols[merge.left as usize].clone(), symbols[merge.right as usize].clone());
            let joined = [left.as_bytes(), right.as_bytes()].concat();
            symbols.push(PyBytes::new(py, &joined));
            merges.push((left, right));
        }
        Ok((merges, learnt.iter().map(|merge| merge.count).collect()))
    }
}
