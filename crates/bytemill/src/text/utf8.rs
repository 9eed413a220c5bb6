//! UTF-8 that arrives in chunks, cut anywhere.

use crate::error::{Error, Result};

/// What to do with bytes that are not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Fail with the offset of the sequence.
    Refuse,
    /// Replace each maximal malformed sequence by U+FFFD, like `bytes.decode(errors="replace")` in Python.
    Replace,
    /// Drop it, like `bytes.decode(errors="ignore")`.
    Skip,
}

/// Appends `text` to `out`.
///
/// # Errors
/// [`Error::Memory`]; `out` is then unchanged.
pub fn append(text: &str, out: &mut String) -> Result<()> {
    out.try_reserve(text.len()).map_err(|_| Error::memory::<u8>(out.len() + text.len()))?;
    out.push_str(text);
    Ok(())
}

/// Validates the chunks of a byte stream and appends them to a string.
#[derive(Debug)]
pub struct Utf8Stream {
    malformed: Malformed,
    /// Start of a character that the last chunk cut off: at most 3 bytes.
    unfinished: Vec<u8>,
    /// Bytes of the stream processed so far, without `unfinished`.
    n_done: usize,
    n_replaced: u64,
    n_skipped_bytes: u64,
}

impl Utf8Stream {
    /// A new stream.
    pub fn new(malformed: Malformed) -> Self {
        Self { malformed, unfinished: Vec::new(), n_done: 0, n_replaced: 0, n_skipped_bytes: 0 }
    }

    /// Number of malformed sequences replaced so far.
    pub fn n_replaced(&self) -> u64 {
        self.n_replaced
    }

    /// Number of malformed bytes dropped so far.
    pub fn n_skipped_bytes(&self) -> u64 {
        self.n_skipped_bytes
    }

    /// True if the stream has ended inside a character so far.
    pub fn is_inside_character(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Append the characters that `bytes` completes to `out`.
    ///
    /// # Errors
    /// [`Error::Utf8`] with [`Malformed::Refuse`]; its offsets count from the start of the stream. [`Error::Memory`].
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) -> Result<()> {
        while !self.unfinished.is_empty() {
            let Some((&first, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            let mut sequence = std::mem::take(&mut self.unfinished);
            sequence.push(first);
            self.check(&sequence, out)?;
        }
        self.check(bytes, out)
    }

    /// End the stream.
    ///
    /// # Errors
    /// [`Error::Utf8`] with [`Malformed::Refuse`] if it ends inside a character.
    pub fn finish(&mut self, out: &mut String) -> Result<()> {
        let sequence = std::mem::take(&mut self.unfinished);
        if !sequence.is_empty() {
            self.malformed_sequence(&sequence, out)?;
        }
        Ok(())
    }

    /// Append `bytes` and keep a character cut off at their end. `unfinished` must be empty.
    fn check(&mut self, mut bytes: &[u8], out: &mut String) -> Result<()> {
        loop {
            let error = match simdutf8::compat::from_utf8(bytes) {
                Ok(text) => {
                    append(text, out)?;
                    self.n_done += bytes.len();
                    return Ok(());
                }
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            append(std::str::from_utf8(valid).unwrap_or_default(), out)?;
            self.n_done += valid.len();
            let Some(n_malformed) = error.error_len() else {
                self.unfinished = rest.to_vec();
                return Ok(());
            };
            let (malformed, rest) = rest.split_at(n_malformed);
            self.malformed_sequence(malformed, out)?;
            bytes = rest;
        }
    }

    fn malformed_sequence(&mut self, sequence: &[u8], out: &mut String) -> Result<()> {
        match self.malformed {
            Malformed::Refuse => {
                let (start, end) = (self.n_done, self.n_done + sequence.len());
                return Err(Error::Utf8 { start, end, bytes: sequence.to_vec() });
            }
            Malformed::Replace => {
                append("\u{FFFD}", out)?;
                self.n_replaced += 1;
            }
            Malformed::Skip => self.n_skipped_bytes += sequence.len() as u64,
        }
        self.n_done += sequence.len();
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/utf8.rs"]
mod tests;
