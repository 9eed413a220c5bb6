//! Packed documents: a batch of consecutive texts, and how documents are split into two sides.

use crate::error::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

/// A batch of documents, one after another.
#[derive(Clone, Debug)]
pub struct Batch<'t> {
    text: &'t str,
    ends: Vec<usize>,
    is_open: bool,
}

impl<'t> Batch<'t> {
    /// Documents that end at `ends` in `text`. With `is_open`, the last one continues in the next batch.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ends do not ascend to the end of the text, or one is inside a character.
    pub fn new(text: &'t str, ends: Vec<usize>, is_open: bool) -> Result<Self> {
        let mut start = 0;
        for &end in &ends {
            if end < start || !text.is_char_boundary(end) {
                return Err(Error::Invalid(format!(
                    "a document ends at byte {end}, before its start or inside a character"
                )));
            }
            start = end;
        }
        if start != text.len() || (is_open && ends.is_empty()) {
            return Err(Error::Invalid(format!("the last document ends at byte {start} of {}", text.len())));
        }
        Ok(Self { text, ends, is_open })
    }

    /// [`Batch::new`] for bytes.
    ///
    /// # Errors
    /// [`Error::Utf8`] if they are not UTF-8, else as [`Batch::new`].
    pub fn from_utf8(data: &'t [u8], ends: Vec<usize>, is_open: bool) -> Result<Self> {
        let text = simdutf8::compat::from_utf8(data).map_err(|error| {
            let start = error.valid_up_to();
            let end = error.error_len().map_or(data.len(), |n_malformed| start + n_malformed);
            Error::Utf8 { start, end, bytes: data[start..end].to_vec() }
        })?;
        Self::new(text, ends, is_open)
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn n_documents(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn document(&self, index: usize) -> &'t str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    /// True for a document that continues in the next batch.
    pub(super) fn is_open(&self, index: usize) -> bool {
        self.is_open && index + 1 == self.ends.len()
    }
}

/// Splits documents into two sides by their text, so equal documents are on the same side.
///
/// The hash of a document is the XXH3 (64 bits) of its first MiB.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Seed of the hash.
    pub seed: u64,
    /// Documents whose hash is below this are on side 1, the others on side 0.
    pub below: u64,
}

impl Split {
    /// The side of a whole document.
    #[must_use]
    pub fn side(&self, text: &str) -> usize {
        self.side_of("", text, super::plan::SIZES.hashed)
    }

    /// The side of a document that starts with `before` and then `text`, of which the first `n_hashed` bytes count.
    pub(super) fn side_of(&self, before: &str, text: &str, n_hashed: usize) -> usize {
        let before = &before.as_bytes()[..before.len().min(n_hashed)];
        let text = &text.as_bytes()[..text.len().min(n_hashed - before.len())];
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(before);
        hash.update(text);
        usize::from(hash.digest() < self.below)
    }
}
