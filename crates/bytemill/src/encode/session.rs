//! Encoding one text after another with one workspace.

use super::cutter::Cutter;
use super::encoder::{Allowed, Encoder};
use super::id::{Id, check_width};
use super::workspace::{Workspace, check_every};
use super::workspace_pool;
use crate::error::Result;
use crate::special::Segment;
use crate::sys::interrupt::Interrupt;
use crate::vocab::NO_ID;

/// Encodes one text after another. It holds a workspace, which is cheaper than taking one from the pool for each short text.
pub struct Session<'s> {
    encoder: &'s Encoder,
    workspace: &'s mut Workspace,
}

impl Session<'_> {
    /// As [`Encoder::encode`], for a text or the chunk of one that begins at byte `offset`.
    ///
    /// # Errors
    /// The same; offsets are those in the whole text.
    pub fn encode<T: Id>(
        &mut self,
        text: &str,
        offset: usize,
        allowed: Allowed,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let Self { encoder, workspace } = self;
        check_width::<T>(encoder.vocab().n_ids())?;
        if encoder.special().normalizer().is_identity() || text.len() <= 2 * NORMALIZED_BYTES {
            return encode_with_special(encoder, workspace, text, offset, allowed, out, interrupt);
        }
        // Parts of a text that stay in the processor's cache are normalized and encoded one after the other.
        let cutter = Cutter { pattern: encoder.pattern(), special: encoder.kept_whole(allowed) };
        let mut start = 0;
        for end in cutter.cut_whole(text, NORMALIZED_BYTES) {
            encode_with_special(encoder, workspace, &text[start..end], offset + start, allowed, out, interrupt)?;
            start = end;
        }
        Ok(())
    }
}

/// Bytes that are normalized at a time.
pub(super) const NORMALIZED_BYTES: usize = 1 << 17;

/// Appends the ids of the chunk of a text that begins at byte `offset`.
fn encode_with_special<T: Id>(
    encoder: &Encoder,
    workspace: &mut Workspace,
    text: &str,
    offset: usize,
    allowed: Allowed,
    out: &mut Vec<T>,
    interrupt: Interrupt,
) -> Result<()> {
    if matches!(allowed, Allowed::Refused) {
        encoder.refuse_special(text).map_err(|error| error.offset_by(offset))?;
    }
    let special = encoder.recognized(allowed);
    let result = if special.changes_nothing() {
        encoder.encode_segment(workspace, text, out, interrupt)
    } else {
        special.segments(text, offset == 0, interrupt, |segment| match segment {
            Segment::Text(text) => encoder.encode_segment(workspace, text, out, interrupt),
            Segment::Special(id) => {
                out.push(T::narrow(id));
                check_every(&mut workspace.since_check, 1, interrupt)
            }
        })
    };
    if result.is_err() {
        // Another text may follow.
        workspace.discard_pending();
    }
    result.map_err(|error| error.offset_by(offset))
}

impl Encoder {
    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// [`Error::SpecialToken`] with [`Allowed::Refused`]; [`Error::Pattern`] if a custom pattern fails; [`Error::Invalid`] if
    /// an id does not fit `T` or a pre-token has 4 GiB or more; [`Error::Memory`]; the error of `interrupt`. The content of
    /// `out` is unspecified then.
    pub fn encode<T: Id>(&self, text: &str, allowed: Allowed, out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        self.session(|session| session.encode(text, 0, allowed, out, interrupt))
    }

    /// Appends the ids of bytes that may not be UTF-8, without special tokens. A malformed sequence is a pre-token, without
    /// the bytes that are no tokens.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_bytes<T: Id>(&self, bytes: &[u8], out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        check_width::<T>(self.vocab().n_ids())?;
        self.with_workspace(|workspace| {
            bytes.utf8_chunks().try_for_each(|chunk| {
                self.encode_segment(workspace, chunk.valid(), out, interrupt)?;
                let is_token = |&byte: &u8| self.vocab().symbol_ids()[usize::from(byte)] != NO_ID;
                let known: Vec<u8> = chunk.invalid().iter().copied().filter(is_token).collect();
                self.encode_pretoken(&known, &mut workspace.symbols, out, interrupt)?;
                check_every(&mut workspace.since_check, 1, interrupt)
            })
        })
    }

    /// Calls `work` with a session.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses memory for a workspace; the error of `work`.
    pub fn session<R>(&self, work: impl FnOnce(&mut Session) -> Result<R>) -> Result<R> {
        self.with_workspace(|workspace| work(&mut Session { encoder: self, workspace }))
    }

    /// Calls `work` with a workspace, which is lost if `work` panics.
    pub(super) fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> Result<R>) -> Result<R> {
        let mut workspace = workspace_pool::take(self.owner)?;
        let result = work(&mut workspace);
        workspace_pool::put_back(self.owner, workspace);
        result
    }
}
