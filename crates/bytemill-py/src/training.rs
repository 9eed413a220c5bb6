//! `PretokenCounts`.

use crate::convert;
use crate::encoder::PyEncoder;
use crate::signals::{CancellationCheck, to_python};
use bytemill::Error;
use bytemill::sys::interrupt::no_interrupt;
use bytemill::train::count::{
    Counted, Counts, Merged, Totals, read_counts, read_header, write_counts, write_partitions,
};
use bytemill::train::merges::{
    Base, PretokenSource, Ruled, Ties, counts_bytes, learn, learn_from, learn_more, learn_within,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Unique pre-tokens with their counts.
#[pyclass(frozen, name = "PretokenCounts", module = "bytemill._core")]
pub struct PyPretokenCounts {
    /// None after learning has consumed them.
    counted: RwLock<Option<Counted>>,
    totals: Totals,
}

type PyMerge<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Counts on disk as a source of pre-tokens.
struct OnDisk(Merged);

impl PretokenSource for OnDisk {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> bytemill::Result<()>) -> bytemill::Result<()> {
        // Learning has its own interrupt checks.
        self.0.visit(&no_interrupt, each)
    }
}

impl PyPretokenCounts {
    pub fn new(counted: Counted, totals: Totals) -> Self {
        Self { counted: RwLock::new(Some(counted)), totals }
    }

    fn with<R>(&self, work: impl FnOnce(&Counted) -> R) -> PyResult<R> {
        let counted = self.counted.read().unwrap_or_else(PoisonError::into_inner);
        counted.as_ref().map(work).ok_or_else(used_up)
    }
}

fn used_up() -> PyErr {
    PyValueError::new_err("these counts are used up: learning merges has consumed them")
}

/// Waiting for the other thread while holding the GIL could deadlock, because that thread may need the GIL.
fn in_use() -> PyErr {
    PyValueError::new_err("another thread is using these counts")
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

    /// Reads counts from a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let check = CancellationCheck::new(None);
        let counts = py.detach(|| read_counts(&path, &|| check.poll(0))).map_err(|error| check.raise(error))?;
        let n_pretokens = counts.n_pretokens;
        Ok(Self::new(Counted::Memory(counts), Totals { n_pretokens, ..Totals::default() }))
    }

    /// Writes the counts to a file, with a header.
    fn save(&self, py: Python<'_>, path: PathBuf, header: &str) -> PyResult<()> {
        let check = CancellationCheck::new(None);
        let work = |counted: &Counted| write_counts(counted, header, &path, &|| check.poll(0));
        py.detach(|| self.with(work))?.map_err(|error| check.raise(error))
    }

    /// Writes some partitions of counts on disk to a file, each with a header.
    fn save_partitions(
        &self,
        py: Python<'_>,
        path: PathBuf,
        header: &str,
        partitions: (usize, usize),
    ) -> PyResult<Vec<u64>> {
        let check = CancellationCheck::new(None);
        let work = |counted: &Counted| match counted {
            Counted::Disk(merged) => {
                write_partitions(merged, partitions.0..partitions.1, header, &path, &|| check.poll(0))
            }
            Counted::Memory(_) => Err(Error::Invalid("counts in memory have no partitions".to_owned())),
        };
        py.detach(|| self.with(work))?.map_err(|error| check.raise(error))
    }

    /// A copy of the counts.
    fn copy(&self) -> PyResult<Self> {
        let on_disk = || PyValueError::new_err("counts on disk cannot be copied");
        let counts = self.with(|counted| match counted {
            Counted::Memory(counts) => Some(counts.clone()),
            Counted::Disk(_) => None,
        })?;
        Ok(Self::new(Counted::Memory(counts.ok_or_else(on_disk)?), self.totals.clone()))
    }

    /// Removes rarer pre-tokens. Returns their number and their total count.
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

    /// Bytes and tables written to disk, and the total time of the writing threads in seconds.
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
            Counted::Disk(merged) => merged.visit(&no_interrupt, &mut |pretoken, count| {
                all.push((pretoken.to_vec(), count));
                Ok(())
            }),
        })?
        .map_err(to_python)?;
        all.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        Ok(all.into_iter().map(|(pretoken, count)| (PyBytes::new(py, &pretoken), count)).collect())
    }

    #[pyo3(signature = (n_merges, ties, min_frequency, num_threads, progress, *, max_bytes = None, consume = false, base = None, forbids = None))]
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
        base: Option<&PyEncoder>,
        forbids: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<PyMerge<'py>>, Vec<u64>)> {
        let n_threads = convert::threads(num_threads)?;
        let ties = match ties {
            "bytes" => Ties::Bytes,
            "huggingface" => Ties::HuggingFace,
            _ => return Err(PyValueError::new_err(format!("ties must be 'bytes' or 'huggingface', not {ties:?}"))),
        };
        let check = CancellationCheck::new(progress.as_ref());
        let interrupt = |n| check.poll(n as u64);
        let consumed = if consume {
            Some(self.counted.try_write().map_err(|_| in_use())?.take().ok_or_else(used_up)?)
        } else {
            None
        };
        let base = base.map(|base| &**base.core() as &dyn Base);
        let failure = Mutex::new(None);
        let is_forbidden = |token: &[u8]| {
            Python::attach(|py| {
                let asked =
                    forbids.as_ref().map(|forbids| forbids.call1(py, (PyBytes::new(py, token),))?.is_truthy(py));
                asked.unwrap_or(Ok(false)).unwrap_or_else(|error| {
                    // Nothing is merged any more, and the first error is raised at the end.
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    true
                })
            })
        };
        let ruled = Ruled { base, forbids: &is_forbidden };
        let base = if forbids.is_some() { Some(&ruled as &dyn Base) } else { base };
        let on_disk = || Error::Invalid("learning consumes counts on disk: pass consume=True".to_owned());
        let learned = py
            .detach(|| match (consumed, base) {
                (Some(Counted::Memory(counts)), None) => {
                    Ok(learn_within(counts, n_merges, ties, min_frequency, n_threads, max_bytes, interrupt))
                }
                (Some(Counted::Disk(merged)), None) => {
                    Ok(learn_from(OnDisk(merged), n_merges, ties, min_frequency, n_threads, max_bytes, interrupt))
                }
                (None, None) => self.with(|counted| match counted {
                    Counted::Memory(counts) => learn(counts, n_merges, ties, min_frequency, n_threads, interrupt),
                    Counted::Disk(_) => Err(on_disk()),
                }),
                (Some(Counted::Memory(counts)), Some(base)) => {
                    let max_bytes = max_bytes.map(|max_bytes| (max_bytes, counts_bytes(&counts)));
                    Ok(learn_more(counts, base, n_merges, ties, min_frequency, n_threads, max_bytes, interrupt))
                }
                (Some(Counted::Disk(merged)), Some(base)) => {
                    let max_bytes = max_bytes.map(|max_bytes| (max_bytes, 0));
                    Ok(learn_more(OnDisk(merged), base, n_merges, ties, min_frequency, n_threads, max_bytes, interrupt))
                }
                (None, Some(base)) => self.with(|counted| match counted {
                    Counted::Memory(counts) => {
                        learn_more(counts, base, n_merges, ties, min_frequency, n_threads, None, interrupt)
                    }
                    Counted::Disk(_) => Err(on_disk()),
                }),
            })?
            .map_err(|error| check.raise(error))?;
        if let Some(error) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let n_base = base.map_or(256, Base::n_symbols);
        // The bytes of new symbols, and on demand those of others.
        let mut symbols: Vec<Bound<'py, PyBytes>> = Vec::with_capacity(learned.len());
        let mut merges = Vec::with_capacity(learned.len());
        for merge in &learned {
            let bytes_of = |symbol: u32| match ((symbol as usize).checked_sub(n_base), base) {
                (Some(new), _) => symbols[new].clone(),
                (None, Some(base)) => PyBytes::new(py, base.symbol(symbol)),
                (None, None) => PyBytes::new(py, &[symbol as u8]),
            };
            let (left, right) = (bytes_of(merge.left), bytes_of(merge.right));
            let joined = [left.as_bytes(), right.as_bytes()].concat();
            symbols.push(PyBytes::new(py, &joined));
            merges.push((left, right));
        }
        Ok((merges, learned.iter().map(|merge| merge.count).collect()))
    }
}

/// Reads the header of a file of counts.
#[pyfunction]
pub fn read_counts_header(path: PathBuf) -> PyResult<String> {
    Ok(read_header(&path).map_err(to_python)?.0)
}
