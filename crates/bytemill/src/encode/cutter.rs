//! Cutting a text into chunks whose ids, taken together, are those of the whole text.

use crate::pretokenize::Pattern;
use crate::special::SpecialTokens;

/// How far back from the end a cut is searched first. The last one is usually a word away.
const NEAR_BYTES: usize = 1 << 16;

/// Bytes beyond the longest special token that are looked at on both sides of a cut: the characters beside it, and those that a
/// normalizer could combine with them.
pub(super) const OUTSIDE_BYTES: usize = 64;

/// Finds cuts that split neither special tokens nor pre-tokens.
#[derive(Clone, Copy, Debug)]
pub struct Cutter<'c> {
    /// The pattern.
    pub pattern: &'c Pattern,
    /// The special tokens that are recognized or refused.
    pub special: &'c SpecialTokens,
}

impl Cutter<'_> {
    /// The end of the longest chunk of `text` whose ids do not depend on what follows `text`, as far as one can be found.
    ///
    /// `text` starts where a text starts or an earlier chunk ends. A special token that starts before the cut is complete, since
    /// the cut is at least the length of the longest special token, minus one, before the end of `text`.
    pub fn cut_stream(&self, text: &str) -> Option<usize> {
        let ceiling = text.len().checked_sub(self.special.lookahead())?;
        let allowed = |at| !self.special.any_crosses(text, at);
        let near = self.pattern.last_cut(text, ceiling.saturating_sub(NEAR_BYTES), ceiling, allowed);
        near.or_else(|| {
            // After a special token, unless it may turn out to be the start of a longer one.
            let complete = self.special.find(text).take_while(|found| found.start < ceiling);
            complete.filter(|found| self.special.may_cut_behind(text, found, ceiling)).last().map(|found| found.end)
        })
        .or_else(|| self.pattern.last_cut(text, 0, ceiling, allowed))
    }

    /// A cut in a text of which only a part is known: `window`, from any character on. The last one that what lies outside cannot
    /// change.
    pub fn cut_within(&self, window: &str) -> Option<usize> {
        let margin = self.special.lookahead() + OUTSIDE_BYTES;
        let ceiling = window.len().checked_sub(margin)?;
        self.pattern.last_cut(window, margin, ceiling, |at| !self.special.any_crosses(window, at))
    }

    /// The ends of the chunks of a whole text, which have about `chunk_bytes` each.
    pub fn cut_whole(&self, text: &str, chunk_bytes: usize) -> Vec<usize> {
        let chunk_bytes = chunk_bytes.max(1);
        let mut ends = Vec::new();
        if matches!(self.pattern, Pattern::Whole | Pattern::Custom(_) | Pattern::Steps(_)) {
            let mut done = 0;
            for found in self.special.find(text) {
                if found.end.saturating_sub(done) >= chunk_bytes
                    && found.end < text.len()
                    && self.special.may_cut_behind(text, &found, text.len())
                {
                    ends.push(found.end);
                    done = found.end;
                }
            }
        } else {
            // No search looks at text that an earlier one has searched.
            let (mut wanted, mut searched) = (chunk_bytes, 0);
            while wanted < text.len() {
                let floor = searched.max(wanted.saturating_sub(NEAR_BYTES));
                let cut = self.pattern.last_cut(text, floor, wanted, |at| !self.special.any_crosses(text, at));
                ends.extend(cut);
                searched = wanted;
                wanted += chunk_bytes;
            }
        }
        ends.push(text.len());
        ends
    }
}
