//! Many texts or files at once.

use crate::convert;
use crate::signals::Pulse;
use bytemill::encode::{Allowed, Encoder, Id};
use bytemill::parallel::{self, Encoded};
use numpy::PyArray1;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::mem;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;

/// Bytes of text that a thread takes at a time, at most: their ids are still in its cache when lists are made of them.
const GROUP_BYTES: usize = 1 << 18;

/// Keeps Python's collector of cycles from running while many lists are made: it would go through them again and again, which
/// takes as long as to encode the texts, and find nothing, since ints are in no cycle.
struct NoCollection<'py> {
    was_enabled: bool,
    /// What it is done with: the thread stays attached.
    _py: Python<'py>,
}

impl<'py> NoCollection<'py> {
    fn new(py: Python<'py>) -> Self {
        // SAFETY: the thread is attached. The call changes a flag and gives what it was.
        let was_enabled = unsafe { ffi::PyGC_Disable() } != 0;
        Self { was_enabled, _py: py }
    }
}

impl Drop for NoCollection<'_> {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: the thread is attached, as `_py` says.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// A list of ids for each text.
///
/// Lists are made by the calling thread alone, with the GIL, between texts that it encodes itself: while it does, the
/// other threads go on encoding.
pub fn lists<'py>(
    py: Python<'py>,
    encoder: &Encoder,
    texts: &[&str],
    allowed: Allowed<'_>,
    n_threads: usize,
    list: impl for<'a> Fn(Python<'a>, &[u32]) -> PyResult<Bound<'a, PyList>> + Sync,
) -> PyResult<Bound<'py, PyList>> {
    let groups = groups(texts, n_threads);
    let n_expected = texts.iter().map(|text| text.len()).sum::<usize>() / n_threads.max(1);
    let pulse = Pulse::new(None);
    let encoded: Mutex<Vec<(usize, Encoded<u32>)>> = Mutex::default();
    let made: Mutex<Vec<(usize, Vec<Py<PyList>>)>> = Mutex::default();
    // Memory that is used again: its pages are there, and in the cache.
    let spare: Mutex<Vec<Encoded<u32>>> = Mutex::default();

    // Makes lists of what is encoded by now. The lock is not held meanwhile: others have more to put there.
    let make_lists = |py: Python<'_>| -> PyResult<()> {
        let ready = encoded.lock().map(|mut encoded| mem::take(&mut *encoded)).unwrap_or_default();
        let _collection = NoCollection::new(py);
        for (group, mut texts) in ready {
            let mut start = 0;
            let mut lists = Vec::with_capacity(texts.ends.len());
            for end in texts.ends.drain(..) {
                lists.push(list(py, &texts.ids[start..end])?.unbind());
                start = end;
            }
            if let Ok(mut made) = made.lock() {
                made.push((group, lists));
            }
            texts.ids.clear();
            if let Ok(mut spare) = spare.lock() {
                spare.push(texts);
            }
        }
        Ok(())
    };
    // Asked on the calling thread alone.
    let beat = || {
        pulse.beat(0)?;
        if encoded.lock().is_ok_and(|encoded| !encoded.is_empty()) {
            Python::attach(make_lists).map_err(|raised| pulse.stop(raised))?;
        }
        Ok(())
    };
    let encode = |group: usize, pulse: bytemill::encode::Pulse<'_>| {
        pulse()?;
        let mut all = spare.lock().map(|mut spare| spare.pop()).ok().flatten().unwrap_or_default();
        encoder.session(n_expected, |session| {
            texts[groups[group].clone()].iter().try_for_each(|text| {
                session.encode(text, allowed, &mut all.ids, pulse)?;
                all.ends.push(all.ids.len());
                bytemill::Result::Ok(())
            })
        })?;
        if let Ok(mut encoded) = encoded.lock() {
            encoded.push((group, all));
        }
        Ok(())
    };
    py.detach(|| parallel::map(groups.len(), n_threads, &beat, encode)).map_err(|error| pulse.raise(error))?;
    make_lists(py)?;

    let mut made = made.into_inner().unwrap_or_default();
    made.sort_unstable_by_key(|(group, _)| *group);
    let made: Vec<Py<PyList>> = made.into_iter().flat_map(|(_, lists)| lists).collect();
    let _collection = NoCollection::new(py);
    PyList::new(py, made)
}

/// The ids of all texts in an array, and one of where those of each begin, with the end of all behind them.
pub fn array<'py, T: Id + numpy::Element>(
    py: Python<'py>,
    encoder: &Encoder,
    texts: &[&str],
    allowed: Allowed<'_>,
    n_threads: usize,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray1<i64>>)> {
    convert::arrays_ready(py)?;
    let pulse = Pulse::new(None);
    let encoded = py.detach(|| {
        let mut all = encoder.encode_batch::<T>(texts, allowed, n_threads, &|| pulse.beat(0))?;
        all.ids.shrink_to_fit();
        // There are no more than isize::MAX ids.
        let offsets: Vec<i64> = [0].into_iter().chain(all.ends.into_iter().map(|end| end as i64)).collect();
        Ok((all.ids, offsets))
    });
    let (ids, offsets) = encoded.map_err(|error| pulse.raise(error))?;
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
    let pulse = Pulse::new(None);
    let encoded = py.detach(|| encoder.encode_files::<T>(paths, allowed, n_threads, &|| pulse.beat(0)));
    let files = encoded.map_err(|error| pulse.raise(error))?;
    Ok(files.into_iter().map(|ids| PyArray1::from_vec(py, ids).into_any()).collect())
}

/// Texts that follow each other, in groups of about the same size: several for each thread, so that all end together.
fn groups(texts: &[&str], n_threads: usize) -> Vec<Range<usize>> {
    let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let enough = (n_bytes / (8 * n_threads)).min(GROUP_BYTES);
    let mut groups = Vec::new();
    let (mut start, mut in_group) = (0, 0);
    for (index, text) in texts.iter().enumerate() {
        in_group += text.len();
        if in_group >= enough || index + 1 == texts.len() {
            groups.push(start..index + 1);
            (start, in_group) = (index + 1, 0);
        }
    }
    groups
}
