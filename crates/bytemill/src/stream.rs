//! Encoding a text that arrives in pieces, in memory that does not grow with it.

use crate::cutter::Cutter;
use crate::encode::{Allowed, Encoder, Id, Pulse};
use crate::error::{Error, Result};
use crate::special::SpecialTokens;
use std::sync::Arc;

/// Text that is collected before ids are given.
const COLLECT_BYTES: usize = 1 << 14;

/// Which special tokens a stream recognises.
#[derive(Clone, Debug)]
pub enum StreamAllowed {
    /// All.
    All,
    /// None: they are plain text.
    None,
    /// None, and it is an error if one stands in the text.
    Refused,
    /// These.
    These(Arc<SpecialTokens>),
}

impl StreamAllowed {
    /// The same, borrowed.
    #[must_use]
    pub fn as_allowed(&self) -> Allowed<'_> {
        match self {
            Self::All => Allowed::All,
            Self::None => Allowed::None,
            Self::Refused => Allowed::Refused,
            Self::These(special) => Allowed::These(special),
        }
    }
}

/// A text under way: what has arrived and is not yet ids.
pub struct Stream {
    encoder: Arc<Encoder>,
    allowed: StreamAllowed,
    n_threads: usize,
    text: String,
    /// Bytes of this text that are ids already.
    n_done: usize,
    /// No attempt to cut below this many bytes: doubled when one fails, so that a text without cuts that arrives in
    /// small pieces is not searched again for each of them.
    enough: usize,
}

impl Stream {
    /// A stream at its beginning.
    #[must_use]
    pub fn new(encoder: Arc<Encoder>, allowed: StreamAllowed, n_threads: usize) -> Self {
        let text = String::with_capacity(2 * COLLECT_BYTES);
        Self { encoder, allowed, n_threads, text, n_done: 0, enough: COLLECT_BYTES }
    }

    /// Where arriving text is appended; [`Stream::encode_ready`] is to be called next.
    pub fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// True where enough text has arrived to give ids.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.text.len() >= self.enough
    }

    /// Appends the ids that no further text can change.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_ready<T: Id>(&mut self, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        if !self.is_ready() {
            return Ok(());
        }
        let special = match &self.allowed {
            // A special token that is refused must be seen whole too.
            StreamAllowed::All | StreamAllowed::Refused => self.encoder.special(),
            StreamAllowed::These(special) => special,
            StreamAllowed::None => self.encoder.none(),
        };
        match (Cutter { pattern: self.encoder.pattern(), special }).cut_stream(&self.text) {
            Some(cut) => {
                self.encode_part(cut, out, pulse)?;
                self.text.drain(..cut);
                self.n_done += cut;
                self.enough = COLLECT_BYTES.max(2 * self.text.len());
            }
            None => self.enough = 2 * self.text.len(),
        }
        Ok(())
    }

    /// Appends the remaining ids; the stream is at the beginning of another text afterwards.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; the stream is at the beginning then too.
    pub fn finish<T: Id>(&mut self, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        let encoded = self.encode_part(self.text.len(), out, pulse);
        self.reset();
        encoded
    }

    /// Forgets what has arrived: the stream is at the beginning of another text.
    pub fn reset(&mut self) {
        self.text.clear();
        self.n_done = 0;
        self.enough = COLLECT_BYTES;
    }

    fn encode_part<T: Id>(&self, end: usize, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        let (text, allowed) = (&self.text[..end], self.allowed.as_allowed());
        let encoded = if self.n_threads <= 1 {
            self.encoder.encode(text, allowed, out, pulse)
        } else {
            self.encoder.encode_parallel(text, allowed, self.n_threads, pulse).map(|ids| out.extend_from_slice(&ids))
        };
        encoded.map_err(|error| match error {
            Error::SpecialToken { token, offset } => Error::SpecialToken { token, offset: offset + self.n_done },
            other => other,
        })
    }
}
