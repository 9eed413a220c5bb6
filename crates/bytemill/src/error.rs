//! What can go wrong, told apart by what the caller can do about it.

use std::fmt;

/// The errors of this crate.
#[derive(Debug)]
pub enum Error {
    /// The caller asked to stop (Ctrl-C).
    Interrupted,
    /// A pattern that does not compile, or that ran out of its backtracking allowance.
    Pattern(String),
    /// Vocabulary, merges, special tokens or options contradict each other.
    Invalid(String),
    /// Bytes that are not UTF-8, from `start` on; `end` is after the malformed sequence.
    Utf8 {
        /// Offset in bytes of the first malformed byte.
        start: usize,
        /// Offset in bytes after the malformed sequence.
        end: usize,
        /// The malformed bytes.
        bytes: Vec<u8>,
    },
    /// An id that no token has.
    UnknownId(i64),
    /// A special token in a text where none is allowed, and its byte offset.
    SpecialToken {
        /// The special token found.
        token: String,
        /// Where it starts in the text, in bytes.
        offset: usize,
    },
    /// The operating system refused to read.
    Io(std::io::Error),
    /// The operating system refused to write.
    Output {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What is wrong with a file that was to be read.
    InFile {
        /// The file.
        path: std::path::PathBuf,
        /// What; places count in the file.
        error: Box<Error>,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Pattern(message) | Self::Invalid(message) => f.write_str(message),
            Self::Utf8 { start, .. } => write!(f, "not UTF-8 at byte {start}"),
            Self::UnknownId(id) => write!(f, "no token has the id {id}"),
            Self::SpecialToken { token, offset } => write!(f, "special token {token:?} at byte {offset}"),
            Self::Io(error) => error.fmt(f),
            Self::Output { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Self::InFile { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
