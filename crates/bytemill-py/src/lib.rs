//! Python bindings of the core: conversions, the GIL, errors, progress and Ctrl-C. No logic.

mod batch;
mod convert;
mod decoding;
mod documents;
mod encoder;
mod lists;
mod loading;
mod pack;
mod signals;
mod spans;
mod special;
mod stream;
mod training;

use bytemill::pretokenize::{NAMED, Pattern};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Byte offsets (start, end) of the pre-tokens of `text`, which tile it.
#[pyfunction]
fn pretoken_spans(text: &Bound<'_, pyo3::types::PyString>, pattern: Option<&str>) -> PyResult<Vec<(usize, usize)>> {
    let text = convert::text(text)?;
    let pattern = Pattern::new(pattern).map_err(signals::to_python)?;
    let mut spans = Vec::new();
    let mut start = 0;
    pattern
        .for_each(&text, |pretoken| {
            spans.push((start, start + pretoken.len()));
            start += pretoken.len();
        })
        .map_err(signals::to_python)?;
    Ok(spans)
}

/// The name of the hand-written splitter that serves `pattern`, else None.
#[pyfunction]
fn named_pattern(pattern: &str) -> Option<&'static str> {
    Pattern::name_for(pattern)
}

/// Raises ValueError where `pattern` is neither a known name nor an expression that compiles.
#[pyfunction]
fn check_pattern(pattern: Option<&str>) -> PyResult<()> {
    Pattern::new(pattern).map(drop).map_err(signals::to_python)
}

/// The places of the merges that some text needs: of several that make one token the one that happens.
#[pyfunction]
fn needed_merges(py: Python<'_>, merges: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>) -> PyResult<Vec<usize>> {
    let merges: Vec<_> = merges.iter().map(|(left, right)| (left.as_bytes(), right.as_bytes())).collect();
    py.detach(|| bytemill::vocab::needed_merges(&merges)).map_err(signals::to_python)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("UNICODE_VERSION", bytemill::unicode::UNICODE_VERSION)?;
    let named = PyDict::new(module.py());
    for (name, expression) in NAMED {
        named.set_item(name, expression)?;
    }
    module.add("NAMED_PATTERNS", named)?;
    module.add_function(wrap_pyfunction!(pretoken_spans, module)?)?;
    module.add_function(wrap_pyfunction!(named_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(check_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(needed_merges, module)?)?;
    module.add_function(wrap_pyfunction!(documents::clean_text, module)?)?;
    module.add_function(wrap_pyfunction!(documents::check_documents, module)?)?;
    module.add_function(wrap_pyfunction!(documents::select_documents, module)?)?;
    module.add_class::<documents::PyBlockDocuments>()?;
    module.add_class::<documents::PyTextSplitter>()?;
    module.add_class::<documents::PyJsonLines>()?;
    module.add_class::<encoder::PyEncoder>()?;
    module.add_class::<loading::PyRankFile>()?;
    module.add_class::<pack::PyDocumentEncoder>()?;
    module.add_class::<loading::PyTokenizerJson>()?;
    module.add_class::<stream::PyStreamEncoder>()?;
    module.add_class::<training::PyPretokenCounter>()?;
    module.add_class::<training::PyPretokenCounts>()?;
    module.add_function(wrap_pyfunction!(training::read_counts_header, module)?)?;
    Ok(())
}
