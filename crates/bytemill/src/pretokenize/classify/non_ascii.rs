//! Classes of characters outside ASCII.
//!
//! Text in one script uses few pages of 128 code points: Russian two, Hindi one, the accented letters of a European language one to
//! three. So the first character of a block without a class yet is looked up together with all others on its page. Ideographs and
//! Hangul syllables spread over hundreds of pages, but share one class and are known by their first two bytes.

use super::BLOCK_BYTES;
use super::classifier::{Classify, Sample, Window, is_cjk};
use crate::text::unicode::bit_planes;

/// The characters outside ASCII by class. Only first bytes have bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NonAscii {
    pub letter: u64,
    pub upper: u64,
    /// Letters without case.
    pub uncased: u64,
    pub mark: u64,
    pub number: u64,
    /// White space. No line break is outside ASCII.
    pub space: u64,
}

/// Classifies the characters outside ASCII whose first bytes are `firsts`.
#[inline(always)]
pub fn non_ascii(classify: impl Classify, window: &Window, firsts: u64) -> NonAscii {
    let mut left = firsts;
    let mut bits = [0; 3];
    while left != 0 {
        let offset = left.trailing_zeros() as usize % BLOCK_BYTES;
        let bytes = [window[offset], window[offset + 1], window[offset + 2], window[offset + 3]];
        let [lead, second, third, fourth] = bytes;
        if is_cjk(lead, second) {
            let cjk = classify.cjk(window) & left;
            bits[0] |= cjk;
            bits[1] |= cjk;
            left &= !(cjk | 1 << offset);
            continue;
        }
        let low = |byte: u8, n_bits: u32| u32::from(byte) & ((1 << n_bits) - 1);
        // Many scripts mix characters of two and three bytes, so there is no branch between them.
        let of_two = low(lead, 5) << 6 | low(second, 6);
        let of_three = low(lead, 4) << 12 | low(second, 6) << 6 | low(third, 6);
        let (mut n_bytes, mut code_point) = if lead < 0xE0 { (2, of_two) } else { (3, of_three) };
        if lead >= 0xF0 {
            n_bytes = 4;
            code_point = low(lead, 3) << 18 | low(second, 6) << 12 | low(third, 6) << 6 | low(fourth, 6);
        }
        let (on_page, planes) = classify.page(window, Sample { offset, bytes, n_bytes }, bit_planes(code_point));
        let on_page = on_page & left;
        for (all, plane) in bits.iter_mut().zip(planes) {
            *all |= plane & on_page;
        }
        left &= !(on_page | 1 << offset);
    }
    // The bits of `Class` as numbers.
    let [low, middle, high] = bits;
    NonAscii {
        letter: !high & (low | middle),
        upper: !high & low & !middle,
        uncased: !high & low & middle,
        mark: high & !low & !middle,
        number: high & low & !middle,
        space: high & middle,
    }
}
