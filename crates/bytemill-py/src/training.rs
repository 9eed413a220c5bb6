//! `PretokenCounter` and `PretokenCounts`.

use crate::convert;
use crate::signals::{Pulse, to_python};
use bytemill::Error;
use bytemill::count::{CHUNK_BYTES, Counted, Counter, Counts, Merged, Scale, Totals};
use bytemill::count::{read_counts, read_header, visit_file, write_counts};
use bytemill::merges::{Ties, WordSource, learn, learn_from, learn_within};
use bytemill::pretokenize::Pattern;
use bytemill::pulse::no_pulse;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

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

    /// Works without the GIL.
    fn with_counter<R: Send>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut Counter, &Pulse<'_>) -> bytemill::Result<R> + Send,
    ) -> PyResult<R> {
        let counter = self.counter()?;
        let pulse = Pulse::new(None);
        let result = py.detach(|| work(counter, &pulse)).map_err(|error| pulse.raise(error));
        self.give_up(result)
    }
}

#[pymethods]
impl PyPretokenCounter {
    #[new]
    #[pyo3(signature = (pattern, special_tokens, num_threads, chunk_bytes, table_bytes = None))]
    fn new(
        pattern: Option<&str>,
        special_tokens: Vec<String>,
        num_threads: Option<i64>,
        chunk_bytes: Option<usize>,
        table_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let pattern = Pattern::new(pattern).map_err(to_python)?;
        let n_threads = convert::threads(num_threads)?;
        let chunk_bytes = chunk_bytes.unwrap_or(CHUNK_BYTES);
        let table_bytes = table_bytes.unwrap_or(usize::MAX);
        let counter = Counter::within(pattern, &special_tokens, n_threads, chunk_bytes, table_bytes);
        Ok(Self { counter: Some(counter.map_err(to_python)?) })
    }

    fn set_folder(&mut self, folder: PathBuf) -> PyResult<()> {
        self.counter()?.set_folder(folder);
        Ok(())
    }

    fn set_weight(&mut self, py: Python<'_>, weight: u64) -> PyResult<()> {
        self.with_counter(py, |counter, pulse| counter.set_weight(weight, &|| pulse.beat(0)))
    }

    #[pyo3(signature = (path, errors, progress, start = 0, seconds = None))]
    fn add_file(
        &mut self,
        py: Python<'_>,
        path: PathBuf,
        errors: &str,
        progress: Option<Py<PyAny>>,
        start: u64,
        seconds: Option<f64>,
    ) -> PyResult<(u64, bool)> {
        let malformed = convert::malformed(errors)?;
        let counter = self.counter()?;
        let pulse = Pulse::new(progress.as_ref());
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
            counter.add_reader_until(file, malformed, progress, is_enough, &|| pulse.beat(n_read.load(order)))
        });
        let counted = counted.map_err(|error| match error {
            Error::Utf8 { start: place, end, bytes } => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                Error::Utf8 { start: start.saturating_add(place), end: start.saturating_add(end), bytes }
            }
            error => error,
        });
        let counted = counted.map(|(n_bytes, is_done)| (start + n_bytes, is_done));
        let counted = counted.map_err(|error| pulse.raise(error));
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
        let n_read = AtomicU64::new(0);
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
        self.with_counter(py, |counter, pulse| {
            texts.iter().try_for_each(|text| counter.add_text(text, &|| pulse.beat(0)))
        })
    }

    fn add_documents(
        &mut self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        ends: &Bound<'_, PyAny>,
        is_open: bool,
    ) -> PyResult<()> {
        // What is no bytes object could change while it is counted, so it is copied.
        let data = match data.cast::<PyBytes>() {
            Ok(data) => data.clone(),
            Err(_) => py.get_type::<PyBytes>().call1((data,))?.cast_into::<PyBytes>()?,
        };
        let data = data.as_bytes();
        convert::arrays_ready(py)?;
        let ends = ends.extract::<PyReadonlyArray1<'_, i64>>()?.as_array().to_vec();
        self.with_counter(py, |counter, pulse| {
            let text = std::str::from_utf8(data).map_err(|error| {
                let start = error.valid_up_to();
                let end = start + error.error_len().unwrap_or(data.len() - start);
                Error::Utf8 { start, end, bytes: data[start..end].to_vec() }
            })?;
            counter.add_documents(text, &ends, is_open, &|| pulse.beat(0))
        })
    }

    fn add_counts(&mut self, py: Python<'_>, path: PathBuf, weight: u64) -> PyResult<()> {
        self.with_counter(py, |counter, pulse| {
            let pulse = || pulse.beat(0);
            counter.add_words(|each| visit_file(&path, &pulse, each), weight, &pulse)
        })
    }

    fn checkpoint(&mut self, py: Python<'_>) -> PyResult<String> {
        self.with_counter(py, |counter, pulse| counter.checkpoint(&|| pulse.beat(0)))
    }

    fn resume(&mut self, py: Python<'_>, state: &str, folder: PathBuf) -> PyResult<()> {
        self.with_counter(py, |counter, pulse| counter.resume(state, &folder, &|| pulse.beat(0)))
    }

    #[pyo3(signature = (denominator = 1, may_stay = false))]
    fn finish(&mut self, py: Python<'_>, denominator: u64, may_stay: bool) -> PyResult<PyPretokenCounts> {
        self.counter()?;
        let pulse = Pulse::new(None);
        match self.counter.take() {
            Some(counter) => {
                let scale = Scale::new(denominator);
                let (counted, totals) = py
                    .detach(|| counter.finish_scaled(scale, may_stay, &|| pulse.beat(0)))
                    .map_err(|error| pulse.raise(error))?;
                Ok(PyPretokenCounts::new(counted, totals))
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
            // A Ctrl-C that has come since Python ran last would not wake a read that begins now.
            py.check_signals()?;
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
    /// None once merges were learnt of them that needed their memory.
    counted: RwLock<Option<Counted>>,
    totals: Totals,
}

type PyMerge<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Counts on disk, as merges are learnt of them.
struct OnDisk(Merged);

impl WordSource for OnDisk {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> bytemill::Result<()>) -> bytemill::Result<()> {
        // Whoever learns asks whether to go on.
        self.0.visit(&no_pulse, each)
    }
}

impl PyPretokenCounts {
    fn new(counted: Counted, totals: Totals) -> Self {
        Self { counted: RwLock::new(Some(counted)), totals }
    }

    fn with<R>(&self, work: impl FnOnce(&Counted) -> R) -> PyResult<R> {
        let counted = self.counted.read().unwrap_or_else(PoisonError::into_inner);
        counted.as_ref().map(work).ok_or_else(used_up)
    }
}

fn used_up() -> PyErr {
    PyValueError::new_err("these counts are used up: merges were learnt of them")
}

/// To wait for another thread with the GIL in hand would be for ever, if it needs that to come to its end.
fn in_use() -> PyErr {
    PyValueError::new_err("another thread works with these counts")
}

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
        let counts = Counts::from_items(items.into_iter()).map_err(to_python)?;
        let (n_bytes, n_pretokens) = (counts.n_bytes, counts.n_pretokens);
        Ok(Self::new(Counted::Memory(counts), Totals { n_bytes, n_pretokens, ..Totals::default() }))
    }

    /// The counts of a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let pulse = Pulse::new(None);
        let counts = py.detach(|| read_counts(&path, &|| pulse.beat(0))).map_err(|error| pulse.raise(error))?;
        let n_pretokens = counts.n_pretokens;
        Ok(Self::new(Counted::Memory(counts), Totals { n_pretokens, ..Totals::default() }))
    }

    /// Writes the counts to a file, with a header.
    fn save(&self, py: Python<'_>, path: PathBuf, header: &str) -> PyResult<()> {
        let pulse = Pulse::new(None);
        let work = |counted: &Counted| write_counts(counted, header, &path, &|| pulse.beat(0));
        py.detach(|| self.with(work))?.map_err(|error| pulse.raise(error))
    }

    /// The same counts once more.
    fn copy(&self) -> PyResult<Self> {
        let on_disk = || PyValueError::new_err("counts on disk cannot be copied");
        let counts = self.with(|counted| match counted {
            Counted::Memory(counts) => Some(counts.clone()),
            Counted::Disk(_) => None,
        })?;
        Ok(Self::new(Counted::Memory(counts.ok_or_else(on_disk)?), self.totals.clone()))
    }

    /// Leaves out what occurs less often; gives how many pre-tokens that were and how often they occurred.
    fn drop_below(&self, least: u64) -> PyResult<(u64, u64)> {
        let mut counted = self.counted.try_write().map_err(|_| in_use())?;
        match counted.as_mut() {
            Some(Counted::Memory(counts)) => Ok(counts.drop_below(least)),
            Some(Counted::Disk(merged)) => Ok(merged.drop_below(least)),
            None => Err(used_up()),
        }
    }

    #[getter]
    fn n_bytes(&self) -> u64 {
        self.totals.n_bytes
    }

    #[getter]
    fn n_pretokens(&self) -> u64 {
        self.totals.n_pretokens
    }

    #[getter]
    fn n_unique(&self) -> PyResult<u64> {
        self.with(|counted| match counted {
            Counted::Memory(counts) => counts.n_unique() as u64,
            Counted::Disk(merged) => merged.n_unique(),
        })
    }

    #[getter]
    fn n_unique_bytes(&self) -> PyResult<u64> {
        self.with(|counted| match counted {
            Counted::Memory(counts) => counts.n_unique_bytes() as u64,
            Counted::Disk(merged) => merged.n_unique_bytes(),
        })
    }

    #[getter]
    fn memory_bytes(&self) -> PyResult<usize> {
        self.with(|counted| match counted {
            Counted::Memory(counts) => counts.memory(),
            Counted::Disk(_) => 0,
        })
    }

    #[getter]
    fn is_on_disk(&self) -> PyResult<bool> {
        self.with(|counted| matches!(counted, Counted::Disk(_)))
    }

    #[getter]
    fn n_special(&self) -> u64 {
        self.totals.n_special.iter().sum()
    }

    #[getter]
    fn special_counts(&self) -> Vec<u64> {
        self.totals.n_special.clone()
    }

    #[getter]
    fn n_replaced(&self) -> u64 {
        self.totals.n_replaced
    }

    /// Bytes written to disk, tables written, and seconds of the threads that did.
    #[getter]
    fn spilled(&self) -> (u64, u64, f64) {
        let cost = self.totals.spilled;
        (cost.n_bytes, cost.n_runs, Duration::from_nanos(cost.nanoseconds).as_secs_f64())
    }

    #[getter]
    fn read_seconds(&self) -> f64 {
        self.totals.reading.as_secs_f64()
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let mut all: Vec<(Vec<u8>, u64)> = Vec::new();
        self.with(|counted| match counted {
            Counted::Memory(counts) => {
                all.extend(counts.iter().map(|(pretoken, count)| (pretoken.to_vec(), count)));
                Ok(())
            }
            Counted::Disk(merged) => merged.visit(&no_pulse, &mut |pretoken, count| {
                all.push((pretoken.to_vec(), count));
                Ok(())
            }),
        })?
        .map_err(to_python)?;
        all.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        Ok(all.into_iter().map(|(pretoken, count)| (PyBytes::new(py, &pretoken), count)).collect())
    }

    #[pyo3(signature = (n_merges, ties, min_frequency, num_threads, progress, *, max_bytes = None, consume = false))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn learn_merges<'py>(
        &self,
        py: Python<'py>,
        n_merges: usize,
        ties: &str,
        min_frequency: u64,
        num_threads: Option<i64>,
        progress: Option<Py<PyAny>>,
        max_bytes: Option<u64>,
        consume: bool,
    ) -> PyResult<(Vec<PyMerge<'py>>, Vec<u64>)> {
        let n_threads = convert::threads(num_threads)?;
        let ties = match ties {
            "bytes" => Ties::Bytes,
            "huggingface" => Ties::HuggingFace,
            _ => return Err(PyValueError::new_err(format!("ties must be 'bytes' or 'huggingface', not {ties:?}"))),
        };
        let pulse = Pulse::new(progress.as_ref());
        let beat = |n| pulse.beat(n as u64);
        let taken = if consume {
            Some(self.counted.try_write().map_err(|_| in_use())?.take().ok_or_else(used_up)?)
        } else {
            None
        };
        let learnt = py
            .detach(|| match taken {
                Some(Counted::Memory(counts)) => {
                    Ok(learn_within(counts, n_merges, ties, min_frequency, n_threads, max_bytes, beat))
                }
                Some(Counted::Disk(merged)) => {
                    Ok(learn_from(OnDisk(merged), n_merges, ties, min_frequency, n_threads, max_bytes, beat))
                }
                None => self.with(|counted| match counted {
                    Counted::Memory(counts) => learn(counts, n_merges, ties, min_frequency, n_threads, beat),
                    Counted::Disk(_) => Err(Error::Invalid("counts on disk are used up by learning".to_owned())),
                }),
            })?
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

/// The header of a file of counts.
#[pyfunction]
pub fn read_counts_header(path: PathBuf) -> PyResult<String> {
    Ok(read_header(&path).map_err(to_python)?.0)
}
