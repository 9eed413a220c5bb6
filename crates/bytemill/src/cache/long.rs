//! Entries for pre-tokens of more bytes than a register holds.

use crate::hash::fold;
use crate::huge::Plain;
use std::ops::Range;

/// Most bytes of a pre-token that the table of longer ones takes.
pub const LONG_BYTES: usize = 63;

/// Most ids of an entry for longer pre-tokens.
pub const LONG_IDS: usize = 15;

/// Most bytes of a pre-token that the table of the longest takes: lines drawn with dashes and such, which return again and
/// again, not words.
pub const LONGEST_BYTES: usize = 248;

/// Most ids of an entry for the longest pre-tokens.
pub const LONGEST_IDS: usize = 16;

/// From 64 - n on: all bits of n bytes, and none of the others up to the 64th.
static LONG_MASKS: [u8; 128] = {
    let mut masks = [0; 128];
    let mut at = 0;
    while at < 64 {
        masks[at] = u8::MAX;
        at += 1;
    }
    masks
};

/// A pre-token of up to 63 bytes: its bytes and their number.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct LongKey {
    pub(super) words: [u64; 8],
}

impl LongKey {
    /// The key of up to [`LONG_BYTES`] bytes of a text; `None` for more.
    ///
    /// One load of 64 bytes and a mask where the text goes on that far.
    #[inline]
    pub fn new(text: &[u8], range: &Range<usize>) -> Option<Self> {
        let n_bytes = range.len();
        if n_bytes > LONG_BYTES {
            return None;
        }
        let mut bytes = [0; 64];
        if let Some(window) = text[range.start..].first_chunk::<64>() {
            for ((byte, &there), mask) in bytes.iter_mut().zip(window).zip(&LONG_MASKS[64 - n_bytes..]) {
                *byte = there & mask;
            }
        } else {
            bytes[..n_bytes].copy_from_slice(&text[range.clone()]);
        }
        bytes[LONG_BYTES] = n_bytes as u8;
        let mut words = [0; 8];
        for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        Some(Self { words })
    }

    /// Whether both are of the same bytes; without a call, as `==` for all eight would be.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).fold(0, |different, (one, other)| different | (one ^ other)) == 0
    }

    /// What tells its place in the table of longer pre-tokens.
    #[inline]
    pub fn hash(&self) -> u32 {
        let [a, b, c, d, e, f, g, h] = self.words;
        let hash = fold(a ^ 0x9E37_79B9_7F4A_7C15, b ^ 0xD6E8_FEB8_6659_FD93)
            ^ fold(c ^ 0xA076_1D64_78BD_642F, d ^ 0xE703_7ED1_A0B4_28DB).rotate_left(32)
            ^ fold(e ^ 0x8EBC_6AF0_9C88_C6E3, f ^ 0x5899_65CC_7537_4CC3).rotate_left(16)
            ^ fold(g ^ 0x1D8E_4E27_C47D_124F, h ^ 0xEB44_ACCA_B455_D165).rotate_left(48);
        // Which bits of a sum of products are good depends on what differs.
        fold(hash, 0x9E37_79B9_7F4A_7C15) as u32
    }
}

// SAFETY: numbers, of which any bits are some.
unsafe impl Plain for Long {}
// SAFETY: as above.
unsafe impl Plain for Longest {}

/// A longer pre-token and its 1 to 15 ids, each in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Long {
    pub key: LongKey,
    pub ids: [u32; LONG_IDS],
    pub n_ids: u32,
}

/// One of the longest pre-tokens and its 1 to 16 ids.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Longest {
    pub bytes: [u8; LONGEST_BYTES],
    pub n_bytes: u32,
    pub n_ids: u32,
    pub ids: [u32; LONGEST_IDS],
}
