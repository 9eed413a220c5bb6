//! The errors of the core, by what the caller can do about them.

use std::fmt;

/// The errors of this crate.
#[derive(Debug)]
pub enum Error {
    /// The caller cancelled the work (Ctrl-C).
    Interrupted,
    /// A pattern that does not compile or exceeds its backtracking limit.
    Pattern(String),
    /// Inconsistent vocabulary, merges, special tokens or options.
    Invalid(String),
    /// Malformed UTF-8.
    Utf8 {
        /// Byte offset of the malformed sequence.
        start: usize,
        /// Byte offset of its end.
        end: usize,
        /// The malformed bytes.
        bytes: Vec<u8>,
    },
    /// An id without a token.
    UnknownId(i64),
    /// Not enough memory for a buffer of `n_bytes`.
    Memory {
        /// Size of the buffer that could not be allocated.
        n_bytes: usize,
    },
    /// A special token in a text where none is allowed.
    SpecialToken {
        /// The special token.
        token: String,
        /// Its byte offset in the text.
        offset: usize,
    },
    /// Reading failed.
    Io(std::io::Error),
    /// Writing a file failed.
    Output {
        /// The file.
        path: std::path::PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// An error while reading a file.
    InFile {
        /// The file.
        path: std::path::PathBuf,
        /// The error, with offsets into the file.
        error: Box<Error>,
    },
}

/// A result with an error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Pattern(message) | Self::Invalid(message) => f.write_str(message),
            Self::Utf8 { start, .. } => write!(f, "not UTF-8 at byte {start}"),
            Self::UnknownId(id) => write!(f, "no token has the id {id}"),
            Self::Memory { n_bytes } => write!(f, "cannot allocate {n_bytes} bytes"),
            Self::SpecialToken { token, offset } => write!(f, "special token {token:?} at byte {offset}"),
            Self::Io(error) => error.fmt(f),
            Self::Output { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Self::InFile { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error {
    /// [`Error::Memory`] for a buffer of `n` values of type `T`.
    pub fn memory<T>(n: usize) -> Self {
        Self::Memory { n_bytes: n.saturating_mul(size_of::<T>()) }
    }

    /// The error of a chunk of a text as an error of the text, in which the chunk starts at `n_bytes`.
    #[must_use]
    pub(crate) fn offset_by(self, n_bytes: usize) -> Self {
        match self {
            Self::SpecialToken { token, offset } => Self::SpecialToken { token, offset: n_bytes + offset },
            error => error,
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// An [`Error::Invalid`] as a result.
pub(crate) fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

/// Bytes as messages show them.
pub(crate) fn show(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}
