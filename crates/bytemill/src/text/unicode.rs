//! The character classes that the patterns distinguish, by a lookup table in two stages, and sets of characters.

use std::ops::RangeInclusive;

/// Version of the Unicode character database behind [`Class`] and behind custom patterns.
pub const UNICODE_VERSION: &str = "16.0.0";

/// Code points in a block of the table.
const BLOCK: usize = 128;

/// Blocks that a number of a code point's upper bits selects from.
const INDEX_LEN: usize = 0x11_0000 / BLOCK;

/// Written by `examples/generate_unicode_tables.rs`: for each run of 128 code points the number of its block, then the classes
/// of each different block.
static TABLE: &[u8; 38_144] = include_bytes!("unicode/classes.bin");

const N_BLOCKS: usize = (TABLE.len() - INDEX_LEN) / BLOCK;

/// The classes of a block.
#[inline]
const fn block_start(number: u8) -> usize {
    INDEX_LEN + number as usize % N_BLOCKS * BLOCK
}

/// What the patterns of GPT-2, cl100k, Llama 3 and o200k distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Class {
    /// Everything else: punctuation, symbols, controls, unassigned.
    Other = 0,
    /// `\p{Lu}` and `\p{Lt}`: upper case and title case.
    Upper = 1,
    /// `\p{Ll}`: lower case.
    Lower = 2,
    /// `\p{Lm}` and `\p{Lo}`: modifiers and letters without case.
    OtherLetter = 3,
    /// `\p{M}`: combining marks, which are not letters.
    Mark = 4,
    /// `\p{N}`: digits and other numbers.
    Number = 5,
    /// `\s` without carriage return and line feed.
    Space = 6,
    /// Carriage return and line feed.
    Newline = 7,
}

impl Class {
    /// `\p{L}`
    #[inline]
    pub fn is_letter(self) -> bool {
        matches!(self, Self::Upper | Self::Lower | Self::OtherLetter)
    }

    /// `\s`
    #[inline]
    pub fn is_space(self) -> bool {
        self as u8 >= Self::Space as u8
    }

    #[inline]
    fn from_table(value: u8) -> Self {
        use Class::*;
        [Other, Upper, Lower, OtherLetter, Mark, Number, Space, Newline][usize::from(value & 7)]
    }
}

/// The class of a code point; [`Class::Other`] for numbers past U+10FFFF.
#[inline]
pub fn class_of(code_point: u32) -> Class {
    let class = |&number| Class::from_table(TABLE[block_start(number) + (code_point & 127) as usize]);
    TABLE[..INDEX_LEN].get((code_point >> 7) as usize).map_or(Class::Other, class)
}

/// The classes of 128 code points as bits: bit `c & 7` of byte `c >> 3` of array k is bit k of the class of code point c.
pub(crate) type BitPlanes = [[u8; 16]; 3];

/// The blocks as bits, for vector instructions that look up 16 bytes at once; the rest is empty.
static BIT_PLANES: [BitPlanes; 256] = {
    let mut all = [[[0; 16]; 3]; 256];
    let mut block = 0;
    while block < N_BLOCKS {
        let mut c = 0;
        while c < 128 {
            let mut plane = 0;
            while plane < 3 {
                all[block][plane][c >> 3] |= (TABLE[block_start(block as u8) + c] >> plane & 1) << (c & 7);
                plane += 1;
            }
            c += 1;
        }
        block += 1;
    }
    all
};

/// The classes of the 128 code points around this one; [`Class::Other`] for numbers past U+10FFFF.
#[inline]
pub(crate) fn bit_planes(code_point: u32) -> &'static BitPlanes {
    let number = TABLE[..INDEX_LEN].get((code_point >> 7) as usize).unwrap_or(&255);
    &BIT_PLANES[usize::from(*number)]
}

/// Class and length in bytes of the character that starts at `text[at]`.
///
/// `text` is UTF-8 and `at` the start of a character. (On anything else the class is unspecified; the length is at least 1 and
/// stays inside `text`.)
#[inline]
pub fn class_at(text: &[u8], at: usize) -> (Class, usize) {
    let first = text[at];
    if first < 0x80 {
        return (Class::from_table(TABLE[block_start(0) + usize::from(first & 127)]), 1);
    }
    let (code_point, n_bytes) = char_at(text, at);
    (class_of(code_point), n_bytes)
}

/// Code point and length in bytes of the character that starts at `text[at]`, with the same conditions as [`class_at`].
#[inline]
pub fn char_at(text: &[u8], at: usize) -> (u32, usize) {
    let first = text[at];
    let follow = |k: usize| u32::from(text.get(at + k).copied().unwrap_or(0) & 0x3F);
    let (code_point, n_bytes) = match first {
        0..0x80 => (u32::from(first), 1),
        0xE0..=0xEF => ((u32::from(first) & 0x0F) << 12 | follow(1) << 6 | follow(2), 3),
        0xF0.. => ((u32::from(first) & 0x07) << 18 | follow(1) << 12 | follow(2) << 6 | follow(3), 4),
        _ => ((u32::from(first) & 0x1F) << 6 | follow(1), 2),
    };
    (code_point, n_bytes.min(text.len() - at))
}

/// Characters in the basic multilingual plane, each of which has a bit.
const N_BITS: usize = 0x1_0000;

/// A set of characters: a bit for each of the basic multilingual plane, ranges beyond it.
#[derive(Clone, PartialEq, Eq)]
pub struct CharSet {
    bits: Box<[u64; N_BITS / 64]>,
    beyond: Vec<RangeInclusive<u32>>,
}

impl CharSet {
    /// The set of the code points in some ranges.
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        let mut set = Self { bits: Box::new([0; _]), beyond: Vec::new() };
        for range in ranges {
            let last = *range.end();
            for code_point in range.clone().take_while(|&code_point| (code_point as usize) < N_BITS) {
                set.bits[code_point as usize / 64] |= 1 << (code_point % 64);
            }
            if last as usize >= N_BITS {
                set.beyond.push(range);
            }
        }
        set
    }

    /// Whether a code point is in the set.
    #[inline]
    pub fn has(&self, code_point: u32) -> bool {
        match self.bits.get(code_point as usize / 64) {
            Some(word) => word >> (code_point % 64) & 1 == 1,
            None => self.beyond.iter().any(|range| range.contains(&code_point)),
        }
    }
}

impl std::fmt::Debug for CharSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n_bits: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
        formatter.debug_struct("CharSet").field("n_bits", &n_bits).field("beyond", &self.beyond).finish()
    }
}

#[cfg(test)]
#[path = "unicode/tests"]
mod tests {
    mod class;
    mod set;
}
