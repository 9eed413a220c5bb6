//! Ids that more text may change, and what they may become: tiktoken's `encode_with_unstable`.
//!
//! When text is appended, the ids of the last pre-token may change. A *completion* is a shortest list of ids in their place
//! whose bytes begin with those of the *unstable* ids. One token may extend beyond the end of the text. It is tried at every
//! offset at which it may start: each token that begins with the rest of the unstable bytes is put there, everything is
//! encoded again, and the result is cut off after the end of the text.
//!
//! Only the last offsets, as many as the longest token has bytes, have tokens to try, so the number of lists does not grow with
//! the text. But each list starts at the first unstable byte, so there is a limit on their total length.

use super::encoder::{Allowed, Encoder};
use super::workspace::{Workspace, check_every};
use crate::error::{Error, Result};
use crate::special::Segment;
use crate::sys::interrupt::Interrupt;
use std::collections::HashSet;

/// Most bytes encoded in search of completions: some seconds. The last pre-token of a text in any language takes at most some
/// megabytes; 2,000 blanks take 100 MB with cl100k.
const MAX_BYTES: usize = if cfg!(test) { 1 << 20 } else { 1 << 29 };

/// Most ids of all completions together.
const MAX_IDS: usize = 1 << 26;

/// The ids of a text that more text cannot change, and completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstable {
    /// The ids that stay the same.
    pub stable: Vec<u32>,
    /// What may follow them, sorted, without duplicates.
    pub completions: Vec<Vec<u32>>,
}

impl Encoder {
    /// The ids of `text` without those of its last pre-token, and what the latter may become when text is appended.
    ///
    /// White space at the end counts as one pre-token: more of it, or a letter, may divide it differently. After a special
    /// token nothing is unstable.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; [`Error::Invalid`] if the last pre-token is too long for all its completions.
    pub fn encode_with_unstable(&self, text: &str, allowed: Allowed, interrupt: Interrupt) -> Result<Unstable> {
        let mut stable: Vec<u32> = Vec::new();
        self.encode(text, allowed, &mut stable, interrupt)?;
        let n_stable = stable.len() - self.n_unstable(&stable, text, allowed, interrupt)?;
        let unstable: Vec<u8> =
            stable.drain(n_stable..).flat_map(|id| self.vocab().token(id).unwrap_or_default()).copied().collect();
        let completions = self.with_workspace(|workspace| self.completions(workspace, &unstable, interrupt))?;
        Ok(Unstable { stable, completions })
    }

    /// Appends the ids of bytes that may end inside a character, as tiktoken's `_encode_bytes` does: from the first malformed
    /// sequence on, everything is merged as one pre-token, together with what the valid text before it ends with.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_cut_off(&self, bytes: &[u8], interrupt: Interrupt) -> Result<Vec<u32>> {
        let n_valid = bytes.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
        let text = std::str::from_utf8(&bytes[..n_valid]).unwrap_or_default();
        let mut ids = Vec::new();
        self.encode(text, Allowed::None, &mut ids, interrupt)?;
        if n_valid == bytes.len() {
            return Ok(ids);
        }
        let n_stable = ids.len() - self.n_unstable(&ids, text, Allowed::None, interrupt)?;
        let mut rest: Vec<u8> = Vec::new();
        for id in ids.drain(n_stable..) {
            rest.extend_from_slice(self.vocab().token(id).unwrap_or_default());
        }
        rest.extend_from_slice(&bytes[n_valid..]);
        self.encode_pretoken(&rest, &mut Vec::new(), &mut ids, interrupt)?;
        Ok(ids)
    }

    /// Number of `ids` of `text`, from the end, that more text may change.
    fn n_unstable(&self, ids: &[u32], text: &str, allowed: Allowed, interrupt: Interrupt) -> Result<usize> {
        let mut tail = None;
        self.recognized(allowed).segments(text, true, interrupt, |segment| {
            tail = if let Segment::Text(text) = segment { Some(text.to_owned()) } else { None };
            Ok(())
        })?;
        let mut last = None;
        if let Some(tail) = &tail {
            self.pattern().for_each(tail, |pretoken| last = Some(pretoken))?;
        }
        let Some(last) = last else { return Ok(0) };
        let mut of_last: Vec<u32> = Vec::new();
        self.encode_pretoken(last, &mut Vec::new(), &mut of_last, interrupt)?;
        let mut n_unstable = of_last.len();
        if of_last.first().is_some_and(|&id| self.is_blank(id)) {
            n_unstable += ids[..ids.len() - n_unstable].iter().rev().take_while(|&&id| self.is_blank(id)).count();
        }
        Ok(n_unstable)
    }

    /// Whether an id is an ordinary token of blanks, tabs and line feeds only.
    fn is_blank(&self, id: u32) -> bool {
        let token = self.vocab().token(id).unwrap_or_default();
        token.iter().all(|byte| b" \n\t".contains(byte)) && self.vocab().id(token) == Some(id)
    }

    fn completions(&self, workspace: &mut Workspace, unstable: &[u8], interrupt: Interrupt) -> Result<Vec<Vec<u32>>> {
        if unstable.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = self.sorted_tokens();
        let offsets = unstable.len().saturating_sub(tokens.longest()).max(1)..unstable.len();
        let n_bytes = offsets.clone().fold(0_usize, |n_bytes, offset| {
            let n_tokens = tokens.beginning_with(self.vocab(), &unstable[offset..]).len();
            n_bytes.saturating_add(n_tokens.saturating_mul(offset + tokens.longest()))
        });
        if n_bytes > MAX_BYTES {
            return too_long(unstable);
        }
        let mut found = Completions::default();
        for &id in tokens.beginning_with(self.vocab(), unstable) {
            found.add(&[id]);
        }
        let (mut possible, mut ids) = (Vec::new(), Vec::new());
        for offset in offsets {
            let (before, rest) = unstable.split_at(offset);
            for &id in tokens.beginning_with(self.vocab(), rest) {
                possible.clear();
                possible.extend_from_slice(before);
                possible.extend_from_slice(self.vocab().token(id).unwrap_or_default());
                ids.clear();
                if let Ok(text) = std::str::from_utf8(&possible) {
                    self.encode_segment(workspace, text, &mut ids, interrupt)?;
                } else {
                    // Not text, so no pattern applies: merge it as one pre-token.
                    self.merge_pretoken(&possible, &mut workspace.symbols, &mut ids, interrupt)?;
                    check_every(&mut workspace.since_check, possible.len(), interrupt)?;
                }
                let mut n_bytes = 0;
                let enough = ids.iter().position(|&id| {
                    n_bytes += self.vocab().token(id).map_or(0, <[u8]>::len);
                    n_bytes >= unstable.len()
                });
                ids.truncate(enough.map_or(ids.len(), |last| last + 1));
                found.add(&ids);
                if found.n_ids > MAX_IDS {
                    return too_long(unstable);
                }
            }
        }
        // `\s+(?!\S)` gives the last blank back if text follows.
        let last = unstable.utf8_chunks().last().filter(|chunk| chunk.invalid().is_empty());
        if let Some(last) = last.and_then(|chunk| chunk.valid().chars().next_back())
            && last.is_whitespace()
            && last.len_utf8() < unstable.len()
        {
            ids.clear();
            let (before, blank) = unstable.split_at(unstable.len() - last.len_utf8());
            self.merge_pretoken(before, &mut workspace.symbols, &mut ids, interrupt)?;
            self.merge_pretoken(blank, &mut workspace.symbols, &mut ids, interrupt)?;
            found.add(&ids);
        }
        Ok(found.sorted())
    }
}

fn too_long<T>(unstable: &[u8]) -> Result<T> {
    let n_bytes = unstable.len();
    Err(Error::Invalid(format!(
        "the text ends with {n_bytes} bytes in one pre-token, too many for all its completions"
    )))
}

/// Lists of ids without duplicates.
#[derive(Default)]
struct Completions {
    lists: HashSet<Vec<u32>>,
    n_ids: usize,
}

impl Completions {
    fn add(&mut self, ids: &[u32]) {
        if !self.lists.contains(ids) {
            self.lists.insert(ids.to_vec());
            self.n_ids += ids.len();
        }
    }

    fn sorted(self) -> Vec<Vec<u32>> {
        let mut lists: Vec<_> = self.lists.into_iter().collect();
        lists.sort_unstable();
        lists
    }
}

#[cfg(test)]
#[path = "tests/unstable.rs"]
mod tests;
