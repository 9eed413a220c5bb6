//! Ctrl-C, progress and errors between Rust and Python.

use bytemill::Error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyUnicodeDecodeError};
use pyo3::import_exception;
use pyo3::prelude::*;
use std::sync::Mutex;
use std::time::{Duration, Instant};

import_exception!(bytemill.errors, SpecialTokenError);
import_exception!(bytemill.errors, TokenizerError);
import_exception!(bytemill.errors, UnknownTokenError);

/// Shortest time between two cancellation checks, which take the GIL.
const INTERVAL: Duration = Duration::from_millis(50);

/// The Python exception for an error of the core.
pub fn to_python(error: Error) -> PyErr {
    match error {
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Pattern(_) | Error::Invalid(_) => TokenizerError::new_err(error.to_string()),
        Error::SpecialToken { .. } => SpecialTokenError::new_err(error.to_string()),
        // The constructor checks the offsets against the bytes, of which only the malformed ones are known. So the offsets
        // in the whole stream are set afterwards.
        Error::Utf8 { start, end, bytes } => Python::attach(|py| {
            let n_bytes = bytes.len();
            let exception =
                PyUnicodeDecodeError::new_err(("utf-8", bytes, 0_usize, n_bytes, "malformed or cut-off sequence"));
            let value = exception.value(py);
            match value.setattr("start", start).and_then(|()| value.setattr("end", end)) {
                Ok(()) => exception,
                Err(failure) => failure,
            }
        }),
        Error::UnknownId(id) => UnknownTokenError::new_err(id),
        Error::Memory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::Io(error) => PyErr::from(error),
        Error::Output { path, error } => {
            Python::attach(|py| output_error(py, path, error).unwrap_or_else(|failure| failure))
        }
        Error::InFile { path, error } => {
            Python::attach(|py| in_file(py, path, *error).unwrap_or_else(|failure| failure))
        }
    }
}

/// The exception for an error while reading a file. It names the file.
fn in_file(py: Python<'_>, path: std::path::PathBuf, error: Error) -> PyResult<PyErr> {
    Ok(match error {
        Error::Io(error) => match error.raw_os_error() {
            // Python selects the class by the number.
            Some(number) => PyOSError::new_err((number, strerror(py, number)?, path.into_os_string())),
            None => PyOSError::new_err(format!("{}: {error}", path.display())),
        },
        Error::Utf8 { .. } => {
            let exception = to_python(error);
            let reason = format!("malformed or cut-off sequence in {}", path.display());
            exception.value(py).setattr("reason", reason)?;
            exception
        }
        Error::SpecialToken { .. } => SpecialTokenError::new_err(format!("{}: {error}", path.display())),
        Error::Pattern(message) | Error::Invalid(message) => {
            TokenizerError::new_err(format!("{}: {message}", path.display()))
        }
        error => to_python(error),
    })
}

/// The exception, with a hint, for an error while writing a file.
fn output_error(py: Python<'_>, path: std::path::PathBuf, error: std::io::Error) -> PyResult<PyErr> {
    // PyO3's conversion would keep the number only as part of the message.
    let raised = match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, strerror(py, number)?)),
        None => PyErr::from(error),
    };
    let converted = py.import("bytemill.system.atomic_files")?.call_method1("output_error", (raised, path))?;
    Ok(PyErr::from_value(converted))
}

fn strerror(py: Python<'_>, number: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (number,))?.extract()
}

/// Checks for signals and reports progress while Rust works without the GIL.
pub struct CancellationCheck<'p> {
    last: Mutex<Instant>,
    raised: Mutex<Option<PyErr>>,
    progress: Option<&'p Py<PyAny>>,
}

impl<'p> CancellationCheck<'p> {
    /// A check that also calls `progress`, if given.
    pub fn new(progress: Option<&'p Py<PyAny>>) -> Self {
        Self { last: Mutex::new(Instant::now()), raised: Mutex::new(None), progress }
    }

    /// Check for signals and report `done`, unless the last check was less than [`INTERVAL`] ago.
    pub fn poll(&self, done: u64) -> bytemill::Result<()> {
        let Ok(mut last) = self.last.try_lock() else { return Ok(()) };
        if last.elapsed() < INTERVAL {
            return Ok(());
        }
        let checked = Python::attach(|py| {
            py.check_signals()?;
            match self.progress {
                Some(progress) => progress.call1(py, (done,)).map(drop),
                None => Ok(()),
            }
        });
        *last = Instant::now();
        drop(last);
        checked.map_err(|raised| self.stop(raised))
    }

    /// The error that ends the work because Python raised. [`CancellationCheck::raise`] returns `raised` later.
    pub fn stop(&self, raised: PyErr) -> Error {
        if let Ok(mut kept) = self.raised.lock() {
            *kept = Some(raised);
        }
        Error::Interrupted
    }

    /// The exception for an error: the one that Python raised during a check, if that ended the work.
    pub fn raise(&self, error: Error) -> PyErr {
        let raised = self.raised.lock().ok().and_then(|mut raised| raised.take());
        match (error, raised) {
            (Error::Interrupted, Some(raised)) => raised,
            (error, _) => to_python(error),
        }
    }
}
