//! Where a text can be cut in two without changing its pre-tokens.
//!
//! A cut at `p` is safe if the pre-tokens of `text[..p]` followed by those of `text[p..]` are those of `text`. No pattern with rules on
//! masks looks behind, so it suffices that (1) a pre-token of `text` ends at `p`, and (2) the part before `p` splits the same way if the text ends
//! at `p`.
//!
//! Lemma: for every such pattern both hold if the character before `p` is a letter and the one at `p` is white space, a number, or
//! neither letter, number, mark, white space nor apostrophe.
//!
//! (1) In every alternative that can take a letter, only letters follow it, or with words cut by case also marks and a contraction,
//! which starts with an apostrophe. The character at `p` is none of these, so no match crosses `p`.
//!
//! (2) A matcher reads past the end of its match only to see that a run ends or that a contraction does not match, and past a run of
//! white space to see whether the text ends. A letter precedes `p`, so no run of white space ends at `p`. A run of letters that ends
//! at `p` ends there in both texts. What follows an apostrophe in a contraction is letters, so the character at `p` makes it fail just
//! as the end of the text does.
//!
//! Where a step isolates characters, a pre-token ends at every border. If `p` is inside an isolated run, its two parts are isolated runs of
//! the two texts, and the above holds for them.
//!
//! Where texts are split before spaces, they may be cut before a run of spaces: whether a pre-token ends at an offset depends on the
//! bytes on its sides alone.
//!
//! Custom patterns and several steps have no such property. They are cut at special tokens only.

use super::pattern::Pattern;
use super::spaces::Spaces;
use crate::text::unicode::{Class, class_at};

impl Pattern {
    /// The last safe cut `p` with `floor < p <= ceiling` and `p < text.len()` that `allowed` accepts.
    pub fn last_cut(&self, text: &str, floor: usize, ceiling: usize, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let bytes = text.as_bytes();
        if let Self::Spaces(_) = self {
            let last = ceiling.min(text.len().checked_sub(1)?);
            return (floor + 1..=last).rev().find(|&at| Spaces::cuts_at(bytes, at) && allowed(at));
        }
        if !matches!(self, Self::Named(_) | Self::Ruled(_)) {
            return None;
        }
        let mut at = ceiling.min(text.len().checked_sub(1)?);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        while at > floor {
            let (before, _) = text[..at].char_indices().next_back().filter(|&(before, _)| before >= floor)?;
            let separates = match class_at(bytes, at).0 {
                Class::Space | Class::Newline | Class::Number => true,
                Class::Other => bytes[at] != b'\'',
                Class::Upper | Class::Lower | Class::OtherLetter | Class::Mark => false,
            };
            if separates && class_at(bytes, before).0.is_letter() && allowed(at) {
                return Some(at);
            }
            at = before;
        }
        None
    }
}
