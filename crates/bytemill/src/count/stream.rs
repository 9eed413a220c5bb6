//! Files of pre-tokens and counts, written and read from the front on, with checksums.

use super::part::Part;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::path::{Path, PathBuf};

/// Bytes given to the operating system at once.
const WRITE_BYTES: usize = 1 << 18;

/// A file that is being written; it is removed where it is not finished.
pub struct Output {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    checksum: crc32fast::Hasher,
    n_flushed: u64,
    is_finished: bool,
}

impl Output {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::Output { path: path.to_owned(), error })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            buffer: Vec::with_capacity(WRITE_BYTES + 64),
            checksum: crc32fast::Hasher::new(),
            n_flushed: 0,
            is_finished: false,
        })
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    pub fn number(&mut self, mut number: u64) -> Result<()> {
        let mut bytes = [0; 10];
        let mut n = 0;
        loop {
            let seven = (number & 0x7F) as u8;
            number >>= 7;
            bytes[n] = if number > 0 { seven | 0x80 } else { seven };
            n += 1;
            if number == 0 {
                return self.bytes(&bytes[..n]);
            }
        }
    }

    /// A pre-token, its length before it.
    pub fn word(&mut self, word: &[u8]) -> Result<()> {
        self.number(word.len() as u64)?;
        self.bytes(word)
    }

    fn flush(&mut self) -> Result<()> {
        self.checksum.update(&self.buffer);
        self.n_flushed += self.buffer.len() as u64;
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| Error::Output { path: self.path.clone(), error })
    }

    /// The checksum of what was written since the last one, and how much has been written in all.
    pub fn checksum(&mut self) -> Result<(u32, u64)> {
        self.flush()?;
        Ok((std::mem::take(&mut self.checksum).finalize(), self.n_flushed))
    }

    /// Writes the rest, and sees to it that it is on the disk if `durable`.
    pub fn finish(mut self, durable: bool) -> Result<u64> {
        self.flush()?;
        if durable {
            self.file.sync_data().map_err(|error| Error::Output { path: self.path.clone(), error })?;
        }
        self.is_finished = true;
        Ok(self.n_flushed)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Adds up the checksum of what passes through.
struct Checked<R> {
    inner: R,
    checksum: crc32fast::Hasher,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.checksum.update(&buffer[..n]);
        Ok(n)
    }
}

/// A stretch of a file that is being read, whose checksum is known.
pub struct Input {
    reader: BufReader<Checked<Take<File>>>,
    path: PathBuf,
    /// Bytes of the stretch that are still to come.
    left: u64,
}

impl Input {
    pub fn open(path: &Path, start: u64, n_bytes: u64, buffer_bytes: usize) -> Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let checked = Checked { inner: file.take(n_bytes), checksum: crc32fast::Hasher::new() };
        Ok(Self { reader: BufReader::with_capacity(buffer_bytes, checked), path: path.to_owned(), left: n_bytes })
    }

    /// True where all of the stretch is read.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    #[inline]
    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.reader.fill_buf()?.first() else { return Err(self.damaged()) };
            self.reader.consume(1);
            self.left = self.left.saturating_sub(1);
            let seven = u64::from(byte & 0x7F);
            if seven << shift >> shift != seven {
                return Err(self.damaged());
            }
            number |= seven << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged())
    }

    /// As many bytes, into an emptied buffer.
    #[inline]
    pub fn bytes(&mut self, n_bytes: u64, out: &mut Vec<u8>) -> Result<()> {
        if n_bytes > self.left {
            return Err(self.damaged());
        }
        self.left -= n_bytes;
        out.clear();
        let n_bytes = n_bytes as usize;
        let buffer = self.reader.fill_buf()?;
        if let Some(bytes) = buffer.get(..n_bytes) {
            out.extend_from_slice(bytes);
            self.reader.consume(n_bytes);
            return Ok(());
        }
        out.resize(n_bytes, 0);
        match self.reader.read_exact(out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(self.damaged()),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    pub fn word(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let n_bytes = self.number()?;
        self.bytes(n_bytes, out)
    }

    /// Ends where all is read and has the checksum that it should have.
    pub fn check(&mut self, checksum: u32) -> Result<()> {
        if self.left > 0 || self.reader.get_ref().checksum.clone().finalize() != checksum {
            return Err(self.damaged());
        }
        Ok(())
    }

    pub fn damaged(&self) -> Error {
        damaged(&self.path)
    }
}

pub fn damaged(path: &Path) -> Error {
    Error::Invalid(format!("{} is damaged: it does not hold what was written to it", path.display()))
}

/// Writes words in groups: for each count that occurs, falling, the count, how many words have it, and the words. A
/// count of 0 ends them.
pub fn write_groups(part: &Part, out: &mut Output) -> Result<()> {
    let mut words = part.iter();
    for group in &part.groups {
        out.number(group.count)?;
        out.number(group.n_words as u64)?;
        for (word, _) in words.by_ref().take(group.n_words) {
            out.word(word)?;
        }
    }
    out.number(0)
}

/// Reads what [`write_groups`] writes, word by word.
pub struct Groups {
    pub input: Input,
    count: u64,
    n_left: u64,
}

impl Groups {
    pub fn new(input: Input) -> Self {
        Self { input, count: u64::MAX, n_left: 0 }
    }

    /// The next word, into `word`, and its count; 0 at the end.
    #[inline]
    pub fn next(&mut self, word: &mut Vec<u8>) -> Result<u64> {
        if self.n_left == 0 {
            let count = self.input.number()?;
            if count == 0 {
                return Ok(0);
            }
            self.n_left = self.input.number()?;
            if count > self.count || self.n_left == 0 {
                return Err(self.input.damaged());
            }
            self.count = count;
        }
        self.n_left -= 1;
        self.input.word(word)?;
        Ok(self.count)
    }
}
