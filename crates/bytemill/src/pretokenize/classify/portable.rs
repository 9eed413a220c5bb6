//! Any processor: eight bytes at a time in a 64-bit register.

use super::classifier::{Ascii, Classify, Window};
use super::mask::Words;
use super::{BLOCK_BYTES, WIDE_BLOCKS};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;

/// The high bit of each byte that is at least `least`, 1 to 128. The high bits of `word` are clear.
#[inline]
fn at_least(word: u64, least: u64) -> u64 {
    // No byte overflows into the next: 127 + (128 - least) < 256.
    (word + (0x80 - least) * ONES) & HIGH
}

/// The high bit of each byte in `first..=last`. The high bits of `word` are clear.
#[inline]
fn within(word: u64, first: u64, last: u64) -> u64 {
    at_least(word, first) & !at_least(word, last + 1)
}

/// Gathers the high bits of the eight bytes in the lowest eight bits.
#[inline]
fn gather(flags: u64) -> u64 {
    // The factor moves the bit of byte k to bit 56 + k. No two bits collide.
    (flags >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// No special instructions.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Classify for Portable {
    type Mask = Words;

    #[inline(always)]
    fn mask(self, words: [u64; WIDE_BLOCKS]) -> Words {
        Words(words)
    }

    #[inline(always)]
    fn ascii(self, window: &Window) -> Ascii {
        let mut all = Ascii::default();
        for (k, eight) in window[..BLOCK_BYTES].chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
            let (high, low) = (word & HIGH, word & !HIGH);
            let ascii = !high;
            let put = |mask: &mut u64, flags: u64| *mask |= gather(flags) << (8 * k);
            put(&mut all.letter, within(low | (0x20 * ONES), b'a'.into(), b'z'.into()) & ascii);
            put(&mut all.upper, within(low, b'A'.into(), b'Z'.into()) & ascii);
            put(&mut all.digit, within(low, b'0'.into(), b'9'.into()) & ascii);
            put(&mut all.blank, within(low, b' '.into(), b' '.into()) & ascii);
            put(&mut all.apostrophe, within(low, b'\''.into(), b'\''.into()) & ascii);
            put(&mut all.slash, within(low, b'/'.into(), b'/'.into()) & ascii);
            let newline = (within(low, 0x0A, 0x0A) | within(low, 0x0D, 0x0D)) & ascii;
            put(&mut all.newline, newline);
            put(&mut all.tab, within(low, 0x09, 0x0D) & ascii & !newline);
            put(&mut all.high, high);
            put(&mut all.continuation, high & !(word << 1));
        }
        all
    }
}
