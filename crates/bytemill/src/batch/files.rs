//! Encoding files.
//!
//! A file is read, validated and encoded chunk by chunk, so memory grows only with the number of ids. Files are read and not
//! mapped: a mapped file that another process truncates ends this process with a signal instead of an error.

use crate::batch::parallel::{append, chunk_bytes, reserve_ids};
use crate::batch::scheduler::pipeline;
use crate::encode::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::text::utf8::{Malformed, Utf8Stream};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Chunks of files are no larger than this: they stay in a processor's second-level cache while they are validated and encoded.
const MAX_CHUNK_BYTES: usize = 1 << 18;

/// Reads a file from start to end, in chunks whose ids do not depend on the rest of the file.
struct Reader<'e> {
    cutter: Cutter<'e>,
    chunk_bytes: usize,
    file: File,
    utf8: Utf8Stream,
    /// Bytes as they are read.
    buffer: Vec<u8>,
    /// Text that has been read and belongs to the next chunk.
    rest: String,
    /// Offset of the next chunk in the file.
    offset: usize,
    /// What comes after the last chunk: the end of the file, or an error.
    end: Option<Result<()>>,
}

impl<'e> Reader<'e> {
    /// Opens a file of about `file_bytes`. It may change while it is read.
    fn open(path: &Path, file_bytes: usize, cutter: Cutter<'e>, chunk_bytes: usize) -> Result<Self> {
        let file = File::open(path)?;
        let buffer_bytes = chunk_bytes.min(file_bytes.saturating_add(1));
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(buffer_bytes).map_err(|_| Error::memory::<u8>(buffer_bytes))?;
        let (utf8, rest) = (Utf8Stream::new(Malformed::Refuse), String::new());
        Ok(Self { cutter, chunk_bytes, file, utf8, buffer, rest, offset: 0, end: None })
    }

    /// Reads the next chunk into `text` and returns its offset in the file, or `None` at the end.
    ///
    /// A chunk is longer than `chunk_bytes` only if there is no place for a cut: in a pre-token without end, or with a pattern
    /// that cannot be cut. The valid text before a malformed sequence is a chunk too, so that the first error in a file is found
    /// first.
    fn next(&mut self, text: &mut String, interrupt: Interrupt) -> Result<Option<usize>> {
        if let Some(end) = self.end.take() {
            self.end = Some(Ok(()));
            return end.map(|()| None);
        }
        text.clear();
        text.push_str(&self.rest);
        self.rest.clear();
        let mut min_bytes = self.chunk_bytes;
        while self.end.is_none() {
            interrupt()?;
            self.end = self.read_more(text).transpose();
            if self.end.is_none() && text.len() >= min_bytes {
                if let Some(cut) = self.cutter.cut_stream(text) {
                    self.rest.push_str(&text[cut..]);
                    text.truncate(cut);
                    break;
                }
                // Do not search a long text without cuts again and again.
                min_bytes = 2 * text.len();
            }
        }
        let offset = self.offset;
        self.offset += text.len();
        Ok(Some(offset))
    }

    /// Appends up to `chunk_bytes` of the file to `text`. `Some` at its end.
    fn read_more(&mut self, text: &mut String) -> Result<Option<()>> {
        self.buffer.clear();
        (&self.file).take(self.chunk_bytes as u64).read_to_end(&mut self.buffer)?;
        // A character that was cut off before may be completed.
        let n_bytes = self.buffer.len() + 4;
        text.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(text.len() + n_bytes))?;
        self.utf8.push(&self.buffer, text)?;
        if self.buffer.len() == self.chunk_bytes {
            return Ok(None);
        }
        self.utf8.finish(text).map(Some)
    }
}

/// What a thread encodes at a time, and the result.
#[derive(Default)]
struct Item<T> {
    /// Index of the file.
    file: usize,
    /// Offset of the chunk `text` in the file; `None` for a whole file that is still to be read.
    offset: Option<usize>,
    text: String,
    ids: Vec<T>,
}

/// The size of a regular file.
///
/// Anything else is an error. Opening a pipe could block forever, and nothing could interrupt it.
fn file_size(path: &Path) -> Result<usize> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        // The system's own error.
        File::open(path)?.read_exact(&mut [0])?;
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not a regular file").into());
    }
    Ok(usize::try_from(metadata.len()).unwrap_or(usize::MAX))
}

/// The error of a file, with its path.
fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Interrupted => error,
        error => Error::InFile { path: path.to_owned(), error: Box::new(error) },
    }
}

impl Encoder {
    /// The ids of each file, encoded by up to `n_threads` threads. The bytes of a file are one text in UTF-8.
    ///
    /// # Errors
    /// [`Error::InFile`] for the first error in the first file with one: [`Error::Io`], [`Error::Utf8`] or as
    /// [`Encoder::encode`], with offsets in the file. Missing files are found before anything is encoded. The error of
    /// `interrupt`.
    pub fn encode_files<T: Id>(
        &self,
        paths: &[PathBuf],
        allowed: Allowed,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Vec<Vec<T>>> {
        self.encode_files_in_chunks(paths, allowed, n_threads, MAX_CHUNK_BYTES, interrupt)
    }

    fn encode_files_in_chunks<T: Id>(
        &self,
        paths: &[PathBuf],
        allowed: Allowed,
        n_threads: usize,
        max_chunk_bytes: usize,
        interrupt: Interrupt,
    ) -> Result<Vec<Vec<T>>> {
        let size = |path: &PathBuf| file_size(path).map_err(|error| in_file(path, error));
        let sizes = paths.iter().map(size).collect::<Result<Vec<usize>>>()?;
        let n_bytes = sizes.iter().fold(0_usize, |sum, &size| sum.saturating_add(size));
        let chunk_bytes = chunk_bytes(n_bytes, n_threads).min(max_chunk_bytes);
        let n_threads = n_threads.min(1 + n_bytes / chunk_bytes);
        // One thread reads and encodes a whole file, unless the others could run out of work meanwhile.
        let max_whole_bytes = if n_threads <= 1 { usize::MAX } else { chunk_bytes.max(n_bytes / n_threads / 8) };

        let cutter = Cutter { pattern: self.pattern(), special: self.kept_whole(allowed) };
        let open = |file: usize| Reader::open(&paths[file], sizes[file], cutter, chunk_bytes);
        let encode = |text: &str, offset, ids: &mut Vec<T>, interrupt: Interrupt| {
            self.session(|session| session.encode(text, offset, allowed, ids, interrupt))
        };
        let mut results: Vec<Vec<T>> = paths.iter().map(|_| Vec::new()).collect();
        let mut files = 0..paths.len();
        let mut open_file: Option<(usize, Reader)> = None;
        pipeline(
            n_threads,
            interrupt,
            |item: &mut Item<T>, interrupt| loop {
                if let Some((file, reader)) = &mut open_file {
                    item.file = *file;
                    item.offset =
                        reader.next(&mut item.text, interrupt).map_err(|error| in_file(&paths[*file], error))?;
                    if item.offset.is_some() {
                        return Ok(true);
                    }
                    open_file = None;
                }
                let Some(file) = files.next() else { return Ok(false) };
                if sizes[file] <= max_whole_bytes {
                    (item.file, item.offset) = (file, None);
                    return Ok(true);
                }
                open_file = Some((file, open(file).map_err(|error| in_file(&paths[file], error))?));
            },
            |item, interrupt| {
                let Item { file, offset, text, ids } = item;
                let encoded = if let Some(offset) = *offset {
                    encode(text, offset, ids, interrupt)
                } else {
                    reserve_ids(ids, sizes[*file]);
                    open(*file).and_then(|mut reader| {
                        while let Some(offset) = reader.next(text, interrupt)? {
                            encode(text, offset, ids, interrupt)?;
                        }
                        ids.shrink_to_fit();
                        Ok(())
                    })
                };
                encoded.map_err(|error| in_file(&paths[*file], error))
            },
            |item| {
                let ids = &mut results[item.file];
                match item.offset {
                    None => *ids = std::mem::take(&mut item.ids),
                    Some(offset) => {
                        if offset == 0 {
                            reserve_ids(ids, sizes[item.file]);
                        }
                        append(ids, &mut item.ids).map_err(|error| in_file(&paths[item.file], error))?;
                    }
                }
                Ok(())
            },
        )?;
        results.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(results)
    }
}

#[cfg(test)]
#[path = "tests/files.rs"]
mod tests;
