//! NEON, which every 64-bit ARM has: 64 bytes in four registers.

use super::eight::Words;
use super::wide::PLAIN;
use super::{Ascii, BLOCKS, Classify, Sample, Window};
use crate::unicode::BitPlanes;
use std::arch::aarch64::*;

/// A 64-bit ARM.
#[derive(Clone, Copy, Debug)]
pub struct Neon;

/// Where the four registers begin in the window.
const QUARTERS: [usize; 4] = [0, 16, 32, 48];

/// One bit of each byte, by its lowest three bits.
const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Sixteen bytes.
#[inline(always)]
fn load(bytes: &[u8]) -> uint8x16_t {
    let bytes: &[u8; 16] = bytes.first_chunk().expect("callers give 16 bytes or more");
    // SAFETY: NEON is part of every 64-bit ARM, and the array has the 16 bytes that the load reads.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Four registers of bytes of ones and zeros as one mask.
#[inline(always)]
fn gather(flags: [uint8x16_t; 4]) -> u64 {
    let bits = load(&BITS);
    // SAFETY: NEON is part of every 64-bit ARM.
    unsafe {
        let [a, b, c, d] = flags.map(|flags| vandq_u8(flags, bits));
        // Three rounds of pairwise sums bring eight bits, one a lane, into each byte.
        let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    }
}

impl Classify for Neon {
    type Mask = Words;

    #[inline(always)]
    fn mask(self, words: [u64; BLOCKS]) -> Words {
        Words(words)
    }

    #[inline(always)]
    fn ascii(self, window: &Window) -> Ascii {
        let quarters = QUARTERS.map(|at| load(&window[at..]));
        // SAFETY: NEON is part of every 64-bit ARM.
        unsafe {
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
    }

    #[inline(always)]
    fn plain_letters(self, window: &Window) -> u64 {
        gather(QUARTERS.map(|at| {
            let (lead, second) = (load(&window[at..]), load(&window[at + 1..]));
            // SAFETY: NEON is part of every 64-bit ARM.
            unsafe {
                let number = vandq_u8(lead, vdupq_n_u8(0x0F));
                let from_first = vcgeq_u8(second, vqtbl1q_u8(load(&PLAIN.first), number));
                let to_last = vcleq_u8(second, vqtbl1q_u8(load(&PLAIN.last), number));
                let of_three = vceqq_u8(vandq_u8(lead, vdupq_n_u8(0xF0)), vdupq_n_u8(0xE0));
                vandq_u8(vandq_u8(from_first, to_last), of_three)
            }
        }))
    }

    #[inline(always)]
    fn alike(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
        let Sample { bytes, n_bytes, .. } = sample;
        let found = QUARTERS.map(|at| {
            // The seven bits are the lowest of the last byte but one and six of the last.
            let (last_but_one, last) = (load(&window[at + n_bytes - 2..]), load(&window[at + n_bytes - 1..]));
            // SAFETY: NEON is part of every 64-bit ARM.
            unsafe {
                let pair = vdupq_n_u8(bytes[n_bytes - 2] & 0xFE);
                let mut alike = vceqq_u8(vandq_u8(last_but_one, vdupq_n_u8(0xFE)), pair);
                if n_bytes > 2 {
                    alike = vandq_u8(alike, vceqq_u8(load(&window[at..]), vdupq_n_u8(bytes[0])));
                }
                if n_bytes > 3 {
                    alike = vandq_u8(alike, vceqq_u8(load(&window[at + 1..]), vdupq_n_u8(bytes[1])));
                }
                // The upper four of the seven bits choose a byte of a plane, the lower three a bit of it.
                let high_bit = vshlq_n_u8::<3>(vandq_u8(last_but_one, vdupq_n_u8(1)));
                let low_bits = vandq_u8(vshrq_n_u8::<3>(last), vdupq_n_u8(7));
                let byte = vorrq_u8(high_bit, low_bits);
                let bit = vqtbl1q_u8(load(&BITS), vandq_u8(last, vdupq_n_u8(7)));
                let classes = planes.each_ref().map(|plane| vtstq_u8(vqtbl1q_u8(load(plane), byte), bit));
                [alike, classes[0], classes[1], classes[2]]
            }
        });
        let [alike, low, middle, high] = [0, 1, 2, 3].map(|k| gather(found.map(|quarter| quarter[k])));
        (alike, [low, middle, high])
    }
}
