//! Characters outside ASCII.
//!
//! Text in one script has few distinct characters "up to the last seven bits": all of Russian is in two runs of 128 code
//! points, Hindi in one, the accented letters of a European language in one to three. So the first character of a
//! block that is not classified yet is looked at, and with it all others of its run of 128 at once. Ideographs and Hangul
//! syllables are spread over hundreds of such runs, but are of one class, and known by their first two bytes.

use super::{Classify, LANES, Sample, Window};
use crate::unicode::bit_planes;

/// The characters outside ASCII by class: bits of first bytes only.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Wide {
    pub letter: u64,
    pub upper: u64,
    /// Letters without case.
    pub uncased: u64,
    pub mark: u64,
    pub number: u64,
    /// White space; no line break is outside ASCII.
    pub space: u64,
}

/// For each lead byte E0 to EF the first and the last second byte of a range in which every character is a letter
/// without case; the range is empty where there are none.
pub struct Plain {
    pub first: [u8; 16],
    pub last: [u8; 16],
}

/// CJK ideographs but for what shares its lead byte with the hexagrams (E4), and Hangul syllables but for the last 36.
pub static PLAIN: Plain = {
    let mut plain = Plain { first: [0xFF; 16], last: [0; 16] };
    let ranges = [
        (3, 0x90, 0xBF),
        (4, 0xB8, 0xBF),
        (5, 0x80, 0xBF),
        (6, 0x80, 0xBF),
        (7, 0x80, 0xBF),
        (8, 0x80, 0xBF),
        (9, 0x80, 0xBF),
        (10, 0xB0, 0xBF),
        (11, 0x80, 0xBF),
        (12, 0x80, 0xBF),
        (13, 0x80, 0x9D),
    ];
    let mut k = 0;
    while k < ranges.len() {
        let (lead, first, last) = ranges[k];
        plain.first[lead] = first;
        plain.last[lead] = last;
        k += 1;
    }
    plain
};

/// Whether a character with these first two bytes is in the ranges of [`PLAIN`].
#[inline(always)]
pub fn is_plain(lead: u8, second: u8) -> bool {
    let k = usize::from(lead & 0x0F);
    lead & 0xF0 == 0xE0 && second >= PLAIN.first[k] && second <= PLAIN.last[k]
}

/// The classes of the characters outside ASCII whose first bytes are `firsts`.
#[inline(always)]
pub fn wide(classify: impl Classify, window: &Window, firsts: u64) -> Wide {
    let mut left = firsts;
    let mut bits = [0; 3];
    while left != 0 {
        let place = left.trailing_zeros() as usize % LANES;
        let bytes = [window[place], window[place + 1], window[place + 2], window[place + 3]];
        let [lead, second, third, fourth] = bytes;
        if is_plain(lead, second) {
            let plain = classify.plain_letters(window) & left;
            bits[0] |= plain;
            bits[1] |= plain;
            left &= !(plain | 1 << place);
            continue;
        }
        let low = |byte: u8, n_bits: u32| u32::from(byte) & ((1 << n_bits) - 1);
        // Two bytes and three are mixed in many scripts, so there is no branch between them.
        let of_two = low(lead, 5) << 6 | low(second, 6);
        let of_three = low(lead, 4) << 12 | low(second, 6) << 6 | low(third, 6);
        let (mut n_bytes, mut code_point) = if lead < 0xE0 { (2, of_two) } else { (3, of_three) };
        if lead >= 0xF0 {
            n_bytes = 4;
            code_point = low(lead, 3) << 18 | low(second, 6) << 12 | low(third, 6) << 6 | low(fourth, 6);
        }
        let (alike, found) = classify.alike(window, Sample { place, bytes, n_bytes }, bit_planes(code_point));
        let alike = alike & left;
        for (all, found) in bits.iter_mut().zip(found) {
            *all |= found & alike;
        }
        left &= !(alike | 1 << place);
    }
    // The classes by number, as `Class` has them.
    let [low, middle, high] = bits;
    Wide {
        letter: !high & (low | middle),
        upper: !high & low & !middle,
        uncased: !high & low & middle,
        mark: high & !low & !middle,
        number: high & low & !middle,
        space: high & middle,
    }
}
