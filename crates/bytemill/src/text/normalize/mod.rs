//! What changes a text before it is encoded: the normalizers of published tokenizers.
//!
//! [`Normalizer`] is a list of [`Step`]s and what is put before a text. [`nfc`] is the frequent step, made fast. [`aligned`] does
//! the same for a text whose characters remember where they come from; it is slower and says where tokens are.
//!
//! SentencePiece and Metaspace write "▁" for a space. Here it is the other way round: the vocabulary has spaces, and a "▁" of the text
//! becomes one, so that most texts stay as they are.

pub mod aligned;
mod charsmap;
pub mod nfc;
mod steps;

pub use charsmap::CharsMap;
pub use steps::Step;

use crate::error::Result;
use crate::sys::interrupt::{Interrupt, no_interrupt};
use aligned::AlignedText;
use std::borrow::Cow;

/// What Metaspace puts before a text that does not begin with a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// A space before every text between special tokens.
    Always,
    /// A space before a text that begins where the whole text begins.
    First,
}

/// The changes that a text between special tokens undergoes before it is encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalizer {
    steps: Vec<Step>,
    prefix: Option<Prefix>,
}

impl Normalizer {
    /// A normalizer of these steps, in order.
    pub fn new(steps: Vec<Step>, prefix: Option<Prefix>) -> Self {
        Self { steps, prefix }
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What Metaspace puts before a text.
    pub fn prefix(&self) -> Option<Prefix> {
        self.prefix
    }

    /// True if no text changes.
    pub fn is_identity(&self) -> bool {
        self.steps.is_empty() && self.prefix.is_none()
    }

    /// True if something is put before texts or taken from their starts, so that it matters where they start.
    pub fn changes_starts(&self) -> bool {
        self.prefix.is_some() || self.steps.iter().any(|step| matches!(step, Step::Prepend(_)) || step.strips())
    }

    /// Applies the steps to a text between special tokens. `is_start` is false for a text that continues another one.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the result cannot be allocated, and the errors of `interrupt`.
    pub fn normalize<'t>(&self, text: &'t str, is_start: bool, interrupt: Interrupt) -> Result<Cow<'t, str>> {
        let mut text = Cow::Borrowed(text);
        for step in &self.steps {
            text = match text {
                Cow::Borrowed(text) => step.apply(text, is_start, interrupt)?,
                Cow::Owned(text) => match step.apply(&text, is_start, interrupt)? {
                    Cow::Owned(changed) => Cow::Owned(changed),
                    Cow::Borrowed(same) if same.len() == text.len() => Cow::Owned(text),
                    Cow::Borrowed(part) => Cow::Owned(part.to_owned()),
                },
            };
        }
        Ok(text)
    }

    /// Adds the prefix to a text that the steps and all special tokens leave over. `is_first` tells whether the whole text begins
    /// with it, `is_start` is false if it continues another one.
    pub fn prefixed<'t>(&self, text: &'t str, is_first: bool, is_start: bool) -> Cow<'t, str> {
        if self.adds_prefix(text.chars().next(), is_first, is_start) {
            Cow::Owned([" ", text].concat())
        } else {
            Cow::Borrowed(text)
        }
    }

    fn adds_prefix(&self, first: Option<char>, is_first: bool, is_start: bool) -> bool {
        let wants = match self.prefix {
            None => false,
            Some(Prefix::Always) => true,
            Some(Prefix::First) => is_first,
        };
        wants && is_start && first.is_some_and(|first| first != ' ')
    }

    /// [`Normalizer::normalize`] with the origin of every character.
    pub fn normalize_aligned(&self, mut text: AlignedText, is_start: bool) -> AlignedText {
        for step in &self.steps {
            text = step.apply_aligned(text, is_start);
        }
        text
    }

    /// [`Normalizer::prefixed`] with the origin of every character.
    pub fn prefixed_aligned(&self, text: AlignedText, is_first: bool, is_start: bool) -> AlignedText {
        let first = text.first().map(|first| first.character);
        if self.adds_prefix(first, is_first, is_start) { aligned::prepend(text, " ") } else { text }
    }

    /// The text that a special token is searched as if it is searched in normalized text.
    ///
    /// # Errors
    /// As [`Normalizer::normalize`].
    pub fn of_token(&self, token: &str) -> Result<String> {
        Ok(self.normalize(token, true, &no_interrupt)?.into_owned())
    }

    /// True if a text may be cut at `at`, as far as the normalizer is concerned: the `reach` bytes on each side stay as they are,
    /// whatever surrounds them, and nothing is lost or added at the cut.
    pub fn is_stable_about(&self, text: &str, at: usize, reach: usize) -> bool {
        match &self.steps[..] {
            [] => return true,
            [Step::Nfc] => return nfc::is_stable_about(text, at, reach),
            _ => {}
        }
        // What one step does near the ends of this window, the next one may carry further in.
        let reach = 4 + reach + self.steps.iter().map(Step::reach).sum::<usize>();
        let window = &text[floor_boundary(text, at.saturating_sub(reach))..ceil_boundary(text, at + reach)];
        let is_local = self.steps.iter().all(Step::is_about_spaces);
        let strips = self.steps.iter().any(|step| step.strips() || step.joins());
        let is_fixed = |step: &Step| {
            step.strips()
                || matches!(step, Step::Prepend(_))
                || step.apply(window, false, &no_interrupt).is_ok_and(|same| same == window)
        };
        (is_local || window.is_ascii())
            && !(strips && text[..at].chars().next_back().is_none_or(char::is_whitespace))
            && self.steps.iter().all(is_fixed)
    }
}

/// The last character boundary of `text` up to `at`.
fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first character boundary of `text` from `at` on; its end if `at` lies beyond.
fn ceil_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests;
