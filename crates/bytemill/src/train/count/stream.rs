//! Sequential files of pre-tokens and counts with checksums.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::path::{Path, PathBuf};

/// Bytes per write.
const WRITE_BYTES: usize = 1 << 18;

/// A file being written. It is removed on drop unless it was finished.
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

    /// Writes a number as LEB128.
    pub fn number(&mut self, mut number: u64) -> Result<()> {
        let mut bytes = [0; 10];
        let mut n = 0;
        loop {
            let seven_bits = (number & 0x7F) as u8;
            number >>= 7;
            bytes[n] = if number > 0 { seven_bits | 0x80 } else { seven_bits };
            n += 1;
            if number == 0 {
                return self.bytes(&bytes[..n]);
            }
        }
    }

    /// Writes the length of a pre-token and the pre-token.
    pub fn pretoken(&mut self, pretoken: &[u8]) -> Result<()> {
        self.number(pretoken.len() as u64)?;
        self.bytes(pretoken)
    }

    /// Writes the count of a group and its number of pre-tokens.
    pub fn group(&mut self, count: u64, n_pretokens: u64) -> Result<()> {
        self.number(count)?;
        self.number(n_pretokens)
    }

    fn flush(&mut self) -> Result<()> {
        self.checksum.update(&self.buffer);
        self.n_flushed += self.buffer.len() as u64;
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| Error::Output { path: self.path.clone(), error })
    }

    /// The checksum of everything since the last call, and the size of the file so far.
    pub fn checksum(&mut self) -> Result<(u32, u64)> {
        self.flush()?;
        Ok((std::mem::take(&mut self.checksum).finalize(), self.n_flushed))
    }

    /// Flushes the file, to disk if `durable`, and returns its size.
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

/// A reader that computes the checksum of its data.
struct Checksummed<R> {
    inner: R,
    checksum: crc32fast::Hasher,
}

impl<R: Read> Read for Checksummed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.checksum.update(&buffer[..n]);
        Ok(n)
    }
}

/// A range of a file being read.
pub struct Input {
    reader: BufReader<Checksummed<Take<File>>>,
    path: PathBuf,
}

impl Input {
    pub fn open(path: &Path, start: u64, n_bytes: u64, buffer_bytes: usize) -> Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let inner = Checksummed { inner: file.take(n_bytes), checksum: crc32fast::Hasher::new() };
        Ok(Self { reader: BufReader::with_capacity(buffer_bytes, inner), path: path.to_owned() })
    }

    /// Bytes of the range that were not read yet.
    pub fn n_left(&self) -> u64 {
        self.reader.buffer().len() as u64 + self.reader.get_ref().inner.limit()
    }

    /// Reads a LEB128 number.
    #[inline]
    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.reader.fill_buf()?.first() else { return Err(self.damaged()) };
            self.reader.consume(1);
            let seven_bits = u64::from(byte & 0x7F);
            if seven_bits << shift >> shift != seven_bits {
                return Err(self.damaged());
            }
            number |= seven_bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged())
    }

    /// Replaces `out` by the next `n_bytes` bytes.
    #[inline]
    pub fn bytes(&mut self, n_bytes: u64, out: &mut Vec<u8>) -> Result<()> {
        if n_bytes > self.n_left() {
            return Err(self.damaged());
        }
        out.resize(usize::try_from(n_bytes).map_err(|_| self.damaged())?, 0);
        match self.reader.read_exact(out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(self.damaged()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a pre-token after its length.
    #[inline]
    pub fn pretoken(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let n_bytes = self.number()?;
        self.bytes(n_bytes, out)
    }

    /// Checks that the range was read to its end and has the expected checksum.
    pub fn check(&mut self, checksum: u32) -> Result<()> {
        if self.n_left() > 0 || self.reader.get_ref().checksum.clone().finalize() != checksum {
            return Err(self.damaged());
        }
        Ok(())
    }

    pub fn damaged(&self) -> Error {
        damaged(&self.path)
    }
}

/// The error for a file with unexpected contents.
pub fn damaged(path: &Path) -> Error {
    Error::Invalid(format!("{} is damaged: its contents have changed since it was written", path.display()))
}
