//! AVX2 and AVX-512.

use super::{Ascii, Classify, LANES};
use std::arch::x86_64::*;

/// The classifiers that this processor runs, the quicker one last.
pub fn available() -> Vec<(&'static str, Classify)> {
    let mut all: Vec<(&'static str, Classify)> = Vec::new();
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        all.push(("avx2", |bytes| unsafe { avx2(bytes) }));
    }
    if is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has AVX-512BW, which includes AVX-512F, and that is all that the function asks for.
        all.push(("avx512", |bytes| unsafe { avx512(bytes) }));
    }
    all
}

/// 64 bytes in two registers; a comparison gives bytes of ones, whose high bits make the mask.
#[target_feature(enable = "avx2")]
fn avx2(bytes: &[u8; LANES]) -> Ascii {
    let (low, high) = bytes.split_at(32);
    // SAFETY: each half is 32 bytes, and the load asks for no alignment.
    let halves = unsafe { [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())] };
    let mask = |of: &dyn Fn(__m256i) -> __m256i| -> u64 {
        let [low, high] = halves.map(|half| u64::from(_mm256_movemask_epi8(of(half)).cast_unsigned()));
        low | high << 32
    };
    let is = |byte: u8| move |half| _mm256_cmpeq_epi8(half, _mm256_set1_epi8(byte.cast_signed()));
    // `byte - first`, unsigned, is at most `last - first`: then it is its own minimum with that.
    let within = |first: u8, last: u8| {
        move |half| {
            let moved = _mm256_sub_epi8(half, _mm256_set1_epi8(first.cast_signed()));
            _mm256_cmpeq_epi8(_mm256_min_epu8(moved, _mm256_set1_epi8((last - first).cast_signed())), moved)
        }
    };
    let lower_case = |half| _mm256_or_si256(half, _mm256_set1_epi8(0x20));
    let newline = mask(&is(b'\n')) | mask(&is(b'\r'));
    Ascii {
        letter: mask(&|half| within(b'a', b'z')(lower_case(half))),
        upper: mask(&within(b'A', b'Z')),
        digit: mask(&within(b'0', b'9')),
        blank: mask(&is(b' ')),
        tab: mask(&within(0x09, 0x0D)) & !newline,
        newline,
        apostrophe: mask(&is(b'\'')),
        slash: mask(&is(b'/')),
        high: mask(&|half| half),
        continuation: mask(&within(0x80, 0xBF)),
    }
}

/// 64 bytes in one register; a comparison gives the mask.
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(bytes: &[u8; LANES]) -> Ascii {
    // SAFETY: 64 bytes, and the load asks for no alignment.
    let all = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    let set = |byte: u8| _mm512_set1_epi8(byte.cast_signed());
    let is = |byte: u8| _mm512_cmpeq_epi8_mask(all, set(byte));
    let within =
        |bytes, first: u8, last: u8| _mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, set(first)), set(last - first));
    let newline = is(b'\n') | is(b'\r');
    Ascii {
        letter: within(_mm512_or_si512(all, set(0x20)), b'a', b'z'),
        upper: within(all, b'A', b'Z'),
        digit: within(all, b'0', b'9'),
        blank: is(b' '),
        tab: within(all, 0x09, 0x0D) & !newline,
        newline,
        apostrophe: is(b'\''),
        slash: is(b'/'),
        high: _mm512_movepi8_mask(all),
        continuation: within(all, 0x80, 0xBF),
    }
}
