//! Encoding a text that arrives in chunks, in constant memory.

use super::cutter::Cutter;
use super::encoder::{Allowed, Encoder};
use super::id::Id;
use crate::error::{Error, Result};
use crate::special::SpecialTokens;
use crate::sys::interrupt::Interrupt;
use std::sync::Arc;

/// Text that is collected before it is encoded.
const MIN_BYTES: usize = 1 << 14;

/// Which special tokens a stream recognizes: an [`Allowed`] that owns its set.
#[derive(Clone, Debug)]
pub enum StreamAllowed {
    /// [`Allowed::All`].
    All,
    /// [`Allowed::None`].
    None,
    /// [`Allowed::Refused`].
    Refused,
    /// [`Allowed::These`].
    These(Arc<SpecialTokens>),
}

impl StreamAllowed {
    /// The same, borrowed.
    pub fn as_allowed(&self) -> Allowed<'_> {
        match self {
            Self::All => Allowed::All,
            Self::None => Allowed::None,
            Self::Refused => Allowed::Refused,
            Self::These(special) => Allowed::These(special),
        }
    }
}

/// A text that is still arriving.
pub struct Stream {
    encoder: Arc<Encoder>,
    allowed: StreamAllowed,
    n_threads: usize,
    /// Text that is not encoded yet.
    text: String,
    /// Bytes of text that are encoded.
    n_done: usize,
    /// Below this size no cut is searched. It doubles after a failure, so that a text without cuts that arrives in small
    /// chunks is not searched again for each of them.
    min_bytes: usize,
}

impl Stream {
    /// A stream at the start of a text.
    pub fn new(encoder: Arc<Encoder>, allowed: StreamAllowed, n_threads: usize) -> Self {
        let text = String::with_capacity(2 * MIN_BYTES);
        Self { encoder, allowed, n_threads, text, n_done: 0, min_bytes: MIN_BYTES }
    }

    /// The text to append to. Call [`Stream::encode_ready`] afterwards.
    pub fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// Appends the ids that further text cannot change, once enough text has arrived.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_ready<T: Id>(&mut self, out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        if self.text.len() < self.min_bytes {
            return Ok(());
        }
        let special = self.encoder.kept_whole(self.allowed.as_allowed());
        match (Cutter { pattern: self.encoder.pattern(), special }).cut_stream(&self.text) {
            Some(cut) => {
                self.encode_beginning(cut, out, interrupt)?;
                self.text.drain(..cut);
                self.n_done += cut;
                self.min_bytes = MIN_BYTES.max(2 * self.text.len());
            }
            None => self.min_bytes = 2 * self.text.len(),
        }
        Ok(())
    }

    /// Appends the remaining ids. Another text may follow.
    ///
    /// # Errors
    /// As [`Encoder::encode`]. Another text may follow then too.
    pub fn finish<T: Id>(&mut self, out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        let encoded = self.encode_beginning(self.text.len(), out, interrupt);
        self.reset();
        encoded
    }

    /// Discards the text that has arrived. Another text may follow.
    pub fn reset(&mut self) {
        self.text.clear();
        self.n_done = 0;
        self.min_bytes = MIN_BYTES;
    }

    /// Appends the ids of the first `end` bytes.
    fn encode_beginning<T: Id>(&self, end: usize, out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        let (text, allowed) = (&self.text[..end], self.allowed.as_allowed());
        if self.n_threads <= 1 {
            self.encoder.session(|session| session.encode(text, self.n_done, allowed, out, interrupt))
        } else {
            self.encoder.encode_parallel_from(text, self.n_done, allowed, self.n_threads, interrupt).and_then(|ids| {
                out.try_reserve(ids.len()).map_err(|_| Error::memory::<T>(ids.len()))?;
                out.extend_from_slice(&ids);
                Ok(())
            })
        }
    }
}
