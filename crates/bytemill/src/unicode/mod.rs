//! Which class of the patterns a character belongs to, by a table of two stages.

mod tables;

/// Version of the Unicode character database behind [`Class`] and behind custom patterns.
pub const UNICODE_VERSION: &str = "16.0.0";

/// What the patterns of GPT-2, cl100k, Llama 3 and o200k tell apart.
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
    #[must_use]
    pub fn is_letter(self) -> bool {
        matches!(self, Self::Upper | Self::Lower | Self::OtherLetter)
    }

    /// `\s`
    #[inline]
    #[must_use]
    pub fn is_space(self) -> bool {
        self as u8 >= Self::Space as u8
    }

    /// `[^\s\p{L}\p{N}]`
    #[inline]
    #[must_use]
    pub fn is_other(self) -> bool {
        matches!(self, Self::Other | Self::Mark)
    }

    #[inline]
    fn from_table(value: u8) -> Self {
        match value & 7 {
            1 => Self::Upper,
            2 => Self::Lower,
            3 => Self::OtherLetter,
            4 => Self::Mark,
            5 => Self::Number,
            6 => Self::Space,
            7 => Self::Newline,
            _ => Self::Other,
        }
    }
}

/// The class of a code point; [`Class::Other`] for numbers past U+10FFFF.
#[inline]
#[must_use]
pub fn class_of(code_point: u32) -> Class {
    match tables::INDEX.get((code_point >> 7) as usize) {
        Some(&block) => {
            Class::from_table(tables::BLOCKS[usize::from(block) % tables::BLOCKS.len()][(code_point & 127) as usize])
        }
        None => Class::Other,
    }
}

/// The classes of 128 code points as bits: bit `c & 7` of byte `c >> 3` of array k is bit k of the class of code point c.
pub(crate) type BitPlanes = [[u8; 16]; 3];

/// [`tables::BLOCKS`] turned into bits, for vector instructions that look up 16 bytes at once; the rest is empty.
static BIT_PLANES: [BitPlanes; 256] = {
    let mut all = [[[0; 16]; 3]; 256];
    let mut block = 0;
    while block < tables::BLOCKS.len() {
        let mut c = 0;
        while c < 128 {
            let mut plane = 0;
            while plane < 3 {
                all[block][plane][c >> 3] |= (tables::BLOCKS[block][c] >> plane & 1) << (c & 7);
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
    match tables::INDEX.get((code_point >> 7) as usize) {
        Some(&block) => &BIT_PLANES[usize::from(block)],
        None => &BIT_PLANES[255],
    }
}

/// Class and number of bytes of the character that starts at `text[at]`, which lies inside `text`.
///
/// `text` is UTF-8 and `at` the start of a character. (On anything else the answer has no meaning, but it stays
/// inside `text` and is at least one byte.)
#[inline]
#[must_use]
pub fn class_at(text: &[u8], at: usize) -> (Class, usize) {
    let first = text[at];
    if first < 0x80 {
        return (Class::from_table(tables::BLOCKS[0][usize::from(first & 127)]), 1);
    }
    let follow = |k: usize| u32::from(text.get(at + k).copied().unwrap_or(0) & 0x3F);
    let (code_point, n_bytes) = match first {
        0xE0..=0xEF => ((u32::from(first) & 0x0F) << 12 | follow(1) << 6 | follow(2), 3),
        0xF0.. => ((u32::from(first) & 0x07) << 18 | follow(1) << 12 | follow(2) << 6 | follow(3), 4),
        _ => ((u32::from(first) & 0x1F) << 6 | follow(1), 2),
    };
    (class_of(code_point), n_bytes.min(text.len() - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_equals_regex_syntax_on_every_code_point() {
        for (expression, holds) in [
            (r"\p{L}", Class::is_letter as fn(Class) -> bool),
            (r"\s", Class::is_space),
            (r"[^\s\p{L}\p{N}]", Class::is_other),
            (r"\p{N}", |class| class == Class::Number),
            (r"[\p{Lu}\p{Lt}]", |class| class == Class::Upper),
            (r"\p{Ll}", |class| class == Class::Lower),
            (r"[\p{Lm}\p{Lo}]", |class| class == Class::OtherLetter),
            (r"\p{M}", |class| class == Class::Mark),
            (r"[\r\n]", |class| class == Class::Newline),
        ] {
            let hir = regex_syntax::parse(expression).unwrap();
            let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind() else {
                panic!("{expression} is not a class");
            };
            let mut expected = vec![false; 0x11_0000];
            for range in class.ranges() {
                expected[range.start() as usize..=range.end() as usize].fill(true);
            }
            for character in '\0'..=char::MAX {
                let code_point = character as u32;
                assert_eq!(
                    holds(class_of(code_point)),
                    expected[code_point as usize],
                    "{expression} U+{code_point:04X}"
                );
            }
        }
    }

    #[test]
    fn bit_planes_hold_the_same_classes() {
        for code_point in (0..=char::MAX as u32).chain([u32::MAX]) {
            let (byte, bit) = ((code_point & 127) as usize >> 3, code_point & 7);
            let [low, middle, high] = bit_planes(code_point).map(|plane| plane[byte] >> bit & 1);
            assert_eq!(class_of(code_point) as u8, low | middle << 1 | high << 2, "U+{code_point:04X}");
        }
        const { assert!(tables::BLOCKS.len() < 256, "the last table of bit planes stays empty") };
    }

    #[test]
    fn class_at_reads_every_character_as_class_of_does() {
        let mut buffer = [0; 4];
        for character in '\0'..=char::MAX {
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            assert_eq!(class_at(bytes, 0), (class_of(character as u32), bytes.len()));
        }
    }

    #[test]
    fn malformed_bytes_stay_inside_the_text() {
        for first in 0..=255 {
            let (_, n_bytes) = class_at(&[first], 0);
            assert_eq!(n_bytes, 1);
        }
        assert_eq!(class_of(u32::MAX), Class::Other);
    }
}
