//! Ctrl-C, progress and errors on the way between Rust and Python.

use bytemill::Error;
use pyo3::exceptions::{PyKeyError, PyKeyboardInterrupt, PyOSError, PyUnicodeDecodeError};
use pyo3::import_exception;
use pyo3::prelude::*;
use std::sync::Mutex;
use std::time::{Duration, Instant};

import_exception!(bytemill.errors, SpecialTokenError);
import_exception!(bytemill.errors, TokenizerError);

/// How often Python is asked whether to go on, at most: asking takes the GIL.
const INTERVAL: Duration = Duration::from_millis(50);

/// The Python exception for an error of the core.
pub fn to_python(error: Error) -> PyErr {
    match error {
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Pattern(_) | Error::Invalid(_) => TokenizerError::new_err(error.to_string()),
        Error::SpecialToken { .. } => SpecialTokenError::new_err(error.to_string()),
        // The exception wants the bytes that it talks about; only the malformed ones are known, so the offsets of
        // the whole follow once it is made.
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
        Error::UnknownId(id) => PyKeyError::new_err(id),
        Error::Io(error) => PyErr::from(error),
        Error::Output { path, error } => Python::attach(|py| match output_error(py, path, error) {
            Ok(error) => error,
            Err(error) => error,
        }),
        Error::InFile { path, error } => Python::attach(|py| match in_file(py, path, *error) {
            Ok(error) => error,
            Err(error) => error,
        }),
    }
}

/// The exception for an error in a file that was read; it names the file.
fn in_file(py: Python<'_>, path: std::path::PathBuf, error: Error) -> PyResult<PyErr> {
    Ok(match error {
        Error::Io(error) => match error.raw_os_error() {
            // Python chooses the class by the number.
            Some(number) => {
                let reason: String = py.import("os")?.call_method1("strerror", (number,))?.extract()?;
                PyOSError::new_err((number, reason, path.into_os_string()))
            }
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

/// The exception that says what to do where a file cannot be written.
fn output_error(py: Python<'_>, path: std::path::PathBuf, error: std::io::Error) -> PyResult<PyErr> {
    // An exception made of the error as it is would know its number as part of a text alone.
    let raised = match error.raw_os_error() {
        Some(number) => {
            let reason: String = py.import("os")?.call_method1("strerror", (number,))?.extract()?;
            PyOSError::new_err((number, reason))
        }
        None => PyErr::from(error),
    };
    let converted = py.import("bytemill.atomic")?.call_method1("output_error", (raised, path))?;
    Ok(PyErr::from_value(converted))
}

/// Lets Python in now and then while Rust works without the GIL.
pub struct Pulse<'p> {
    last: Mutex<Instant>,
    raised: Mutex<Option<PyErr>>,
    progress: Option<&'p Py<PyAny>>,
}

impl<'p> Pulse<'p> {
    /// A pulse that calls `progress` too, where there is one.
    pub fn new(progress: Option<&'p Py<PyAny>>) -> Self {
        Self { last: Mutex::new(Instant::now()), raised: Mutex::new(None), progress }
    }

    /// Checks for signals, and reports `done`, if it is time again.
    pub fn beat(&self, done: u64) -> bytemill::Result<()> {
        let Ok(mut last) = self.last.try_lock() else { return Ok(()) };
        if last.elapsed() < INTERVAL {
            return Ok(());
        }
        let asked = Python::attach(|py| {
            py.check_signals()?;
            match self.progress {
                Some(progress) => progress.call1(py, (done,)).map(drop),
                None => Ok(()),
            }
        });
        *last = Instant::now();
        drop(last);
        asked.map_err(|raised| self.stop(raised))
    }

    /// The error that ends the work because Python raised; [`Pulse::raise`] gives `raised` back.
    pub fn stop(&self, raised: PyErr) -> Error {
        if let Ok(mut kept) = self.raised.lock() {
            *kept = Some(raised);
        }
        Error::Interrupted
    }

    /// The exception for an error: the one that Python raised during a beat if that was the reason.
    pub fn raise(&self, error: Error) -> PyErr {
        let raised = self.raised.lock().ok().and_then(|mut raised| raised.take());
        match (error, raised) {
            (Error::Interrupted, Some(raised)) => raised,
            (error, _) => to_python(error),
        }
    }
}
