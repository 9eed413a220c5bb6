//! AVX2: 64 bytes in two registers; a comparison gives bytes of ones, whose high bits make the mask.

use super::eight::carries;
use super::wide::PLAIN;
use super::{AT_ONCE, Ascii, BLOCKS, CONTRACTED, Classify, LANES, Mask, Sample, Window, Work, opaque};
use crate::unicode::BitPlanes;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitOr, Not};

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
    type Mask = Ymms;

    #[inline(always)]
    fn mask(self, words: [u64; BLOCKS]) -> Ymms {
        // SAFETY: `self` says that the processor has AVX2; each half of the array has the 32 bytes that a load reads.
        Ymms([0, 4].map(|half| unsafe { _mm256_loadu_si256(words[half..half + 4].as_ptr().cast()) }))
    }

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
    fn contracted(self, window: &Window, any_case: bool) -> u64 {
        // SAFETY: as above.
        unsafe { contracted(window, any_case) }
    }

    #[inline(always)]
    fn write_places(self, at: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
        // SAFETY: as above.
        unsafe { write_places(at, mask, room) }
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
fn contracted(window: &Window, any_case: bool) -> u64 {
    let case = set(if any_case { 0x20 } else { 0 });
    mask([0, 32].map(|half| {
        let letters = _mm256_or_si256(load(window, half), case);
        let [d, m, s, t] = CONTRACTED.map(|letter| is(letters, letter));
        _mm256_or_si256(_mm256_or_si256(d, m), _mm256_or_si256(s, t))
    }))
}

/// For each byte the places of its bits.
static PLACES: [[u8; 8]; 256] = {
    let mut places = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                places[byte][n] = bit;
                n += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    places
};

/// Eight numbers for each byte of the mask, in two stores; those behind its last bit are written again by the next byte.
#[inline]
#[target_feature(enable = "avx2")]
fn write_places(at: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
    if mask == 0 {
        return;
    }
    let room = &mut room[..LANES + AT_ONCE];
    let mut at = _mm256_set1_epi64x(at as i64);
    let mut n_written = 0;
    for byte in mask.to_le_bytes() {
        for (k, places) in PLACES[usize::from(byte)].chunks_exact(4).enumerate() {
            // SAFETY: the load reads the four bytes of `places`. Each byte before this one has at most eight bits, so these eight
            // numbers, of 64 bits as `usize` is here, end within the first 64 of `room`.
            unsafe {
                let places = _mm256_cvtepu8_epi64(_mm_loadu_si32(places.as_ptr().cast()));
                let to = room.as_mut_ptr().add(n_written + 4 * k);
                _mm256_storeu_si256(to.cast(), _mm256_add_epi64(places, at));
            }
        }
        n_written += byte.count_ones() as usize;
        at = _mm256_add_epi64(at, _mm256_set1_epi64x(8));
    }
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

/// Eight words in two registers. There is a value only where there is one of [`Avx2`].
#[derive(Clone, Copy)]
pub struct Ymms([__m256i; 2]);

impl BitAnd for Ymms {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: `self` says that the processor has AVX2.
        Self(unsafe { [_mm256_and_si256(a, c), _mm256_and_si256(b, d)] })
    }
}

impl BitOr for Ymms {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: as above.
        Self(unsafe { [_mm256_or_si256(a, c), _mm256_or_si256(b, d)] })
    }
}

impl Not for Ymms {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        let [a, b] = self.0;
        // SAFETY: as above.
        unsafe {
            let ones = _mm256_set1_epi64x(-1);
            Self([_mm256_xor_si256(a, ones), _mm256_xor_si256(b, ones)])
        }
    }
}

impl Mask for Ymms {
    #[inline(always)]
    fn words(self) -> [u64; BLOCKS] {
        // SAFETY: both are 64 bytes, of which any are good, and the first register is the lower half.
        unsafe { std::mem::transmute(self.0) }
    }

    #[inline(always)]
    fn up<const N: u32>(self, before: u64) -> Self {
        let [a, b] = self.0;
        // SAFETY: `self` says that the processor has AVX2.
        unsafe {
            // The words moved up by one, the highest to the lowest place; then what belongs there.
            let (below_a, below_b) = (_mm256_permute4x64_epi64::<0x93>(a), _mm256_permute4x64_epi64::<0x93>(b));
            let before = _mm256_set1_epi64x((before << (64 - N)).cast_signed());
            let (below_a, below_b) =
                (_mm256_blend_epi32::<3>(below_a, before), _mm256_blend_epi32::<3>(below_b, below_a));
            let (n, rest) = (_mm_cvtsi32_si128(N.cast_signed()), _mm_cvtsi32_si128((64 - N).cast_signed()));
            Self([
                _mm256_or_si256(_mm256_sll_epi64(a, n), _mm256_srl_epi64(below_a, rest)),
                _mm256_or_si256(_mm256_sll_epi64(b, n), _mm256_srl_epi64(below_b, rest)),
            ])
        }
    }

    #[inline(always)]
    fn down(self, behind: u64) -> Self {
        let [a, b] = self.0;
        // SAFETY: as above.
        unsafe {
            let (above_a, above_b) = (_mm256_permute4x64_epi64::<0x39>(a), _mm256_permute4x64_epi64::<0x39>(b));
            let behind = _mm256_set1_epi64x(behind.cast_signed());
            let (above_a, above_b) =
                (_mm256_blend_epi32::<0xC0>(above_a, above_b), _mm256_blend_epi32::<0xC0>(above_b, behind));
            Self([
                _mm256_or_si256(_mm256_srli_epi64::<1>(a), _mm256_slli_epi64::<63>(above_a)),
                _mm256_or_si256(_mm256_srli_epi64::<1>(b), _mm256_slli_epi64::<63>(above_b)),
            ])
        }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: as above.
        unsafe {
            let ones = _mm256_set1_epi64x(-1);
            let sums = [_mm256_add_epi64(a, c), _mm256_add_epi64(b, d)];
            let high_bits = |words| _mm256_movemask_pd(_mm256_castsi256_pd(words)).cast_unsigned();
            // A word has overflowed if both had the highest bit, or one had and the sum has not.
            let over = |one, other, sum| {
                let either = _mm256_andnot_si256(sum, _mm256_or_si256(one, other));
                high_bits(_mm256_or_si256(_mm256_and_si256(one, other), either))
            };
            let full = |sum| high_bits(_mm256_cmpeq_epi64(sum, ones));
            let all_over = over(a, c, sums[0]) | over(b, d, sums[1]) << 4;
            let carries = carries(all_over, full(sums[0]) | full(sums[1]) << 4);
            let spread = _mm256_set1_epi64x(carries.into());
            let with_carries = |sum, bits| {
                let chosen = _mm256_cmpeq_epi64(_mm256_and_si256(spread, bits), bits);
                _mm256_sub_epi64(sum, chosen)
            };
            let (low, high) = (_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128));
            (Self([with_carries(sums[0], low), with_carries(sums[1], high)]), carries >> BLOCKS != 0)
        }
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        let [a, b] = self.0;
        // SAFETY: as above.
        unsafe {
            let any = _mm256_or_si256(a, b);
            _mm256_testz_si256(any, any) == 1
        }
    }

    #[inline(always)]
    fn last_word(self) -> u64 {
        // SAFETY: as above.
        unsafe { _mm256_extract_epi64::<3>(self.0[1]) }.cast_unsigned()
    }
}
