//! AVX2: 64 bytes in two registers; a comparison gives bytes of ones, whose high bits make the mask.

use super::wide::PLAIN;
use super::{Ascii, Classify, Sample, Window, Work, opaque};
use crate::unicode::BitPlanes;
use std::arch::x86_64::*;

/// There is a value of this type only where the processor has the features that the functions below are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    pub fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Self(()))
    }

    pub fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled<W: Work>(avx2: Avx2, work: W) -> W::Output {
            work.run(avx2)
        }
        // SAFETY: `self` says that the processor has these features.
        unsafe { compiled(self, work) }
    }
}

impl Classify for Avx2 {
    #[inline(always)]
    fn ascii(self, window: &Window) -> Ascii {
        // SAFETY: `self` says that the processor has AVX2.
        unsafe { ascii(window) }
    }

    #[inline(always)]
    fn plain_letters(self, window: &Window) -> u64 {
        // SAFETY: as above.
        unsafe { plain_letters(window) }
    }

    #[inline(always)]
    fn alike(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
        // SAFETY: as above.
        unsafe { alike(window, sample, planes) }
    }
}

/// The 32 bytes from `offset` on.
#[inline]
#[target_feature(enable = "avx2")]
fn load(window: &Window, offset: usize) -> __m256i {
    let bytes = &window[offset..offset + 32];
    // SAFETY: the slice has 32 bytes, and the load asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// A table of 16 bytes, twice over, as `_mm256_shuffle_epi8` wants it.
#[inline]
#[target_feature(enable = "avx2")]
fn table(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: the array has 16 bytes, and the load asks for no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn set(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte.cast_signed())
}

/// The high bit of each byte of the two halves.
#[inline]
#[target_feature(enable = "avx2")]
fn mask([low, high]: [__m256i; 2]) -> u64 {
    let bits = |half| u64::from(_mm256_movemask_epi8(half).cast_unsigned());
    opaque(bits(low) | bits(high) << 32)
}

/// Bytes of ones where `bytes` has `byte`.
#[inline]
#[target_feature(enable = "avx2")]
fn is(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(bytes, set(byte))
}

/// Bytes of ones where `bytes` is in `first..=last`: `byte - first`, unsigned, is its own minimum with `last - first`.
#[inline]
#[target_feature(enable = "avx2")]
fn within(bytes: __m256i, first: u8, last: u8) -> __m256i {
    let moved = _mm256_sub_epi8(bytes, set(first));
    _mm256_cmpeq_epi8(_mm256_min_epu8(moved, set(last - first)), moved)
}

#[inline]
#[target_feature(enable = "avx2")]
fn ascii(window: &Window) -> Ascii {
    let halves = [load(window, 0), load(window, 32)];
    let all = |byte: u8| mask(halves.map(|half| is(half, byte)));
    let all_within = |first: u8, last: u8| mask(halves.map(|half| within(half, first, last)));
    let newline = all(b'\n') | all(b'\r');
    Ascii {
        letter: mask(halves.map(|half| within(_mm256_or_si256(half, set(0x20)), b'a', b'z'))),
        upper: all_within(b'A', b'Z'),
        digit: all_within(b'0', b'9'),
        blank: all(b' '),
        tab: all_within(0x09, 0x0D) & !newline,
        newline,
        apostrophe: all(b'\''),
        slash: all(b'/'),
        high: mask(halves),
        continuation: all_within(0x80, 0xBF),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn plain_letters(window: &Window) -> u64 {
    mask([0, 32].map(|half| {
        let (lead, second) = (load(window, half), load(window, half + 1));
        let number = _mm256_and_si256(lead, set(0x0F));
        let first = _mm256_shuffle_epi8(table(&PLAIN.first), number);
        let last = _mm256_shuffle_epi8(table(&PLAIN.last), number);
        let from_first = _mm256_cmpeq_epi8(_mm256_max_epu8(second, first), second);
        let to_last = _mm256_cmpeq_epi8(_mm256_min_epu8(second, last), second);
        _mm256_and_si256(_mm256_and_si256(from_first, to_last), within(lead, 0xE0, 0xEF))
    }))
}

#[inline]
#[target_feature(enable = "avx2")]
fn alike(window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
    let Sample { bytes, n_bytes, .. } = sample;
    let found = [0, 32].map(|half| {
        // The seven bits are the lowest of the last byte but one and six of the last.
        let (last_but_one, last) = (load(window, half + n_bytes - 2), load(window, half + n_bytes - 1));
        let mut alike = is(_mm256_and_si256(last_but_one, set(0xFE)), bytes[n_bytes - 2] & 0xFE);
        // With two bytes this is the same comparison once more, which costs less than a branch.
        let care = if n_bytes == 2 { 0xFE } else { 0xFF };
        alike = _mm256_and_si256(alike, is(_mm256_and_si256(load(window, half), set(care)), bytes[0] & care));
        if n_bytes == 4 {
            alike = _mm256_and_si256(alike, is(load(window, half + 1), bytes[1]));
        }
        // The upper four of the seven bits choose a byte of a plane, the lower three a bit of it.
        let high_bit = _mm256_slli_epi16::<3>(_mm256_and_si256(last_but_one, set(1)));
        let low_bits = _mm256_and_si256(_mm256_srli_epi16::<3>(last), set(7));
        let byte = _mm256_or_si256(high_bit, low_bits);
        let bits = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        let bit = _mm256_shuffle_epi8(table(&bits), _mm256_and_si256(last, set(7)));
        let classes = planes.each_ref().map(|plane| {
            let byte_of_plane = _mm256_shuffle_epi8(table(plane), byte);
            _mm256_cmpeq_epi8(_mm256_and_si256(byte_of_plane, bit), bit)
        });
        (alike, classes)
    });
    let [low, high] = found;
    (mask([low.0, high.0]), [0, 1, 2].map(|k| mask([low.1[k], high.1[k]])))
}
