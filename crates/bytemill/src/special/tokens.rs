//! A set of special tokens, and how they divide a text.

use super::search::{Found, Rules, Search};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::text::normalize::Normalizer;
use crate::text::normalize::aligned::{AlignedChar, AlignedText, plain, unchanged};
use aho_corasick::Match;
use memchr::memmem;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// A set of special tokens to look for.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    tokens: Vec<(String, u32)>,
    search: Search,
    /// Length in bytes of the longest token.
    longest: usize,
    /// Changes the text between the tokens.
    normalizer: Arc<Normalizer>,
}

/// A section of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'t> {
    /// Text without special tokens.
    Text(&'t str),
    /// The id of a special token.
    Special(u32),
}

/// A section of a text with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignedSegment {
    /// Text without special tokens, normalized.
    Text(AlignedText),
    /// The id of a special token, and the bytes of the original text that it stands for.
    Special(u32, Range<usize>),
}

impl SpecialTokens {
    /// # Errors
    /// [`Error::Invalid`] for an empty or repeated token.
    pub fn new(tokens: Vec<(String, u32)>) -> Result<Self> {
        let rules = vec![Rules::default(); tokens.len()];
        Self::with_rules(tokens, rules)
    }

    /// Like [`SpecialTokens::new`], with rules for each token.
    ///
    /// # Errors
    /// As [`SpecialTokens::new`].
    pub fn with_rules(tokens: Vec<(String, u32)>, rules: Vec<Rules>) -> Result<Self> {
        let mut seen = HashSet::with_capacity(tokens.len());
        for (token, _) in &tokens {
            if token.is_empty() {
                return Err(Error::Invalid("a special token is empty".to_owned()));
            }
            if !seen.insert(token.as_str()) {
                return Err(Error::Invalid(format!("special token {token:?} is there twice")));
            }
        }
        let search = Search::new(tokens.iter().map(|(token, _)| token.as_str()), rules)?;
        let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        Ok(Self { tokens, search, longest, normalizer: Arc::default() })
    }

    /// The same tokens in text that is normalized. Tokens with the rule `late` are searched as the normalizer makes them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the search cannot be built, or if nothing is left of a token.
    pub fn normalizing(mut self, normalizer: Arc<Normalizer>) -> Result<Self> {
        let texts = self.tokens.iter().zip(&self.search.rules).map(|((token, _), rule)| {
            if rule.late && !rule.verbatim { normalizer.of_token(token) } else { Ok(token.clone()) }
        });
        let texts = texts.collect::<Result<Vec<String>>>()?;
        if texts.iter().any(String::is_empty) {
            return Err(Error::Invalid("the normalizer leaves nothing of a special token".to_owned()));
        }
        self.longest = texts.iter().map(String::len).max().unwrap_or(0).max(self.longest);
        self.search = Search::new(texts.iter().map(String::as_str), self.search.rules)?;
        Ok(Self { normalizer, ..self })
    }

    /// The same tokens with the ids 0, 1, … in the order of their texts.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.tokens.len()).collect();
        order.sort_unstable_by(|&one, &other| self.tokens[one].0.cmp(&self.tokens[other].0));
        for (number, index) in (0..).zip(order) {
            self.tokens[index].1 = number;
        }
        self
    }

    /// The tokens that `chosen` accepts and the ordinary ones, with their rules.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the search cannot be built.
    pub fn subset(&self, chosen: impl Fn(&str) -> bool) -> Result<Self> {
        let kept: Vec<usize> = (0..self.tokens.len())
            .filter(|&index| self.search.rules[index].ordinary || chosen(&self.tokens[index].0))
            .collect();
        let tokens = kept.iter().map(|&index| self.tokens[index].clone()).collect();
        let rules = kept.iter().map(|&index| self.search.rules[index]).collect();
        Self::with_rules(tokens, rules)?.normalizing(Arc::clone(&self.normalizer))
    }

    /// True if every text is one segment and stays unchanged.
    pub fn changes_nothing(&self) -> bool {
        self.tokens.is_empty() && self.normalizer.is_identity()
    }

    /// The first token in a text that is not an ordinary one.
    #[must_use]
    pub fn find_special(&self, text: &str) -> Option<Found> {
        self.find(text).find(|found| !self.search.rules[found.index].ordinary)
    }

    /// What changes the text between the tokens.
    pub fn normalizer(&self) -> &Normalizer {
        &self.normalizer
    }

    /// The tokens and their ids, in the order of construction.
    pub fn tokens(&self) -> &[(String, u32)] {
        &self.tokens
    }

    /// The ids of the tokens that the normalizer changes, with the texts that are searched instead. Of several tokens with one id,
    /// the first one counts.
    pub fn normalized_texts(&self) -> HashMap<u32, String> {
        let mut seen = HashSet::new();
        let first = self.tokens.iter().zip(self.search.texts()).filter(|((_, id), _)| seen.insert(*id));
        first.filter(|((token, _), text)| token != text).map(|((_, id), text)| (*id, text.to_owned())).collect()
    }

    /// The special tokens in `text` from left to right, including the white space that they strip.
    ///
    /// Occurrences do not overlap, with one exception that matches Hugging Face's library: a token that starts inside
    /// white space stripped by the previous token is found as well.
    pub fn find<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Found> + 's {
        self.search.find(text)
    }

    /// Call `each` with the special tokens and the (non-empty) text between them, in order. `is_start` is false for a text that
    /// continues another one.
    ///
    /// # Errors
    /// Those of `each` and `interrupt`.
    pub fn segments(
        &self,
        text: &str,
        is_start: bool,
        interrupt: Interrupt,
        mut each: impl FnMut(Segment<'_>) -> Result<()>,
    ) -> Result<()> {
        // Rules cost a short text 5 % of its time, even if they are the default.
        if let (true, Some(finder)) = (self.normalizer.is_identity(), self.search.without_rules()) {
            let all = finder.find_iter(text);
            let found =
                |found: Match| Found { start: found.start(), end: found.end(), index: found.pattern().as_usize() };
            return self.between(all.map(found), text, |_, segment| each(segment));
        }
        // The first round searches the text as it is, the second one the normalized text.
        self.between(self.search.round(0, text), text, |at, segment| match segment {
            Segment::Text(text) => {
                let starts = at > 0 || is_start;
                let text = self.normalizer.normalize(text, starts, interrupt)?;
                self.between(self.search.round(1, &text), &text, |inner, segment| match segment {
                    Segment::Text(text) => {
                        let starts = inner > 0 || starts;
                        each(Segment::Text(&self.normalizer.prefixed(text, at + inner == 0, starts)))
                    }
                    special => each(special),
                })
            }
            special => each(special),
        })
    }

    /// [`SpecialTokens::segments`] of a whole text with the origin of every character.
    pub fn aligned_segments(&self, text: &str) -> Vec<AlignedSegment> {
        let mut all = Vec::new();
        let mut at = 0;
        let id = |found: &Found| self.tokens[found.index].1;
        for found in self.search.round(0, text) {
            if found.start > at {
                self.add_aligned(&text[at..found.start], at, &mut all);
            }
            all.push(AlignedSegment::Special(id(&found), found.start..found.end));
            at = found.end;
        }
        if at < text.len() {
            self.add_aligned(&text[at..], at, &mut all);
        }
        all
    }

    /// Adds the segments of the text between two tokens of the first round.
    fn add_aligned(&self, text: &str, offset: usize, all: &mut Vec<AlignedSegment>) {
        let aligned = self.normalizer.normalize_aligned(unchanged(text, offset), true);
        let normalized = plain(&aligned);
        // Byte offsets in `normalized` to indices in `aligned`.
        let index = |at: usize| normalized[..at].chars().count();
        let add_text = |from: usize, to: usize, all: &mut Vec<AlignedSegment>| {
            if from < to {
                let text = aligned[index(from)..index(to)].to_vec();
                all.push(AlignedSegment::Text(self.normalizer.prefixed_aligned(text, offset + from == 0, true)));
            }
        };
        let mut at = 0;
        for found in self.search.round(1, &normalized) {
            add_text(at, found.start, all);
            let origin = origin_of(&aligned[index(found.start)..index(found.end)]);
            all.push(AlignedSegment::Special(self.tokens[found.index].1, origin));
            at = found.end;
        }
        add_text(at, normalized.len(), all);
    }

    /// Calls `each` with what `all` divides a text into, and where each starts.
    fn between(
        &self,
        all: impl Iterator<Item = Found>,
        text: &str,
        mut each: impl FnMut(usize, Segment<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        for found in all {
            if found.start > at {
                each(at, Segment::Text(&text[at..found.start]))?;
            }
            each(found.start, Segment::Special(self.tokens[found.index].1))?;
            at = found.end;
        }
        if at < text.len() { each(at, Segment::Text(&text[at..])) } else { Ok(()) }
    }

    /// True if some occurrence of a special token, chosen by the search or not, starts before `at` and ends after it.
    ///
    /// Otherwise `text[..at]` and `text[at..]` hold the same special tokens as `text`: a search from the left that
    /// reaches `at` has only chosen tokens that end at or before `at`, and continues there as if it had just started.
    ///
    /// With rules, the characters next to a token matter, so a token that starts or ends at `at` counts as well. The
    /// statement above then holds if a letter precedes `at`: stripping from the right ends at that letter, and
    /// stripping from the left would have to pass it. The same holds if it matters to the normalizer where a text starts.
    ///
    /// With a normalizer, the text around `at` must already be normalized as far as the longest token reaches. Then the tokens
    /// that cross `at` in the normalized text are the ones that do so now, and no characters combine across `at`.
    pub fn any_crosses(&self, text: &str, at: usize) -> bool {
        let touching = usize::from(self.search.has_rules || self.normalizer.changes_starts());
        if !self.normalizer.is_stable_about(text, at, self.longest + 8) {
            return true;
        }
        let crosses = |token: &str| occurs(text, at, token, 1 - touching, token.len() + touching);
        self.tokens.iter().any(|(token, _)| crosses(token)) || self.search.changed_texts().any(crosses)
    }

    /// True if `text` may be cut after `found` such that both parts hold the same special tokens as `text`.
    ///
    /// With rules, that requires that text follows, that neither side of the cut is white space that could be
    /// stripped, and that no other occurrence of a token touches the cut. This is known for cuts up to `ceiling`.
    pub fn may_cut_behind(&self, text: &str, found: &Found, ceiling: usize) -> bool {
        if !self.search.has_rules && !self.normalizer.changes_starts() {
            return true;
        }
        let is_changed = !self.normalizer.is_identity();
        if is_changed && (self.search.rules[found.index].late || self.normalizer.changes_starts()) {
            return false;
        }
        let at = found.end;
        let is_space = |character: Option<char>| character.is_none_or(char::is_whitespace);
        let touches = |(index, (token, _)): (usize, &(String, u32))| {
            occurs(text, at, token, 0, token.len() + usize::from(index != found.index))
        };
        at <= ceiling
            && !is_space(text[at..].chars().next())
            && !is_space(text[..at].chars().next_back())
            && !self.tokens.iter().enumerate().any(touches)
    }

    /// Number of bytes that must be known after an offset to decide whether a token crosses it.
    pub fn lookahead(&self) -> usize {
        let touching = self.search.has_rules || self.normalizer.changes_starts();
        if touching { self.longest } else { self.longest.saturating_sub(1) }
    }
}

/// The bytes that normalized characters come from.
fn origin_of(text: &[AlignedChar]) -> Range<usize> {
    match text {
        [] => 0..0,
        [first, ..] => first.origin.start..text[text.len() - 1].origin.end.max(first.origin.start),
    }
}

/// True if `token` starts at least `nearest` and less than `farthest` bytes before `at`.
fn occurs(text: &str, at: usize, token: &str, nearest: usize, farthest: usize) -> bool {
    let farthest = farthest.min(at + 1);
    if farthest <= nearest {
        return false;
    }
    let window = at + 1 - farthest..text.len().min(at - nearest + token.len());
    memmem::find(&text.as_bytes()[window], token.as_bytes()).is_some()
}

#[cfg(test)]
#[path = "tests/tokens.rs"]
mod tests;
