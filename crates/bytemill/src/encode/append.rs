//! The ids of a text that grows at its end, from the last ids of what stood there before.
//!
//! What was encoded up to a safe cut (see [`Cutter`]) stays as it is; the text from there on is encoded again. A cut must be one both of
//! the old text and of the longer one. It is then a token boundary of the old ids, since they are those of the two parts.

use super::cutter::{Cutter, OUTSIDE_BYTES};
use super::encoder::{Allowed, Encoder};
use crate::error::{Error, Result};
use crate::special::Found;
use crate::sys::interrupt::Interrupt;

/// The ids of a text that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Length in bytes of what further text cannot change.
    pub end: usize,
    /// The ids of that.
    pub ids: Vec<u32>,
    /// The ids of the rest.
    pub rest: Vec<u32>,
}

/// What becomes of ids if text is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// How many of the old ids stay.
    pub n_kept: usize,
    /// The ids behind them.
    pub ids: Vec<u32>,
}

impl Encoder {
    /// The ids of a text followed by `text`. `ids` are the last ids of the text, the first of which may stand anywhere in it.
    ///
    /// `None` if more of the ids are needed to tell. `ids` must be those that [`Encoder::encode`] gives for the text that they spell.
    ///
    /// # Errors
    /// [`Error::UnknownId`]; [`Error::Invalid`] if the ids are seen to be others than those of their text; as [`Encoder::encode`].
    pub fn append(&self, ids: &[u32], text: &str, allowed: Allowed, interrupt: Interrupt) -> Result<Option<Appended>> {
        let (mut bytes, mut starts) = (Vec::new(), Vec::with_capacity(ids.len()));
        for &id in ids {
            starts.push(bytes.len());
            self.vocab().decode([id], &mut bytes)?;
        }
        // The first id may begin inside a character, whose other bytes are at most three.
        let skipped = bytes.iter().take(3).take_while(|&&byte| byte & 0xC0 == 0x80).count();
        let old = str::from_utf8(&bytes[skipped..]).map_err(|_| not_its_own("are not UTF-8"))?;
        let whole = [old, text].concat();
        let Some(cut) = self.append_cut(&whole, old.len(), allowed) else { return Ok(None) };
        let first = starts
            .binary_search(&(cut + skipped))
            .map_err(|_| not_its_own("are not those that the tokenizer gives for their text"))?;
        let mut again = Vec::new();
        // A chunk of a text that did not begin here.
        self.session(|session| session.encode(&whole[cut..], cut.max(1), allowed, &mut again, interrupt))?;
        let n_same = again.iter().zip(&ids[first..]).take_while(|(new, old)| new == old).count();
        again.drain(..n_same);
        Ok(Some(Appended { n_kept: first + n_same, ids: again }))
    }

    /// The ids of `text`, which starts where a text starts or at a cut, divided where further text changes nothing before.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_beginning(
        &self,
        text: &str,
        is_start: bool,
        allowed: Allowed,
        interrupt: Interrupt,
    ) -> Result<Beginning> {
        let cutter = Cutter { pattern: self.pattern(), special: self.kept_whole(allowed) };
        let end = cutter.cut_stream(text).unwrap_or(0);
        let (mut ids, mut rest) = (Vec::new(), Vec::new());
        let offset = usize::from(!is_start);
        self.session(|session| {
            session.encode(&text[..end], offset, allowed, &mut ids, interrupt)?;
            session.encode(&text[end..], offset + end, allowed, &mut rest, interrupt)
        })?;
        Ok(Beginning { end, ids, rest })
    }

    /// The last cut in the first `n_old` bytes of `whole`, which begins anywhere in a text, that holds for these bytes and for all.
    fn append_cut(&self, whole: &str, n_old: usize, allowed: Allowed) -> Option<usize> {
        let special = self.kept_whole(allowed);
        let (cutter, old) = (Cutter { pattern: self.pattern(), special }, &whole[..n_old]);
        let margin = special.lookahead() + OUTSIDE_BYTES;
        let is_whole = |at| !special.any_crosses(whole, at) && !special.any_crosses(old, at);
        let last = n_old.checked_sub(1)?;
        cutter.pattern.last_cut(whole, margin, last, is_whole).or_else(|| {
            // Behind a special token that further text can no longer lengthen.
            let known = n_old.checked_sub(special.lookahead())?;
            // Whatever stood before these bytes, a search comes to its start if no other token crosses that.
            let is_certain = |found: &Found| {
                margin < found.start
                    && found.start < known
                    && found.end < n_old
                    && !special.any_crosses(old, found.start)
                    && special.may_cut_behind(old, found, known)
            };
            special.find(old).filter(is_certain).last().map(|found| found.end)
        })
    }
}

fn not_its_own(problem: &str) -> Error {
    Error::Invalid(format!("the ids {problem}"))
}

#[cfg(test)]
#[path = "tests/append.rs"]
mod tests;
