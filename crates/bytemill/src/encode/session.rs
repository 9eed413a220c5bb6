//! Encoding one text after the other.

use super::workspace::Workspace;
use super::{Allowed, Encoder, Id, tick};
use crate::error::Result;
use crate::pulse::Pulse;
use crate::special::Segment;

/// Encodes one text after the other.
///
/// What is needed for that it keeps in between. Threads that each encode short texts would else ask for it, and wait for each other,
/// so often that it makes a hundredth of their time.
pub struct Session<'s> {
    encoder: &'s Encoder,
    workspace: &'s mut Workspace,
}

impl Session<'_> {
    /// As [`Encoder::encode`].
    ///
    /// # Errors
    /// The same.
    pub fn encode<T: Id>(&mut self, text: &str, allowed: Allowed, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        let Self { encoder, workspace } = self;
        let special = match allowed {
            Allowed::All => encoder.special(),
            Allowed::These(special) => special,
            Allowed::None => encoder.none(),
            Allowed::Refused => {
                encoder.refuse_special(text)?;
                encoder.none()
            }
        };
        workspace.pages.begin();
        let result = if special.leaves_texts() {
            encoder.encode_segment(workspace, text, out, pulse)
        } else {
            special.segments(text, pulse, |segment| match segment {
                Segment::Text(text) => encoder.encode_segment(workspace, text, out, pulse),
                Segment::Special(id) => {
                    out.push(T::narrow(id));
                    tick(&mut workspace.since_pulse, 1, pulse)
                }
            })
        };
        if result.is_err() {
            // Another text may follow.
            workspace.forget();
        }
        result
    }
}

impl Encoder {
    /// Has `work` encode one text after the other. About `n_expected` bytes of text are to come on this thread, with those of sessions
    /// that follow: what it remembers grows at once to the size that they need.
    pub fn session<R>(&self, n_expected: usize, work: impl FnOnce(&mut Session) -> R) -> R {
        self.with_workspace(n_expected, |workspace| work(&mut Session { encoder: self, workspace }))
    }

    /// Has `work` done with what a thread needs to encode, for so much text as in [`Encoder::session`]. It is lost where `work` panics.
    pub(super) fn with_workspace<R>(&self, n_expected: usize, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let mut workspace = self.workspaces.take();
        workspace.cache.prepare_for(n_expected);
        let result = work(&mut workspace);
        self.workspaces.put_back(workspace);
        result
    }
}
