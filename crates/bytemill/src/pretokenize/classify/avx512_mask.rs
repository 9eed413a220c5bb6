//! Masks of 512 bits in one AVX-512 register.

use super::WIDE_BLOCKS;
use super::classifier::implement;
use super::mask::{Mask, carries};
use crate::sys::cpu::Avx512;
use std::arch::x86_64::*;
use std::ops::{BitAnd, BitOr, Not};

/// The proof that the processor has AVX-512, and eight words in one register.
#[derive(Clone, Copy)]
pub struct Zmm(pub Avx512, pub __m512i);

implement!("avx512f", BitAnd for Zmm {
    type Output = Zmm;
    fn bitand(self, other: Zmm) -> Zmm = |Zmm(cpu, one), Zmm(_, other)| Zmm(cpu, _mm512_and_si512(one, other));
});

implement!("avx512f", BitOr for Zmm {
    type Output = Zmm;
    fn bitor(self, other: Zmm) -> Zmm = |Zmm(cpu, one), Zmm(_, other)| Zmm(cpu, _mm512_or_si512(one, other));
});

implement!("avx512f", Not for Zmm {
    type Output = Zmm;
    fn not(self) -> Zmm = |Zmm(cpu, words)| Zmm(cpu, _mm512_xor_si512(words, _mm512_set1_epi64(-1)));
});

implement!("avx512f,avx512vbmi2", Mask for Zmm {
    type Words = [u64; WIDE_BLOCKS];
    fn words(self) -> [u64; WIDE_BLOCKS] = Zmm::store;
    fn with_words(self, words: [u64; WIDE_BLOCKS]) -> Zmm = |Zmm(cpu, _), words| Zmm::new(cpu, words);
    fn up(self, n: u32, before: u64) -> Zmm = Zmm::shift_up;
    fn down(self, after: u64) -> Zmm = Zmm::shift_down;
    fn plus(self, other: Zmm) -> (Zmm, bool) = Zmm::add;
    fn is_zero(self) -> bool = |Zmm(_, words)| _mm512_test_epi64_mask(words, words) == 0;
});

impl Zmm {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn new(cpu: Avx512, words: [u64; WIDE_BLOCKS]) -> Self {
        let [a, b, c, d, e, f, g, h] = words.map(u64::cast_signed);
        Self(cpu, _mm512_setr_epi64(a, b, c, d, e, f, g, h))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(self) -> [u64; WIDE_BLOCKS] {
        let mut words = [0; WIDE_BLOCKS];
        // SAFETY: the array has 64 bytes, and the store needs no alignment.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.1) };
        words
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi2")]
    fn shift_up(self, n: u32, before: u64) -> Self {
        let below = _mm512_alignr_epi64::<7>(self.1, _mm512_set1_epi64((before << (64 - n)).cast_signed()));
        Self(self.0, _mm512_shldv_epi64(self.1, below, _mm512_set1_epi64(n.into())))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vbmi2")]
    fn shift_down(self, after: u64) -> Self {
        let above = _mm512_alignr_epi64::<1>(_mm512_set1_epi64(after.cast_signed()), self.1);
        Self(self.0, _mm512_shrdi_epi64::<1>(self.1, above))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(self, other: Self) -> (Self, bool) {
        let sum = _mm512_add_epi64(self.1, other.1);
        let ones = _mm512_set1_epi64(-1);
        let over = _mm512_cmplt_epu64_mask(sum, other.1);
        let full = _mm512_cmpeq_epi64_mask(sum, ones);
        let carries = carries(over.into(), full.into());
        let [receive, overflow, ..] = carries.to_le_bytes();
        (Self(self.0, _mm512_mask_sub_epi64(sum, receive, sum, ones)), overflow != 0)
    }
}
