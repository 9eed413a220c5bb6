//! Near and exact duplicates among documents.

use crate::convert;
use crate::pack::Data;
use crate::signals::{CancellationCheck, to_python};
use bytemill::Error;
use bytemill::dedup::{self, Bands, ShingleSets, UnitKind, Units};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Sketches, shingles, and where the set of each document ends in them.
type SetsTuple = (Py<PyArray1<u32>>, Py<PyArray1<u64>>, Py<PyArray1<u64>>);

fn sets_to_python(py: Python<'_>, sets: ShingleSets) -> SetsTuple {
    (
        PyArray1::from_vec(py, sets.sketches).unbind(),
        PyArray1::from_vec(py, sets.shingles).unbind(),
        PyArray1::from_vec(py, sets.ends).unbind(),
    )
}

fn offsets(ends: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    let offset = |&end| usize::try_from(end).map_err(|_| to_python(Error::Invalid("ends must not be negative".into())));
    ends.as_array().iter().map(offset).collect()
}

fn utf8(bytes: &[u8]) -> bytemill::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::Invalid("the documents are not UTF-8".to_owned()))
}

/// The sets of word n-grams of packed documents.
#[pyfunction]
#[pyo3(signature = (data, ends, n, num_threads=None))]
pub fn sketch_texts(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    ends: PyReadonlyArray1<'_, i64>,
    n: usize,
    num_threads: Option<i64>,
) -> PyResult<SetsTuple> {
    convert::arrays_ready(py)?;
    let (data, ends) = (Data::new(data)?, offsets(&ends)?);
    let bytes = data.as_bytes();
    let n_threads = convert::threads_for(num_threads, bytes.len())?;
    let check = CancellationCheck::new(None);
    let sets = py.detach(|| dedup::sketch_texts(utf8(bytes)?, &ends, n, n_threads, &|| check.poll(0)));
    Ok(sets_to_python(py, sets.map_err(|error| check.raise(error))?))
}

#[derive(FromPyObject)]
pub enum Ids<'py> {
    Narrow(PyReadonlyArray1<'py, u16>),
    Wide(PyReadonlyArray1<'py, u32>),
}

/// The sets of n-grams of the token ids of packed documents.
#[pyfunction]
#[pyo3(signature = (ids, ends, n, num_threads=None))]
pub fn sketch_ids(
    py: Python<'_>,
    ids: Ids<'_>,
    ends: PyReadonlyArray1<'_, i64>,
    n: usize,
    num_threads: Option<i64>,
) -> PyResult<SetsTuple> {
    convert::arrays_ready(py)?;
    let ends = offsets(&ends)?;
    let check = CancellationCheck::new(None);
    let n_threads = |n_ids: usize| convert::threads_for(num_threads, 4 * n_ids);
    let sets = match &ids {
        Ids::Narrow(ids) => {
            let (ids, n_threads) = (ids.as_slice()?, n_threads(ids.len()?)?);
            py.detach(|| dedup::sketch_ids(ids, &ends, n, n_threads, &|| check.poll(0)))
        }
        Ids::Wide(ids) => {
            let (ids, n_threads) = (ids.as_slice()?, n_threads(ids.len()?)?);
            py.detach(|| dedup::sketch_ids(ids, &ends, n, n_threads, &|| check.poll(0)))
        }
    };
    Ok(sets_to_python(py, sets.map_err(|error| check.raise(error))?))
}

/// First documents, similarities to them, pairs (two documents and a similarity), numbers of candidates and comparisons.
type ClustersTuple =
    (Py<PyArray1<u32>>, Py<PyArray1<f64>>, (Py<PyArray1<u32>>, Py<PyArray1<u32>>, Py<PyArray1<f64>>), u64, u64);

/// The clusters of documents by their sketches and shingle sets.
#[pyfunction]
#[pyo3(signature = (sketches, shingles, ends, bands, rows, threshold, num_threads=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "the documents and the settings")]
pub fn find_clusters(
    py: Python<'_>,
    sketches: PyReadonlyArray1<'_, u32>,
    shingles: PyReadonlyArray1<'_, u64>,
    ends: PyReadonlyArray1<'_, u64>,
    bands: usize,
    rows: usize,
    threshold: f64,
    num_threads: Option<i64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<ClustersTuple> {
    convert::arrays_ready(py)?;
    let (sketches, shingles, ends) = (sketches.as_slice()?, shingles.as_slice()?, ends.as_slice()?);
    let n_threads = convert::threads(num_threads)?;
    let bands = Bands { n_bands: bands, n_rows: rows, threshold };
    let n_done = std::sync::atomic::AtomicU64::new(0);
    let check = CancellationCheck::new(progress.as_ref());
    let found = py.detach(|| {
        let interrupt = || check.poll(n_done.load(std::sync::atomic::Ordering::Relaxed));
        let advance = |band: usize| n_done.store(band as u64, std::sync::atomic::Ordering::Relaxed);
        dedup::find_clusters(sketches, shingles, ends, bands, n_threads, &interrupt, advance)
    });
    let found = found.map_err(|error| check.raise(error))?;
    let column = |values| PyArray1::from_vec(py, values).unbind();
    let pairs = (
        column(found.pairs.iter().map(|pair| pair.0).collect()),
        column(found.pairs.iter().map(|pair| pair.1).collect()),
        PyArray1::from_vec(py, found.pairs.iter().map(|pair| pair.2).collect()).unbind(),
    );
    let similarity = PyArray1::from_vec(py, found.similarity).unbind();
    Ok((column(found.first), similarity, pairs, found.n_candidates, found.n_compared))
}

/// Hashes, starts, stops of the lines or paragraphs of packed documents, and the number of them up to the end of each document.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple of arrays")]
pub fn text_units(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    ends: PyReadonlyArray1<'_, i64>,
    paragraphs: bool,
) -> PyResult<(Py<PyArray1<u64>>, Py<PyArray1<u64>>, Py<PyArray1<u64>>, Py<PyArray1<u64>>)> {
    convert::arrays_ready(py)?;
    let (data, ends) = (Data::new(data)?, offsets(&ends)?);
    let bytes = data.as_bytes();
    let kind = if paragraphs { UnitKind::Paragraph } else { UnitKind::Line };
    let units = py.detach(|| Units::new(utf8(bytes)?, &ends, kind)).map_err(to_python)?;
    let column = |values| PyArray1::from_vec(py, values).unbind();
    Ok((column(units.hashes), column(units.starts), column(units.stops), column(units.ends)))
}
