//! Where a text may be cut in two so that its pre-tokens stay the same.
//!
//! A cut at `p` is harmless when the pre-tokens of `text[..p]` followed by those of `text[p..]` are those of `text`.
//! None of the named patterns looks behind, so it is enough that (1) a pre-token of `text` ends at `p`, and (2) the
//! part before `p` splits in the same way when the text ends at `p`.
//!
//! Claim: for each named pattern both hold wherever the character before `p` is a letter and the one at `p` is white
//! space, a number, or neither letter, number, mark, white space nor apostrophe.
//!
//! (1) In every alternative that can take a letter, only letters follow it, or in o200k's also marks and a contraction,
//! which starts with an apostrophe. The character at `p` is none of these, so no match crosses `p`.
//! (2) A matcher reads past the end of its match only to see that a run ends or that a contraction does not match, and
//! past a run of white space to see whether the text ends. Before `p` stands a letter, so no run of white space ends at
//! `p`; a run of letters that ends at `p` ends there in both texts; and what follows an apostrophe in a contraction is
//! letters, so the character at `p` makes it fail exactly as the end of the text does.
//!
//! Nothing of the kind can be said of custom patterns and of several steps: those are cut at special tokens alone.

use super::Pattern;
use crate::unicode::{Class, class_at};

impl Pattern {
    /// The last harmless cut `p` of `text` with `floor < p <= ceiling`, `p < text.len()`, that `allowed` accepts.
    pub fn last_cut(&self, text: &str, floor: usize, ceiling: usize, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        if matches!(self, Self::Whole | Self::Custom(_) | Self::Steps(_)) {
            return None;
        }
        let bytes = text.as_bytes();
        let mut at = ceiling.min(text.len().checked_sub(1)?);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        while at > floor {
            let before = start_of_char_before(bytes, at);
            if before < floor {
                break;
            }
            let follows = class_at(bytes, at).0;
            let separates = match follows {
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

fn start_of_char_before(text: &[u8], at: usize) -> usize {
    let mut before = at - 1;
    while before > 0 && text[before] & 0xC0 == 0x80 {
        before -= 1;
    }
    before
}
