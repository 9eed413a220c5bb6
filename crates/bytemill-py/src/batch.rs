//! Many texts to lists.

use crate::signals::Pulse;
use bytemill::encode::{Allowed, Encoder};
use bytemill::parallel;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::mem;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of text that a thread takes at a time, at most: their ids are still in its cache when lists are made of them.
const GROUP_BYTES: usize = 1 << 18;

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
) -> PyResult<Vec<Py<PyList>>> {
    let groups = groups(texts, n_threads);
    let pulse = Pulse::new(None);
    let encoded: Mutex<Vec<(usize, Vec<Vec<u32>>)>> = Mutex::default();
    let made: Mutex<Vec<(usize, Vec<Py<PyList>>)>> = Mutex::default();

    // Makes lists of what is encoded by now. The lock is not held meanwhile: others have more to put there.
    let make_lists = |py: Python<'_>| -> PyResult<()> {
        let ready = encoded.lock().map(|mut encoded| mem::take(&mut *encoded)).unwrap_or_default();
        for (group, ids) in ready {
            let lists = ids.iter().map(|ids| Ok(list(py, ids)?.unbind())).collect::<PyResult<Vec<_>>>()?;
            if let Ok(mut made) = made.lock() {
                made.push((group, lists));
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
        let mut ids_of_group = Vec::with_capacity(groups[group].len());
        for text in &texts[groups[group].clone()] {
            let mut ids = Vec::with_capacity(text.len() / 4 + 1);
            encoder.encode(text, allowed, &mut ids, pulse)?;
            ids_of_group.push(ids);
        }
        if let Ok(mut encoded) = encoded.lock() {
            encoded.push((group, ids_of_group));
        }
        Ok(())
    };
    py.detach(|| parallel::map(groups.len(), n_threads, &beat, encode)).map_err(|error| pulse.raise(error))?;
    make_lists(py)?;

    let mut made = made.into_inner().unwrap_or_default();
    made.sort_unstable_by_key(|(group, _)| *group);
    Ok(made.into_iter().flat_map(|(_, lists)| lists).collect())
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
