//! Masks of 512 bits in two AVX2 registers.

use super::WIDE_BLOCKS;
use super::classifier::implement;
use super::mask::{Mask, carries};
use crate::sys::cpu::Avx2;
use std::arch::x86_64::*;
use std::ops::{BitAnd, BitOr, Not};

/// The proof that the processor has AVX2, and eight words in two registers.
#[derive(Clone, Copy)]
pub struct Ymms(Avx2, [__m256i; 2]);

implement!("avx2", BitAnd for Ymms {
    type Output = Ymms;
    fn bitand(self, other: Ymms) -> Ymms =
        |Ymms(cpu, [a, b]), Ymms(_, [c, d])| Ymms(cpu, [_mm256_and_si256(a, c), _mm256_and_si256(b, d)]);
});

implement!("avx2", BitOr for Ymms {
    type Output = Ymms;
    fn bitor(self, other: Ymms) -> Ymms =
        |Ymms(cpu, [a, b]), Ymms(_, [c, d])| Ymms(cpu, [_mm256_or_si256(a, c), _mm256_or_si256(b, d)]);
});

implement!("avx2", Not for Ymms {
    type Output = Ymms;
    fn not(self) -> Ymms =
        |Ymms(cpu, halves)| Ymms(cpu, halves.map(|half| _mm256_xor_si256(half, _mm256_set1_epi64x(-1))));
});

implement!("avx2", Mask for Ymms {
    type Words = [u64; WIDE_BLOCKS];
    fn words(self) -> [u64; WIDE_BLOCKS] = Ymms::store;
    fn with_words(self, words: [u64; WIDE_BLOCKS]) -> Ymms = |Ymms(cpu, _), words| Ymms::new(cpu, words);
    fn up(self, n: u32, before: u64) -> Ymms = Ymms::shift_up;
    fn down(self, after: u64) -> Ymms = Ymms::shift_down;
    fn plus(self, other: Ymms) -> (Ymms, bool) = Ymms::add;
    fn is_zero(self) -> bool = |Ymms(_, [a, b])| _mm256_testz_si256(_mm256_or_si256(a, b), _mm256_or_si256(a, b)) == 1;
});

impl Ymms {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn new(cpu: Avx2, words: [u64; WIDE_BLOCKS]) -> Self {
        let [a, b, c, d, e, f, g, h] = words.map(u64::cast_signed);
        Self(cpu, [_mm256_setr_epi64x(a, b, c, d), _mm256_setr_epi64x(e, f, g, h)])
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(self) -> [u64; WIDE_BLOCKS] {
        let mut words = [0; WIDE_BLOCKS];
        for (half, four) in self.1.into_iter().zip(words.as_chunks_mut::<4>().0) {
            // SAFETY: the array has 32 bytes, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), half) };
        }
        words
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shift_up(self, n: u32, before: u64) -> Self {
        let [a, b] = self.1;
        // Each word's lower neighbour: rotate by one word, then replace the lowest.
        let (below_a, below_b) = (_mm256_permute4x64_epi64::<0x93>(a), _mm256_permute4x64_epi64::<0x93>(b));
        let before = _mm256_set1_epi64x((before << (64 - n)).cast_signed());
        let (below_a, below_b) = (_mm256_blend_epi32::<3>(below_a, before), _mm256_blend_epi32::<3>(below_b, below_a));
        let (n, rest) = (_mm_cvtsi32_si128(n.cast_signed()), _mm_cvtsi32_si128((64 - n).cast_signed()));
        Self(
            self.0,
            [
                _mm256_or_si256(_mm256_sll_epi64(a, n), _mm256_srl_epi64(below_a, rest)),
                _mm256_or_si256(_mm256_sll_epi64(b, n), _mm256_srl_epi64(below_b, rest)),
            ],
        )
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shift_down(self, after: u64) -> Self {
        let [a, b] = self.1;
        let (above_a, above_b) = (_mm256_permute4x64_epi64::<0x39>(a), _mm256_permute4x64_epi64::<0x39>(b));
        let after = _mm256_set1_epi64x(after.cast_signed());
        let (above_a, above_b) =
            (_mm256_blend_epi32::<0xC0>(above_a, above_b), _mm256_blend_epi32::<0xC0>(above_b, after));
        Self(
            self.0,
            [
                _mm256_or_si256(_mm256_srli_epi64::<1>(a), _mm256_slli_epi64::<63>(above_a)),
                _mm256_or_si256(_mm256_srli_epi64::<1>(b), _mm256_slli_epi64::<63>(above_b)),
            ],
        )
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(self, other: Self) -> (Self, bool) {
        let ([a, b], [c, d]) = (self.1, other.1);
        let ones = _mm256_set1_epi64x(-1);
        let sums = [_mm256_add_epi64(a, c), _mm256_add_epi64(b, d)];
        let high_bits = |words| _mm256_movemask_pd(_mm256_castsi256_pd(words)).cast_unsigned();
        // A word has overflowed if both summands had the highest bit, or one had it and the sum does not.
        let over = |one, other, sum| {
            let either = _mm256_andnot_si256(sum, _mm256_or_si256(one, other));
            high_bits(_mm256_or_si256(_mm256_and_si256(one, other), either))
        };
        let full = |sum| high_bits(_mm256_cmpeq_epi64(sum, ones));
        let all_over = over(a, c, sums[0]) | over(b, d, sums[1]) << 4;
        let carries = carries(all_over, full(sums[0]) | full(sums[1]) << 4);
        let spread = _mm256_set1_epi64x(carries.into());
        let with_carries = |sum, bits| {
            let receives = _mm256_cmpeq_epi64(_mm256_and_si256(spread, bits), bits);
            _mm256_sub_epi64(sum, receives)
        };
        let (low, high) = (_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128));
        (Self(self.0, [with_carries(sums[0], low), with_carries(sums[1], high)]), carries >> WIDE_BLOCKS != 0)
    }
}
