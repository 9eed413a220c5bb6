//! NEON, which every 64-bit ARM has.

use super::{Ascii, LANES};
use std::arch::aarch64::*;

/// Four registers of bytes of ones and zeros as one mask.
fn gather(flags: [uint8x16_t; 4]) -> u64 {
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: NEON is part of every 64-bit ARM, and `BITS` has the 16 bytes that the load reads.
    unsafe {
        let bits = vld1q_u8(BITS.as_ptr());
        let [a, b, c, d] = flags.map(|flags| vandq_u8(flags, bits));
        // Three rounds of pairwise sums bring eight bits, one a lane, into each byte.
        let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    }
}

/// See [`super::Classify`].
pub fn classify(bytes: &[u8; LANES]) -> Ascii {
    // SAFETY: NEON is part of every 64-bit ARM, and the four loads read 64 bytes.
    unsafe {
        let load = |k: usize| vld1q_u8(bytes[16 * k..16 * k + 16].as_ptr());
        let quarters = [load(0), load(1), load(2), load(3)];
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
