//! Texts, single ids and options from Python, ids to Python.

use crate::signals::{SpecialTokenError, to_python};
use bytemill::encode::{Allowed, Encoder};
use bytemill::prefetch::prefetch_at;
use bytemill::stream::StreamAllowed;
use bytemill::utf8::Malformed;
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyList, PyString};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

/// The text of a `str`. Halves of a surrogate pair are joined and lone ones become U+FFFD, as in tiktoken.
pub fn text<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    if let Ok(text) = text.to_str() {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(repaired(text)?.to_str()?.to_owned()))
}

fn repaired<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    let repaired = text
        .call_method1("encode", ("utf-16-le", "surrogatepass"))?
        .call_method1("decode", ("utf-16-le", "replace"))?;
    Ok(repaired.cast_into()?)
}

/// An iterator over what should be texts. A `str`, whose items are texts too, is a mistake.
pub fn several<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    if texts.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "an iterable of str is needed, such as a list or an open file; for one str use encode",
        ));
    }
    texts.try_iter()
}

/// An item as a `str`; the error names its place.
pub fn string<'py>(item: Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyString>> {
    item.cast_into::<PyString>().map_err(|error| {
        let item = error.into_inner();
        match item.get_type().name() {
            Ok(kind) => {
                PyTypeError::new_err(format!("an iterable of str is needed, and item {index} is of type {kind}"))
            }
            Err(error) => error,
        }
    })
}

/// Items of a list to ask for ahead of time.
const AHEAD: usize = 16;

/// All items of an iterable of `str`, repaired as by [`text`]: they have text.
///
/// The other threads wait meanwhile. Each item lies elsewhere in memory, and asking for those of a list ahead of time makes 10,000 of
/// them 1.4 ms in place of 2.0.
pub fn strings<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let items = several(texts)?;
    let list = texts.cast_exact::<PyList>().ok();
    let mut strings = Vec::with_capacity(texts.len().unwrap_or(0));
    for (index, item) in items.enumerate() {
        if let Some(list) = list
            && index + AHEAD < list.len()
            && let Ok(ahead) = isize::try_from(index + AHEAD)
        {
            // SAFETY: the thread is attached, it is a list, and has so many items. What the call gives is taken for an address only.
            prefetch_at(unsafe { ffi::PyList_GetItem(list.as_ptr(), ahead) });
        }
        let string = string(item?, index)?;
        strings.push(if string.to_str().is_ok() { string } else { repaired(&string)? });
    }
    Ok(strings)
}

/// The texts of what [`strings`] gives.
pub fn texts<'a>(strings: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    let mut texts = Vec::with_capacity(strings.len());
    for string in strings {
        texts.push(string.to_str()?);
    }
    Ok(texts)
}

/// All paths of an iterable of `str` or `os.PathLike`.
pub fn paths(paths: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let py = paths.py();
    if paths.is_instance_of::<PyString>() || paths.hasattr(intern!(py, "__fspath__"))? {
        return Err(PyTypeError::new_err("an iterable of paths is needed; for one file give a list of one path"));
    }
    let mut all = Vec::with_capacity(paths.len().unwrap_or(0));
    for (index, path) in paths.try_iter()?.enumerate() {
        let path = path?;
        if !path.is_instance_of::<PyString>() && !path.hasattr(intern!(py, "__fspath__"))? {
            let kind = path.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "an iterable of str or os.PathLike is needed, and item {index} is of type {kind}"
            )));
        }
        all.push(path.extract()?);
    }
    Ok(all)
}

/// More threads than any machine has; a larger number is a mistake.
const MOST_THREADS: usize = 4096;

/// Makes numpy ready for arrays. Its first use runs Python code, in which a pending Ctrl-C would become a panic.
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

/// The number of threads to use: all that the machine runs at once where the caller does not say.
pub fn threads(num_threads: Option<i64>) -> PyResult<usize> {
    match num_threads {
        Some(n) => match usize::try_from(n) {
            Ok(n @ 1..=MOST_THREADS) => Ok(n),
            _ => Err(PyValueError::new_err(format!("num_threads must be 1 to {MOST_THREADS}, not {n}"))),
        },
        None => Ok(bytemill::parallel::available_threads()),
    }
}

/// Bytes of text for which one more thread is worth its start.
const BYTES_PER_THREAD: usize = 1 << 16;

/// As [`threads`], but no more than a text of `n_bytes` can use. Asking the machine takes longer than a short text.
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

/// Runs `work` with the special tokens that the caller allows. The default, the string `"all"`, costs nothing.
pub fn with_allowed<R>(
    encoder: &Encoder,
    option: &Bound<'_, PyAny>,
    work: impl FnOnce(Allowed<'_>) -> PyResult<R>,
) -> PyResult<R> {
    work(allowed(encoder, option)?.as_allowed())
}

/// The name of an error handler of Python's decoders.
pub fn handler(errors: &Bound<'_, PyString>) -> PyResult<CString> {
    Ok(CString::new(errors.to_str()?)?)
}

/// One id; KeyError for a number that no id can be.
pub fn one_id(id: &Bound<'_, PyAny>) -> PyResult<u32> {
    if let Ok(id) = id.extract::<u32>() {
        return Ok(id);
    }
    // An integer of any size, or something that stands for one; anything else is a TypeError.
    match id.py().import("operator")?.call_method1("index", (id,)) {
        Ok(index) => Err(PyKeyError::new_err(index.unbind())),
        Err(_) => Err(PyTypeError::new_err(format!("ids must be integers, not {}", id.get_type().name()?))),
    }
}
