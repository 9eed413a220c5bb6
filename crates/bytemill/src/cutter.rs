//! How much of a text that is still arriving can be worked on already.

use crate::pretokenize::Pattern;
use crate::special::SpecialTokens;

/// How far back from the end a cut inside text is looked for first: where there is one at all, it is a word away.
const NEAR: usize = 1 << 16;

/// Finds cuts that change neither special tokens nor pre-tokens.
#[derive(Clone, Copy, Debug)]
pub struct Cutter<'c> {
    /// The pattern.
    pub pattern: &'c Pattern,
    /// The special tokens that are recognised.
    pub special: &'c SpecialTokens,
}

impl Cutter<'_> {
    /// The end of a part of `text` that is the same whatever follows `text`; `None` where there is none.
    ///
    /// `text` begins where a text or an earlier part ends. A special token that starts before the cut is seen whole:
    /// the cut keeps the bytes of the longest one, less one, behind it.
    #[must_use]
    pub fn cut_stream(&self, text: &str) -> Option<usize> {
        let ceiling = text.len().checked_sub(self.special.lookahead())?;
        let allowed = |at| !self.special.straddle(text, at);
        let near = self.pattern.last_cut(text, ceiling.saturating_sub(NEAR), ceiling, allowed);
        near.or_else(|| {
            // Behind a special token, if no longer one that starts with it may still be arriving.
            let complete = self.special.find(text).take_while(|found| found.start < ceiling);
            complete.filter(|found| self.special.may_cut_behind(text, found, ceiling)).last().map(|found| found.end)
        })
        .or_else(|| self.pattern.last_cut(text, 0, ceiling, allowed))
    }

    /// Cuts a whole text into parts of about `part_bytes`; gives the end of each part.
    #[must_use]
    pub fn cut_whole(&self, text: &str, part_bytes: usize) -> Vec<usize> {
        let part_bytes = part_bytes.max(1);
        let mut ends = Vec::with_capacity(text.len() / part_bytes + 1);
        if matches!(self.pattern, Pattern::Whole | Pattern::Custom(_) | Pattern::Steps(_)) {
            let mut done = 0;
            for found in self.special.find(text) {
                if found.end.saturating_sub(done) >= part_bytes
                    && found.end < text.len()
                    && self.special.may_cut_behind(text, &found, text.len())
                {
                    ends.push(found.end);
                    done = found.end;
                }
            }
        } else {
            // What one search has passed without a cut, the next need not look at again.
            let (mut wanted, mut searched) = (part_bytes, 0);
            while wanted < text.len() {
                let floor = searched.max(wanted.saturating_sub(NEAR));
                let cut = self.pattern.last_cut(text, floor, wanted, |at| !self.special.straddle(text, at));
                ends.extend(cut);
                searched = wanted;
                wanted += part_bytes;
            }
        }
        ends.push(text.len());
        ends
    }
}
