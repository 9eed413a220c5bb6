//! NEON: a block in four registers.

use super::WIDE_BLOCKS;
use super::classifier::{Ascii, CJK, Classify, Sample, Window, implement};
use super::mask::Words;
use crate::sys::cpu::Neon;
use crate::text::unicode::BitPlanes;
use std::arch::aarch64::*;

implement!("neon", Classify for Neon {
    type Mask = Words;
    fn mask(self, words: [u64; WIDE_BLOCKS]) -> Words = |_, words| Words(words);
    fn ascii(self, window: &Window) -> Ascii = ascii;
    fn cjk(self, window: &Window) -> u64 = cjk;
    fn page(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) = page;
});

/// Offsets of the four registers in the window.
const QUARTERS: [usize; 4] = [0, 16, 32, 48];

/// One bit of each byte, selected by its lowest three bits.
const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Loads 16 bytes at `offset`.
#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8], offset: usize) -> uint8x16_t {
    let bytes = &bytes[offset..offset + 16];
    // SAFETY: the slice has 16 bytes, and the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Turns four registers with bytes of ones or zeros into a mask.
#[inline]
#[target_feature(enable = "neon")]
fn gather(flags: [uint8x16_t; 4]) -> u64 {
    let bits = load(&BITS, 0);
    let [a, b, c, d] = flags.map(|flags| vandq_u8(flags, bits));
    // Three rounds of pairwise sums collect eight bits, one per lane, in each byte.
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}

#[inline]
#[target_feature(enable = "neon")]
fn ascii(_: Neon, window: &Window) -> Ascii {
    let quarters = QUARTERS.map(|offset| load(window, offset));
    let is = |byte: u8| gather(quarters.map(|quarter| vceqq_u8(quarter, vdupq_n_u8(byte))));
    let within_of =
        |quarter, first: u8, last: u8| vcleq_u8(vsubq_u8(quarter, vdupq_n_u8(first)), vdupq_n_u8(last - first));
    let within = |first: u8, last: u8| gather(quarters.map(|quarter| within_of(quarter, first, last)));
    let newline = is(b'\n') | is(b'\r');
    Ascii {
        letter: gather(quarters.map(|quarter| within_of(vorrq_u8(quarter, vdupq_n_u8(0x20)), b'a', b'z'))),
        upper: within(b'A', b'Z'),
        digit: within(b'0', b'9'),
        blank: is(b' '),
        tab: within(0x09, 0x0D) & !newline,
        newline,
        apostrophe: is(b'\''),
        slash: is(b'/'),
        high: within(0x80, 0xFF),
        continuation: within(0x80, 0xBF),
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn cjk(_: Neon, window: &Window) -> u64 {
    gather(QUARTERS.map(|offset| {
        let (lead, second) = (load(window, offset), load(window, offset + 1));
        let row = vandq_u8(lead, vdupq_n_u8(0x0F));
        let from_first = vcgeq_u8(second, vqtbl1q_u8(load(&CJK.first, 0), row));
        let to_last = vcleq_u8(second, vqtbl1q_u8(load(&CJK.last, 0), row));
        let of_three = vceqq_u8(vandq_u8(lead, vdupq_n_u8(0xF0)), vdupq_n_u8(0xE0));
        vandq_u8(vandq_u8(from_first, to_last), of_three)
    }))
}

#[inline]
#[target_feature(enable = "neon")]
fn page(_: Neon, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
    let Sample { bytes, n_bytes, .. } = sample;
    let found = QUARTERS.map(|offset| {
        // The low seven bits of the code point: the lowest bit of the last byte but one and six bits of the last byte.
        let (last_but_one, last) = (load(window, offset + n_bytes - 2), load(window, offset + n_bytes - 1));
        let pair = vdupq_n_u8(bytes[n_bytes - 2] & 0xFE);
        let mut on_page = vceqq_u8(vandq_u8(last_but_one, vdupq_n_u8(0xFE)), pair);
        if n_bytes > 2 {
            on_page = vandq_u8(on_page, vceqq_u8(load(window, offset), vdupq_n_u8(bytes[0])));
        }
        if n_bytes > 3 {
            on_page = vandq_u8(on_page, vceqq_u8(load(window, offset + 1), vdupq_n_u8(bytes[1])));
        }
        // The upper four of the seven bits select a byte of a plane, the lower three a bit of that byte.
        let high_bit = vshlq_n_u8::<3>(vandq_u8(last_but_one, vdupq_n_u8(1)));
        let low_bits = vandq_u8(vshrq_n_u8::<3>(last), vdupq_n_u8(7));
        let byte = vorrq_u8(high_bit, low_bits);
        let bit = vqtbl1q_u8(load(&BITS, 0), vandq_u8(last, vdupq_n_u8(7)));
        let classes = planes.each_ref().map(|plane| vtstq_u8(vqtbl1q_u8(load(plane, 0), byte), bit));
        [on_page, classes[0], classes[1], classes[2]]
    });
    let [on_page, low, middle, high] = [0, 1, 2, 3].map(|k| gather(found.map(|quarter| quarter[k])));
    (on_page, [low, middle, high])
}
