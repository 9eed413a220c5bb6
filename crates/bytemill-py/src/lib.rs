//! Python bindings of the core: conversions, the GIL, errors, progress and Ctrl-C. No logic.
//!
//! - `signals`: errors and cancellation; `convert`, `special`, `lists`, `buffers`: arguments and results
//! - `loading`, `encoder`, `decoding`, `spans`, `batch`, `stream`, `pack`: one tokenizer
//! - `documents`, `counting`, `training`: blocks of a corpus, counting pre-tokens, learning merges
//! - `dedup`: near and exact duplicates among documents
//! - `measure`: what token boundaries cut
//! - `lm_decode`: the next token of a language model

mod batch;
mod buffers;
mod convert;
mod counting;
mod decoding;
mod dedup;
mod documents;
mod encoder;
mod lists;
mod lm_decode;
mod loading;
mod measure;
mod pack;
mod signals;
mod spans;
mod special;
mod stream;
mod training;

use bytemill::pretokenize::{Matcher, NAMED, Pattern};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString};
use std::collections::HashMap;

/// Byte offsets (start, end) of the pre-tokens of `text`. They cover it without gaps.
#[pyfunction]
fn pretoken_spans<'py>(text: &Bound<'py, PyString>, pattern: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let py = text.py();
    convert::arrays_ready(py)?;
    let text = convert::text(text)?;
    let pattern = Pattern::new(pattern).map_err(signals::to_python)?;
    let (mut starts, mut ends) = (Vec::<u64>::new(), Vec::<u64>::new());
    let mut end = 0;
    let mut has_room = true;
    pattern
        .for_each(&text, |pretoken| {
            has_room &= starts.try_reserve(1).is_ok() && ends.try_reserve(1).is_ok();
            if has_room {
                starts.push(end);
                end += pretoken.len() as u64;
                ends.push(end);
            }
        })
        .map_err(signals::to_python)?;
    if !has_room {
        return Err(signals::to_python(bytemill::Error::memory::<u64>(4 * ends.len())));
    }
    // Python makes the objects, since PyO3 panics if there is no memory for one.
    let lists = [starts, ends].map(|offsets| PyArray1::from_vec(py, offsets).call_method0("tolist"));
    let [starts, ends] = lists;
    let builtins = py.import("builtins")?;
    builtins.call_method1("list", (builtins.call_method1("zip", (starts?, ends?))?,))
}

/// The name of the hand-written splitter for `pattern`, or None.
#[pyfunction]
fn named_pattern(pattern: &str) -> Option<&'static str> {
    Pattern::name_for(pattern)
}

/// Raise ValueError if `pattern` is neither a known name nor an expression that compiles.
#[pyfunction]
fn check_pattern(pattern: Option<&str>) -> PyResult<()> {
    Pattern::new(pattern).map(drop).map_err(signals::to_python)
}

/// What matches `pattern`, a name, an expression or None.
#[pyfunction]
fn matcher(pattern: Option<&str>) -> PyResult<&'static str> {
    let matcher = Pattern::new(pattern).map_err(signals::to_python)?.matcher();
    Ok(match matcher {
        Matcher::Masks => "masks",
        Matcher::Automaton => "automaton",
        Matcher::Backtracking => "backtracking",
    })
}

/// Indices of the merges that some text needs: for each token, the one merge that is ever applied.
#[pyfunction]
fn needed_merges(py: Python<'_>, merges: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>) -> PyResult<Vec<usize>> {
    let merges: Vec<_> = merges.iter().map(|(left, right)| (left.as_bytes(), right.as_bytes())).collect();
    py.detach(|| bytemill::formats::needed_merges(&merges)).map_err(signals::to_python)
}

/// Texts, scores and types of the pieces of a SentencePiece model, and its other fields; None if it is damaged or unusual.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple of lists")]
fn read_pieces<'py>(
    py: Python<'py>,
    data: &[u8],
) -> PyResult<Option<(Bound<'py, PyList>, Vec<f32>, Vec<u32>, Bound<'py, PyBytes>)>> {
    let Some(pieces) = py.detach(|| bytemill::formats::read_pieces(data)) else { return Ok(None) };
    let texts = PyList::new(py, pieces.texts)?;
    Ok(Some((texts, pieces.scores, pieces.kinds, PyBytes::new(py, &pieces.rest))))
}

/// Every way to split every piece into two, best scores first, and the ranks of these merges if some are equal.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a list of pairs")]
fn piece_merges<'py>(
    py: Python<'py>,
    vocab: &Bound<'py, PyMapping>,
    scores: HashMap<u32, f64>,
) -> PyResult<(Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>, Option<Vec<u32>>)> {
    let tokens = encoder::token_list(vocab)?;
    let (merges, ranks) = bytemill::formats::piece_merges(encoder::pieces(&tokens, &scores));
    let merge = |(left, right)| (PyBytes::new(py, left), PyBytes::new(py, right));
    Ok((merges.into_iter().map(merge).collect(), ranks))
}

/// The instruction sets that this processor has and the core uses, the fastest first.
#[pyfunction]
fn instruction_sets() -> Vec<&'static str> {
    bytemill::pretokenize::instruction_sets().collect()
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("UNICODE_VERSION", bytemill::text::unicode::UNICODE_VERSION)?;
    let named = PyDict::new(module.py());
    for pattern in &NAMED {
        named.set_item(pattern.name, pattern.expression)?;
    }
    module.add("NAMED_PATTERNS", named)?;
    module.add("N_COUNT_PARTITIONS", bytemill::train::count::N_PARTITIONS)?;
    module.add_function(wrap_pyfunction!(counting::safe_cut, module)?)?;
    module.add_function(wrap_pyfunction!(instruction_sets, module)?)?;
    module.add_function(wrap_pyfunction!(pretoken_spans, module)?)?;
    module.add_function(wrap_pyfunction!(named_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(check_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(matcher, module)?)?;
    module.add_function(wrap_pyfunction!(needed_merges, module)?)?;
    module.add_function(wrap_pyfunction!(piece_merges, module)?)?;
    module.add_function(wrap_pyfunction!(read_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(documents::clean_text, module)?)?;
    module.add_function(wrap_pyfunction!(documents::check_documents, module)?)?;
    module.add_function(wrap_pyfunction!(documents::select_documents, module)?)?;
    module.add_function(wrap_pyfunction!(dedup::sketch_texts, module)?)?;
    module.add_function(wrap_pyfunction!(dedup::sketch_ids, module)?)?;
    module.add_function(wrap_pyfunction!(dedup::find_clusters, module)?)?;
    module.add_function(wrap_pyfunction!(dedup::text_units, module)?)?;
    module.add_class::<lm_decode::PyTokenDecoder>()?;
    module.add_class::<documents::PyBlockDocuments>()?;
    module.add_class::<documents::PyTextSplitter>()?;
    module.add_class::<documents::PyJsonLines>()?;
    module.add_class::<encoder::PyEncoder>()?;
    module.add_class::<loading::PyRankFile>()?;
    module.add_class::<pack::PyDocumentEncoder>()?;
    module.add_function(wrap_pyfunction!(pack::document_side, module)?)?;
    module.add_class::<loading::PyCharacterJson>()?;
    module.add_class::<loading::PyStringArray>()?;
    module.add_class::<loading::PyTokenizerJson>()?;
    module.add_class::<measure::PyTextMarks>()?;
    module.add_class::<measure::PyTokenBytes>()?;
    module.add_class::<measure::PyTokenBoundaries>()?;
    module.add_class::<stream::PyStreamEncoder>()?;
    module.add_class::<counting::PyPretokenCounter>()?;
    module.add_class::<training::PyPretokenCounts>()?;
    module.add_function(wrap_pyfunction!(training::read_counts_header, module)?)?;
    Ok(())
}
