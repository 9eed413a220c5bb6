//! Many texts or files at once.

use crate::convert;
use crate::signals::CancellationCheck;
use bytemill::batch::parallel::Encoded;
use bytemill::batch::scheduler::pipeline;
use bytemill::encode::{Allowed, Encoder, Id};
use numpy::PyArray1;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyModule};
use std::path::PathBuf;

/// Upper bound on the bytes of text that a thread encodes at a time: the ids are still cached when lists are made of them.
const MAX_GROUP_BYTES: usize = 1 << 18;

/// Groups of texts for each thread, which keep all threads busy until the end.
const GROUPS_PER_THREAD: usize = 8;

/// Switches Python's garbage collector off while many lists are made. It would visit them again and again, which takes as
/// long as encoding, and find nothing, since ints form no cycles.
struct CollectorOff<'py> {
    /// The module `gc`, if the collector was on.
    gc: Option<Bound<'py, PyModule>>,
}

impl<'py> CollectorOff<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let gc = py.import(intern!(py, "gc"))?;
        if !gc.call_method0(intern!(py, "isenabled"))?.is_truthy()? {
            return Ok(Self { gc: None });
        }
        gc.call_method0(intern!(py, "disable"))?;
        Ok(Self { gc: Some(gc) })
    }
}

impl Drop for CollectorOff<'_> {
    fn drop(&mut self) {
        if let Some(gc) = &self.gc {
            // `gc.enable` sets a flag and cannot fail.
            let _ = gc.call_method0(intern!(gc.py(), "enable"));
        }
    }
}

/// Consecutive texts that a thread encodes at a time, and their ids.
#[derive(Default)]
struct Group<'t> {
    texts: &'t [&'t str],
    encoded: Encoded<u32>,
}

/// A list of ids for each text.
///
/// The calling thread makes the lists, with the GIL, while other threads encode.
pub fn lists<'py>(
    py: Python<'py>,
    encoder: &Encoder,
    texts: &[&str],
    allowed: Allowed<'_>,
    n_threads: usize,
    list: impl for<'a> Fn(Python<'a>, &[u32]) -> PyResult<Bound<'a, PyList>> + Sync,
) -> PyResult<Bound<'py, PyList>> {
    let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let group_bytes = (n_bytes / (GROUPS_PER_THREAD * n_threads.max(1))).min(MAX_GROUP_BYTES);
    let check = CancellationCheck::new(None);
    let _collector_off = CollectorOff::new(py)?;
    let mut lists: Vec<Py<PyList>> = Vec::with_capacity(texts.len());
    let mut rest = texts;
    let made = py.detach(|| {
        pipeline(
            n_threads,
            &|| check.poll(0),
            |group: &mut Group, _| {
                let mut n_bytes = 0;
                let last = rest.iter().position(|text| {
                    n_bytes += text.len();
                    n_bytes >= group_bytes
                });
                (group.texts, rest) = rest.split_at(last.map_or(rest.len(), |last| last + 1));
                Ok(!group.texts.is_empty())
            },
            |group, interrupt| {
                interrupt()?;
                let Encoded { ids, ends } = &mut group.encoded;
                encoder.session(|session| {
                    group.texts.iter().try_for_each(|text| {
                        session.encode(text, 0, allowed, ids, interrupt)?;
                        ends.push(ids.len());
                        Ok(())
                    })
                })
            },
            |group| {
                let Encoded { ids, ends } = &mut group.encoded;
                let made = Python::attach(|py| {
                    let mut start = 0;
                    for end in ends.drain(..) {
                        lists.push(list(py, &ids[start..end])?.unbind());
                        start = end;
                    }
                    Ok(())
                });
                ids.clear();
                made.map_err(|raised| check.stop(raised))
            },
        )
    });
    made.map_err(|error| check.raise(error))?;
    PyList::new(py, lists)
}

/// The ids of all texts in one array, and the offsets where each text starts, followed by the end of the last one.
pub fn array<'py, T: Id + numpy::Element>(
    py: Python<'py>,
    encoder: &Encoder,
    texts: &[&str],
    allowed: Allowed<'_>,
    n_threads: usize,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray1<i64>>)> {
    convert::arrays_ready(py)?;
    let check = CancellationCheck::new(None);
    let encoded = py.detach(|| {
        let mut all = encoder.encode_batch::<T>(texts, allowed, n_threads, &|| check.poll(0))?;
        all.ids.shrink_to_fit();
        // A vector has at most isize::MAX ids.
        let offsets: Vec<i64> = [0].into_iter().chain(all.ends.into_iter().map(|end| end as i64)).collect();
        Ok((all.ids, offsets))
    });
    let (ids, offsets) = encoded.map_err(|error| check.raise(error))?;
    Ok((PyArray1::from_vec(py, ids).into_any(), PyArray1::from_vec(py, offsets)))
}

/// An array of ids for each file.
pub fn files<'py, T: Id + numpy::Element>(
    py: Python<'py>,
    encoder: &Encoder,
    paths: &[PathBuf],
    allowed: Allowed<'_>,
    n_threads: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    convert::arrays_ready(py)?;
    let check = CancellationCheck::new(None);
    let encoded = py.detach(|| encoder.encode_files::<T>(paths, allowed, n_threads, &|| check.poll(0)));
    let files = encoded.map_err(|error| check.raise(error))?;
    Ok(files.into_iter().map(|ids| PyArray1::from_vec(py, ids).into_any()).collect())
}
