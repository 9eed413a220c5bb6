//! How pre-tokens change before they are merged.
//!
//! Some tokenizers leave out white space, put a space before each word, mark where words end, or lose characters that are no
//! tokens. All of that happens to a pre-token alone. So it happens when one is merged, and the caches know pre-tokens as they are in
//! the text.

/// The byte that stands for the end of a word. No text has it.
pub const END: u8 = 0xFF;

/// How pre-tokens change before they are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Pre-tokens of white space are left out.
    pub drops_white_space: bool,
    /// Each has a space before it, unless it begins with one.
    pub space_before: bool,
    /// What the vocabulary writes where a pre-token ends; [`END`] stands for it until then.
    pub suffix: Option<Box<[u8]>>,
    /// Bytes or characters that are no tokens vanish.
    pub drops_unknown: bool,
    /// Unknown characters are fused within a pre-token, not beyond.
    pub fuses_within: bool,
}

impl Shape {
    /// True if pre-tokens stay as they are.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// True for a pre-token before which a space is put.
    pub(crate) fn adds_space(&self, pretoken: &[u8]) -> bool {
        self.space_before && !pretoken.starts_with(b" ")
    }

    /// True for a pre-token that is left out.
    pub(crate) fn drops(&self, pretoken: &[u8]) -> bool {
        self.drops_white_space
            && pretoken.utf8_chunks().next().is_some_and(|chunk| chunk.valid().starts_with(char::is_whitespace))
    }
}
