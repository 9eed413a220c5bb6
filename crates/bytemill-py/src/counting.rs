//! `PretokenCounter`: [`Counter`] for Python. What it returns, `PretokenCounts`, is in `training`, since merges are learned from it.

use crate::convert;
use crate::encoder::PyEncoder;
use crate::signals::{CancellationCheck, to_python};
use crate::training::PyPretokenCounts;
use bytemill::Error;
use bytemill::encode::cutter::Cutter;
use bytemill::pretokenize::Pattern;
use bytemill::special::SpecialTokens;
use bytemill::train::count::{CHUNK_BYTES, Counter, Scale, Stay, random_seed, visit_file, visit_range};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Counts the pre-tokens of a corpus in parallel.
#[pyclass(name = "PretokenCounter", module = "bytemill._core")]
pub struct PyPretokenCounter {
    counter: Option<Counter>,
}

impl PyPretokenCounter {
    fn counter(&mut self) -> PyResult<&mut Counter> {
        self.counter.as_mut().ok_or_else(|| PyValueError::new_err("this counter is finished, or failed earlier"))
    }

    /// Drops the counter after an error, because part of the text may have been counted.
    fn drop_if_failed<R>(&mut self, result: PyResult<R>) -> PyResult<R> {
        if result.is_err() {
            self.counter = None;
        }
        result
    }

    /// Runs `work` without the GIL.
    fn with_counter<R: Send>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut Counter, &CancellationCheck<'_>) -> bytemill::Result<R> + Send,
    ) -> PyResult<R> {
        let counter = self.counter()?;
        let check = CancellationCheck::new(None);
        let result = py.detach(|| work(counter, &check)).map_err(|error| check.raise(error));
        self.drop_if_failed(result)
    }
}

#[pymethods]
impl PyPretokenCounter {
    #[new]
    #[pyo3(signature = (pattern, special_tokens, num_threads, chunk_bytes, table_bytes = None, seed = None))]
    fn new(
        pattern: Option<&str>,
        special_tokens: Vec<String>,
        num_threads: Option<i64>,
        chunk_bytes: Option<usize>,
        table_bytes: Option<usize>,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let pattern = Pattern::new(pattern).map_err(to_python)?;
        let n_threads = convert::threads(num_threads)?;
        let chunk_bytes = chunk_bytes.unwrap_or(CHUNK_BYTES);
        let table_bytes = table_bytes.unwrap_or(usize::MAX);
        let counter = match seed {
            None => Counter::with_table_limit(pattern, &special_tokens, n_threads, chunk_bytes, table_bytes),
            Some(seed) => Counter::with_seed(pattern, &special_tokens, n_threads, chunk_bytes, table_bytes, seed),
        };
        Ok(Self { counter: Some(counter.map_err(to_python)?) })
    }

    /// A counter of the pre-tokens that an encoder merges: with its pattern, special tokens, their rules and its normalizer.
    #[staticmethod]
    #[pyo3(signature = (encoder, num_threads, chunk_bytes, table_bytes = None))]
    fn of_encoder(
        encoder: &PyEncoder,
        num_threads: Option<i64>,
        chunk_bytes: Option<usize>,
        table_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let encoder = encoder.core();
        let counter = Counter::with_special(
            encoder.pattern().clone(),
            encoder.special().clone().numbered(),
            convert::threads(num_threads)?,
            chunk_bytes.unwrap_or(CHUNK_BYTES),
            table_bytes.unwrap_or(usize::MAX),
            random_seed(),
        );
        Ok(Self { counter: Some(counter.map_err(to_python)?) })
    }

    fn set_folder(&mut self, folder: PathBuf) -> PyResult<()> {
        self.counter()?.set_folder(folder);
        Ok(())
    }

    fn set_weight(&mut self, py: Python<'_>, weight: u64) -> PyResult<()> {
        self.with_counter(py, |counter, check| counter.set_weight(weight, &|| check.poll(0)))
    }

    #[pyo3(signature = (path, errors, progress, start = 0, seconds = None, end = None))]
    #[expect(clippy::too_many_arguments, reason = "what to read of a file, how, and until when")]
    fn add_file(
        &mut self,
        py: Python<'_>,
        path: PathBuf,
        errors: &str,
        progress: Option<Py<PyAny>>,
        start: u64,
        seconds: Option<f64>,
        end: Option<u64>,
    ) -> PyResult<(u64, bool)> {
        let malformed = convert::malformed(errors)?;
        let counter = self.counter()?;
        let check = CancellationCheck::new(progress.as_ref());
        let n_read = AtomicU64::new(start);
        let order = std::sync::atomic::Ordering::Relaxed;
        let started = Instant::now();
        let is_enough = || seconds.is_some_and(|seconds| started.elapsed().as_secs_f64() >= seconds);
        let counted = py.detach(|| {
            let mut file = File::open(&path)?;
            if start > 0 {
                file.seek(SeekFrom::Start(start))?;
            }
            let progress = |n| n_read.store(start + n, order);
            let file = file.take(end.unwrap_or(u64::MAX).saturating_sub(start));
            counter.add_reader_until(file, malformed, progress, is_enough, &|| check.poll(n_read.load(order)))
        });
        let counted = counted.map_err(|error| match error {
            Error::Utf8 { start: offset, end, bytes } => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                Error::Utf8 { start: start.saturating_add(offset), end: start.saturating_add(end), bytes }
            }
            error => error,
        });
        let counted = counted.map(|(n_bytes, is_done)| (start + n_bytes, is_done));
        let counted = counted.map_err(|error| check.raise(error));
        self.drop_if_failed(counted)
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
        let check = CancellationCheck::new(progress.as_ref());
        let n_read = AtomicU64::new(0);
        let order = std::sync::atomic::Ordering::Relaxed;
        let stream = PyStream(stream);
        let counted = py.detach(|| {
            counter.add_reader(stream, malformed, |n| n_read.store(n, order), &|| check.poll(n_read.load(order)))
        });
        let counted = counted.map(drop).map_err(|error| check.raise(error));
        self.drop_if_failed(counted)
    }

    fn add_texts(&mut self, py: Python<'_>, texts: Vec<Bound<'_, PyString>>) -> PyResult<()> {
        let texts = texts.iter().map(convert::text).collect::<PyResult<Vec<_>>>()?;
        self.with_counter(py, |counter, check| {
            texts.iter().try_for_each(|text| counter.add_text(text, &|| check.poll(0)))
        })
    }

    fn add_documents(
        &mut self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        ends: &Bound<'_, PyAny>,
        is_open: bool,
    ) -> PyResult<()> {
        // Copy anything but bytes objects, which cannot change while they are counted.
        let data = match data.cast::<PyBytes>() {
            Ok(data) => data.clone(),
            Err(_) => py.get_type::<PyBytes>().call1((data,))?.cast_into::<PyBytes>()?,
        };
        let data = data.as_bytes();
        convert::arrays_ready(py)?;
        let ends = ends.extract::<PyReadonlyArray1<'_, i64>>()?.as_array().to_vec();
        self.with_counter(py, |counter, check| {
            let text = std::str::from_utf8(data).map_err(|error| {
                let start = error.valid_up_to();
                let end = start + error.error_len().unwrap_or(data.len() - start);
                Error::Utf8 { start, end, bytes: data[start..end].to_vec() }
            })?;
            counter.add_documents(text, &ends, is_open, &|| check.poll(0))
        })
    }

    #[pyo3(signature = (path, weight, segment = None))]
    fn add_counts(&mut self, py: Python<'_>, path: PathBuf, weight: u64, segment: Option<(u64, u64)>) -> PyResult<()> {
        self.with_counter(py, |counter, check| {
            let interrupt = || check.poll(0);
            counter.add_counts(
                |each| match segment {
                    None => visit_file(&path, &interrupt, each),
                    Some((start, end)) => visit_range(&path, start..end, &interrupt, each),
                },
                weight,
            )
        })
    }

    fn checkpoint(&mut self, py: Python<'_>) -> PyResult<String> {
        self.with_counter(py, |counter, check| counter.checkpoint(&|| check.poll(0)))
    }

    fn resume(&mut self, py: Python<'_>, state: &str, folder: PathBuf) -> PyResult<()> {
        self.with_counter(py, |counter, check| counter.resume(state, &folder, &|| check.poll(0)))
    }

    #[pyo3(signature = (denominator = 1, may_stay = false, must_stay = false))]
    fn finish(
        &mut self,
        py: Python<'_>,
        denominator: u64,
        may_stay: bool,
        must_stay: bool,
    ) -> PyResult<PyPretokenCounts> {
        self.counter()?;
        let check = CancellationCheck::new(None);
        match self.counter.take() {
            Some(counter) => {
                let scale = Scale::new(denominator);
                let stay = match (must_stay, may_stay) {
                    (true, _) => Stay::Always,
                    (false, true) => Stay::IfLarge,
                    (false, false) => Stay::Never,
                };
                let (counted, totals) = py
                    .detach(|| counter.finish_scaled(scale, stay, &|| check.poll(0)))
                    .map_err(|error| check.raise(error))?;
                Ok(PyPretokenCounts::new(counted, totals))
            }
            None => Err(PyValueError::new_err("this counter is finished")),
        }
    }
}

/// A cut in a text of which `window` is a part, such that the pre-tokens of both sides are those of the text.
#[pyfunction]
pub fn safe_cut(pattern: Option<&str>, special_tokens: Vec<String>, window: &str) -> PyResult<Option<usize>> {
    let pattern = Pattern::new(pattern).map_err(to_python)?;
    let special = SpecialTokens::new(special_tokens.into_iter().zip(0..).collect()).map_err(to_python)?;
    Ok(Cutter { pattern: &pattern, special: &special }.cut_within(window))
}

/// A binary Python stream.
struct PyStream(Py<PyAny>);

impl Read for PyStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Python::attach(|py| {
            // A Ctrl-C that arrived since Python last ran would not wake up the read.
            py.check_signals()?;
            let block = self.0.bind(py).call_method1("read", (buffer.len(),))?;
            let block = block.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
            let Some(room) = buffer.get_mut(..block.len()) else {
                return Err(std::io::Error::other("read(n) returned more than n bytes"));
            };
            room.copy_from_slice(block);
            Ok(block.len())
        })
    }
}
