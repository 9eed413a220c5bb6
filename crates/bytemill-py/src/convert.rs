//! Arguments from Python: texts, paths, single ids and options.

use crate::buffers::reserved;
use crate::signals::{SpecialTokenError, UnknownTokenError, to_python};
use bytemill::Error;
use bytemill::encode::stream::StreamAllowed;
use bytemill::encode::{Allowed, Encoder};
use bytemill::text::utf8::Malformed;
use numpy::PyArray1;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyString};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

/// Evaluates an expression with `$Id` as the type of the ids: `u16` if an encoder is narrow, else `u32`.
macro_rules! with_id_type {
    ($is_narrow:expr, $Id:ident => $result:expr) => {
        if $is_narrow {
            type $Id = u16;
            $result
        } else {
            type $Id = u32;
            $result
        }
    };
}
pub(crate) use with_id_type;

/// The text of a `str`. Surrogate pairs are joined and lone surrogates become U+FFFD, as in tiktoken.
pub fn text<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    if let Ok(text) = text.to_str() {
        return Ok(Cow::Borrowed(text));
    }
    let repaired = repaired(text)?;
    let repaired = repaired.to_str()?;
    let mut owned = String::new();
    owned.try_reserve_exact(repaired.len()).map_err(|_| to_python(Error::memory::<u8>(repaired.len())))?;
    owned.push_str(repaired);
    Ok(Cow::Owned(owned))
}

fn repaired<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    let repaired = text
        .call_method1("encode", ("utf-16-le", "surrogatepass"))?
        .call_method1("decode", ("utf-16-le", "replace"))?;
    Ok(repaired.cast_into()?)
}

/// An iterator over texts. Refuses a `str`, which is itself an iterable of `str`.
pub fn several<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    if texts.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "expected an iterable of str, such as a list or an open file; for one str use encode",
        ));
    }
    texts.try_iter()
}

/// An item of an iterable as a `str`. The error names its index.
pub fn string<'py>(item: Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyString>> {
    item.cast_into::<PyString>()
        .map_err(|error| wrong_item("str", index, &error.into_inner()).unwrap_or_else(|error| error))
}

fn wrong_item(expected: &str, index: usize, item: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let kind = item.get_type().name()?;
    Ok(PyTypeError::new_err(format!("expected an iterable of {expected}, but item {index} is of type {kind}")))
}

/// All items of an iterable of `str`, repaired like [`text`], so that [`texts`] does not fail.
pub fn strings<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let mut strings = reserved(texts.len().unwrap_or(0))?;
    for (index, item) in several(texts)?.enumerate() {
        let string = string(item?, index)?;
        strings.push(if string.to_str().is_ok() { string } else { repaired(&string)? });
    }
    Ok(strings)
}

/// The texts of `strings`.
pub fn texts<'a>(strings: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    strings.iter().map(|string| string.to_str()).collect()
}

/// All paths of an iterable of `str` or `os.PathLike`.
pub fn paths(paths: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let py = paths.py();
    if paths.is_instance_of::<PyString>() || paths.hasattr(intern!(py, "__fspath__"))? {
        return Err(PyTypeError::new_err("expected an iterable of paths; for one file pass a list of one path"));
    }
    let mut all = reserved(paths.len().unwrap_or(0))?;
    for (index, path) in paths.try_iter()?.enumerate() {
        let path = path?;
        if !path.is_instance_of::<PyString>() && !path.hasattr(intern!(py, "__fspath__"))? {
            return Err(wrong_item("str or os.PathLike", index, &path)?);
        }
        all.push(path.extract()?);
    }
    Ok(all)
}

/// Upper bound that catches mistakes.
const MOST_THREADS: usize = 4096;

/// Initialize numpy. Its first use runs Python code, where a pending Ctrl-C would become a panic.
pub fn arrays_ready(py: Python<'_>) -> PyResult<()> {
    static READY: PyOnceLock<()> = PyOnceLock::new();
    READY.get_or_try_init(py, || -> PyResult<()> {
        py.import("numpy")?;
        py.check_signals()?;
        drop(PyArray1::<u16>::from_vec(py, Vec::new()));
        Ok(())
    })?;
    Ok(())
}

/// The number of threads to use. Defaults to all available cores.
pub fn threads(num_threads: Option<i64>) -> PyResult<usize> {
    match num_threads {
        Some(n) => match usize::try_from(n) {
            Ok(n @ 1..=MOST_THREADS) => Ok(n),
            _ => Err(PyValueError::new_err(format!("num_threads must be 1 to {MOST_THREADS}, not {n}"))),
        },
        None => Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
    }
}

/// Bytes of text that make up for the start of one more thread.
const BYTES_PER_THREAD: usize = 1 << 16;

/// Like [`threads`], but no more than `n_bytes` of text can use. Querying the cores takes longer than a short text.
pub fn threads_for(num_threads: Option<i64>, n_bytes: usize) -> PyResult<usize> {
    let useful = 1 + n_bytes / BYTES_PER_THREAD;
    match num_threads {
        None if useful == 1 => Ok(1),
        _ => Ok(threads(num_threads)?.min(useful)),
    }
}

/// `errors="strict"` or `"replace"`.
pub fn malformed(errors: &str) -> PyResult<Malformed> {
    match errors {
        "strict" => Ok(Malformed::Refuse),
        "replace" => Ok(Malformed::Replace),
        _ => Err(PyValueError::new_err(format!("errors must be 'strict' or 'replace', not {errors:?}"))),
    }
}

/// `"all"`, `"none"`, `"none_raise"` or a collection of special tokens.
pub fn allowed(encoder: &Encoder, allowed: &Bound<'_, PyAny>) -> PyResult<StreamAllowed> {
    if let Ok(mode) = allowed.cast::<PyString>() {
        return match mode.to_str()? {
            "all" => Ok(StreamAllowed::All),
            "none" => Ok(StreamAllowed::None),
            "none_raise" => Ok(StreamAllowed::Refused),
            other => Err(PyValueError::new_err(format!(
                "allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens, not {other:?}"
            ))),
        };
    }
    let mut chosen: HashSet<String> = HashSet::new();
    for token in allowed.try_iter()? {
        let token: String = token?.extract()?;
        if !encoder.special().tokens().iter().any(|(known, _)| *known == token) {
            return Err(SpecialTokenError::new_err(format!("{token:?} is not a special token of this tokenizer")));
        }
        chosen.insert(token);
    }
    let these = encoder.special().subset(|token| chosen.contains(token)).map_err(to_python)?;
    Ok(StreamAllowed::These(Arc::new(these)))
}

/// Run `work` with the allowed special tokens. The default, `"all"`, costs nothing.
pub fn with_allowed<R>(
    encoder: &Encoder,
    option: &Bound<'_, PyAny>,
    work: impl FnOnce(Allowed<'_>) -> PyResult<R>,
) -> PyResult<R> {
    work(allowed(encoder, option)?.as_allowed())
}

/// The name of an error handler for Python's decoders.
pub fn handler(errors: &Bound<'_, PyString>) -> PyResult<CString> {
    Ok(CString::new(errors.to_str()?)?)
}

/// One id. Raises `UnknownTokenError` for an integer out of range.
pub fn one_id(id: &Bound<'_, PyAny>) -> PyResult<u32> {
    if let Ok(id) = id.extract::<u32>() {
        return Ok(id);
    }
    // An integer of any size or an object with `__index__` is an unknown id; anything else is a TypeError.
    match id.py().import("operator")?.call_method1("index", (id,)) {
        Ok(index) => Err(UnknownTokenError::new_err(index.unbind())),
        Err(_) => Err(PyTypeError::new_err(format!("ids must be integers, not {}", id.get_type().name()?))),
    }
}
