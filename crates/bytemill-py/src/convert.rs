//! Texts, ids and options from Python, ids to Python.

use crate::lists::ids_of_list;
use crate::signals::{SpecialTokenError, to_python};
use bytemill::decode::SharedId;
use bytemill::encode::{Allowed, Encoder};
use bytemill::stream::StreamAllowed;
use bytemill::utf8::Malformed;
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;

/// The text of a `str`. Halves of a surrogate pair are joined and lone ones become U+FFFD, as in tiktoken.
pub fn text<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    if let Ok(text) = text.to_str() {
        return Ok(Cow::Borrowed(text));
    }
    let repaired = text
        .call_method1("encode", ("utf-16-le", "surrogatepass"))?
        .call_method1("decode", ("utf-16-le", "replace"))?
        .cast_into::<PyString>()?;
    Ok(Cow::Owned(repaired.to_str()?.to_owned()))
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

/// All items of an iterable of `str`.
pub fn strings<'py>(texts: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let items = several(texts)?;
    let mut strings = Vec::with_capacity(texts.len().unwrap_or(0));
    for (index, item) in items.enumerate() {
        strings.push(string(item?, index)?);
    }
    Ok(strings)
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

/// `bytes.decode("utf-8", errors)`.
pub fn decoded<'py>(py: Python<'py>, bytes: &[u8], errors: &CStr) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: the thread is attached; the bytes and the name outlive the call, which gives a new reference to a str or
    // null with an exception set. A slice has no more than isize::MAX bytes.
    unsafe {
        let text = ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t, errors.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, text)?.cast_into_unchecked())
    }
}

/// New bytes, all of which `fill` fills, unless it fails.
pub fn filled_bytes<'py>(
    py: Python<'py>,
    n_bytes: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    let n_asked = ffi::Py_ssize_t::try_from(n_bytes).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: the thread is attached; without bytes to copy, the call gives a new reference to as many that are not written yet, or
    // null with an exception set.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), n_asked))? };
    // SAFETY: they are `n_bytes` from there on, and nobody else knows of them as long as `fill` runs. Only the empty ones are shared,
    // of which there is nothing to write to.
    let room = unsafe { std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast(), n_bytes) };
    fill(room)?;
    // SAFETY: they are bytes, as said.
    Ok(unsafe { bytes.cast_into_unchecked() })
}

/// Ids in a vector of their own, or in the array that they came in.
pub enum SomeIds<'py> {
    Own(Vec<u32>),
    Wide(PyReadonlyArray1<'py, u32>),
    Narrow(PyReadonlyArray1<'py, u16>),
}

/// Ids from a list, an array of integers, or any iterable of integers.
///
/// Those of `uint32` and `uint16` stay where they are: to copy many takes as long as to decode them.
pub fn ids<'py>(ids: &Bound<'py, PyAny>) -> PyResult<SomeIds<'py>> {
    if let Ok(list) = ids.cast::<PyList>() {
        return Ok(SomeIds::Own(ids_of_list(list)?));
    }
    if ids.hasattr("__array_interface__")? {
        arrays_ready(ids.py())?;
        if let Some(ids) = array(ids) {
            return ids;
        }
        // An array may have gaps or lie at an odd address.
        let tidy = ids.py().import("numpy")?.call_method1("require", (ids, ids.py().None(), ("C", "A")))?;
        if let Some(ids) = array(&tidy) {
            return ids;
        }
    }
    if ids.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("ids must be integers, not a str"));
    }
    Ok(SomeIds::Own(ids.try_iter()?.map(|id| one_id(&id?)).collect::<PyResult<_>>()?))
}

/// The numbers of an array in a row as what may change at any time: other threads may write to it while this one has not the GIL.
///
/// `A` is the atomic of `T`.
pub fn shared<'a, T: numpy::Element, A: SharedId>(array: &'a PyReadonlyArray1<'_, T>) -> &'a [A] {
    const { assert!(size_of::<A>() == size_of::<T>() && align_of::<A>() == align_of::<T>()) };
    let Ok(n) = array.as_slice().map(<[T]>::len) else { return &[] };
    // SAFETY: as_slice has made sure of so many numbers in a row from there on, well aligned, and the array stays as long as it is
    // borrowed; numpy does not resize an array that others refer to. An atomic number of as many bytes is any of its bits.
    unsafe { std::slice::from_raw_parts(array.data().cast(), n) }
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

/// The ids of an array of integers in a row, None for any other array.
fn array<'py>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>> {
    let dtype = ids.cast::<PyUntypedArray>().ok()?.dtype();
    match (dtype.kind(), dtype.itemsize()) {
        (b'u', 2) => Some(Ok(SomeIds::Narrow(in_a_row(ids)?))),
        (b'u', 4) => Some(Ok(SomeIds::Wide(in_a_row(ids)?))),
        (b'u', 8) => array_ids::<u64>(ids),
        (b'i', 2) => array_ids::<i16>(ids),
        (b'i', 4) => array_ids::<i32>(ids),
        (b'i', 8) => array_ids::<i64>(ids),
        _ => None,
    }
}

fn in_a_row<'py, T: numpy::Element>(ids: &Bound<'py, PyAny>) -> Option<PyReadonlyArray1<'py, T>> {
    let array: PyReadonlyArray1<'py, T> = ids.extract().ok()?;
    array.as_slice().is_ok().then_some(array)
}

fn array_ids<'py, T>(ids: &Bound<'py, PyAny>) -> Option<PyResult<SomeIds<'py>>>
where
    T: numpy::Element + Copy + TryInto<u32> + Into<i128>,
{
    let array = in_a_row::<T>(ids)?;
    let ids = array.as_slice().ok()?;
    // In two passes, neither with a way out, so that several ids are converted at once.
    if ids.iter().fold(true, |all, &id| all & TryInto::<u32>::try_into(id).is_ok()) {
        return Some(Ok(SomeIds::Own(ids.iter().map(|&id| id.try_into().unwrap_or(u32::MAX)).collect())));
    }
    let wrong = ids.iter().find(|&&id| TryInto::<u32>::try_into(id).is_err());
    Some(Err(PyKeyError::new_err(wrong.map(|&id| Into::<i128>::into(id)))))
}
