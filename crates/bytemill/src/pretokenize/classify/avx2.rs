//! AVX2: a block in two registers. A comparison sets bytes to ones, and their high bits form the mask. Masks of eight blocks too
//! are in two registers.

use super::classifier::{Ascii, CJK, Classify, Sample, WRITE_WIDTH, Window, implement, opaque};
use super::mask::{Mask, carries};
use super::{BLOCK_BYTES, WIDE_BLOCKS};
use crate::sys::cpu::Avx2;
use crate::text::unicode::BitPlanes;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitOr, Not};

implement!("avx2,bmi1,bmi2,lzcnt,popcnt", Classify for Avx2 {
    type Mask = Ymms;
    fn mask(self, words: [u64; WIDE_BLOCKS]) -> Ymms = Ymms::new;
    fn ascii(self, window: &Window) -> Ascii = ascii;
    fn cjk(self, window: &Window) -> u64 = cjk;
    fn page(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) = page;
    fn write_positions(self, offset: usize, mask: u64, room: &mut [MaybeUninit<usize>]) -> () = write_positions;
});

/// Loads the 32 bytes at `offset`.
#[inline]
#[target_feature(enable = "avx2")]
fn load(window: &Window, offset: usize) -> __m256i {
    let bytes = &window[offset..offset + 32];
    // SAFETY: the slice has 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Loads a table of 16 bytes into both halves, as `_mm256_shuffle_epi8` needs it.
#[inline]
#[target_feature(enable = "avx2")]
fn table(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: the array has 16 bytes, and the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn set(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte.cast_signed())
}

/// Gathers the high bit of each byte.
#[inline]
#[target_feature(enable = "avx2")]
fn mask([low, high]: [__m256i; 2]) -> u64 {
    let bits = |half| u64::from(_mm256_movemask_epi8(half).cast_unsigned());
    opaque(bits(low) | bits(high) << 32)
}

/// Sets the bytes equal to `byte` to ones.
#[inline]
#[target_feature(enable = "avx2")]
fn is(bytes: __m256i, byte: u8) -> __m256i {
    _mm256_cmpeq_epi8(bytes, set(byte))
}

/// Sets the bytes in `first..=last` to ones: for these, `byte - first` (unsigned) is at most `last - first`.
#[inline]
#[target_feature(enable = "avx2")]
fn within(bytes: __m256i, first: u8, last: u8) -> __m256i {
    let shifted = _mm256_sub_epi8(bytes, set(first));
    _mm256_cmpeq_epi8(_mm256_min_epu8(shifted, set(last - first)), shifted)
}

#[inline]
#[target_feature(enable = "avx2")]
fn ascii(_: Avx2, window: &Window) -> Ascii {
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
fn cjk(_: Avx2, window: &Window) -> u64 {
    mask([0, 32].map(|half| {
        let (lead, second) = (load(window, half), load(window, half + 1));
        let row = _mm256_and_si256(lead, set(0x0F));
        let first = _mm256_shuffle_epi8(table(&CJK.first), row);
        let last = _mm256_shuffle_epi8(table(&CJK.last), row);
        let from_first = _mm256_cmpeq_epi8(_mm256_max_epu8(second, first), second);
        let to_last = _mm256_cmpeq_epi8(_mm256_min_epu8(second, last), second);
        _mm256_and_si256(_mm256_and_si256(from_first, to_last), within(lead, 0xE0, 0xEF))
    }))
}

/// The positions of the bits of each byte.
static BIT_POSITIONS: [[u8; 8]; 256] = {
    let mut positions = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                positions[byte][n] = bit;
                n += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    positions
};

/// Writes eight entries for each byte of the mask, in two stores. The next byte overwrites those after its last bit.
#[inline]
#[target_feature(enable = "avx2")]
fn write_positions(_: Avx2, offset: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
    if mask == 0 {
        return;
    }
    let room = &mut room[..BLOCK_BYTES + WRITE_WIDTH];
    let mut offset = _mm256_set1_epi64x(offset as i64);
    let mut n_written = 0;
    for byte in mask.to_le_bytes() {
        let (positions, _) = BIT_POSITIONS[usize::from(byte)].as_chunks();
        for (k, &four) in positions.iter().enumerate() {
            let entries = _mm256_add_epi64(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(i32::from_le_bytes(four))), offset);
            // SAFETY: each of the up to seven bytes before has at most eight bits, so the four entries, `usize` of 64 bits, end
            // within the first 64 of `room`.
            unsafe { _mm256_storeu_si256(room.as_mut_ptr().add(n_written + 4 * k).cast(), entries) };
        }
        n_written += byte.count_ones() as usize;
        offset = _mm256_add_epi64(offset, _mm256_set1_epi64x(8));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn page(_: Avx2, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
    let Sample { bytes, n_bytes, .. } = sample;
    let found = [0, 32].map(|half| {
        // The low seven bits of the code point: the lowest bit of the last byte but one and six bits of the last byte.
        let (last_but_one, last) = (load(window, half + n_bytes - 2), load(window, half + n_bytes - 1));
        let mut on_page = is(_mm256_and_si256(last_but_one, set(0xFE)), bytes[n_bytes - 2] & 0xFE);
        // With two bytes this repeats the same comparison, which costs less than a branch.
        let significant = if n_bytes == 2 { 0xFE } else { 0xFF };
        on_page = _mm256_and_si256(
            on_page,
            is(_mm256_and_si256(load(window, half), set(significant)), bytes[0] & significant),
        );
        if n_bytes == 4 {
            on_page = _mm256_and_si256(on_page, is(load(window, half + 1), bytes[1]));
        }
        // The upper four of the seven bits select a byte of a plane, the lower three a bit of that byte.
        let high_bit = _mm256_slli_epi16::<3>(_mm256_and_si256(last_but_one, set(1)));
        let low_bits = _mm256_and_si256(_mm256_srli_epi16::<3>(last), set(7));
        let byte = _mm256_or_si256(high_bit, low_bits);
        let bits = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        let bit = _mm256_shuffle_epi8(table(&bits), _mm256_and_si256(last, set(7)));
        let classes = planes.each_ref().map(|plane| {
            let byte_of_plane = _mm256_shuffle_epi8(table(plane), byte);
            _mm256_cmpeq_epi8(_mm256_and_si256(byte_of_plane, bit), bit)
        });
        (on_page, classes)
    });
    let [low, high] = found;
    (mask([low.0, high.0]), [0, 1, 2].map(|k| mask([low.1[k], high.1[k]])))
}

// Masks of 512 bits in two AVX2 registers.

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
