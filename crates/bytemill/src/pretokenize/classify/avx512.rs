//! AVX-512 with VBMI2 and GFNI (Ice Lake, Zen 4 and later): 64 bytes in one register; a comparison gives the mask.

use super::eight::carries;
use super::wide::PLAIN;
use super::{AT_ONCE, Ascii, BLOCKS, CONTRACTED, Classify, LANES, Mask, Sample, WideWindow, Window, Work, opaque};
use crate::unicode::BitPlanes;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitOr, Not};

/// There is a value of this type only where the processor has the features that the functions below are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    pub fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has_all.then_some(Self(()))
    }

    pub fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled<W: Work>(avx512: Avx512, work: W) -> W::Output {
            work.run(avx512)
        }
        // SAFETY: `self` says that the processor has these features.
        unsafe { compiled(self, work) }
    }
}

impl Classify for Avx512 {
    type Mask = Zmm;

    #[inline(always)]
    fn mask(self, words: [u64; BLOCKS]) -> Zmm {
        // SAFETY: `self` says that the processor has AVX-512F; the array has the 64 bytes that the load reads.
        Zmm(unsafe { _mm512_loadu_si512(words.as_ptr().cast()) })
    }

    #[inline(always)]
    fn ascii(self, window: &Window) -> Ascii {
        // SAFETY: `self` says that the processor has AVX-512F and AVX-512BW.
        unsafe { ascii(window) }
    }

    #[inline(always)]
    fn ascii_of_eight(self, window: &WideWindow) -> Ascii<Zmm> {
        // SAFETY: `self` says that the processor has AVX-512F, AVX-512BW, AVX-512VBMI and GFNI.
        unsafe { ascii_of_eight(window) }
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
    fn alike(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
        // SAFETY: as above.
        unsafe { alike(window, sample, planes) }
    }

    #[inline(always)]
    fn write_places(self, at: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
        // SAFETY: `self` says that the processor has AVX-512F and AVX-512VBMI2.
        unsafe { write_places(at, mask, room) }
    }
}

/// The 64 bytes from `offset` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(window: &Window, offset: usize) -> __m512i {
    let bytes = &window[offset..offset + LANES];
    // SAFETY: the slice has 64 bytes, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// A table of 16 bytes, four times over, as `_mm512_shuffle_epi8` wants it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn table(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: the array has 16 bytes, and the load asks for no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn set(byte: u8) -> __m512i {
    _mm512_set1_epi8(byte.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn ascii(window: &Window) -> Ascii {
    let all = load(window, 0);
    let is = |byte: u8| opaque(_mm512_cmpeq_epi8_mask(all, set(byte)));
    let within = |bytes, first: u8, last: u8| {
        opaque(_mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, set(first)), set(last - first)))
    };
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
        high: opaque(_mm512_movepi8_mask(all)),
        continuation: within(all, 0x80, 0xBF),
    }
}

/// The classes of the 128 characters, a bit for each, in the order of [`ascii_of_eight`].
const CLASSES: [[u8; LANES]; 2] = {
    let mut classes = [[0; LANES]; 2];
    let mut byte = 0;
    while byte < 128u8 {
        let is_newline = byte == b'\n' || byte == b'\r';
        classes[byte as usize / LANES][byte as usize % LANES] = byte.is_ascii_alphabetic() as u8
            | (byte.is_ascii_uppercase() as u8) << 1
            | (byte.is_ascii_digit() as u8) << 2
            | ((byte == b' ') as u8) << 3
            | ((0x09 <= byte && byte <= 0x0D && !is_newline) as u8) << 4
            | (is_newline as u8) << 5
            | ((byte == b'\'') as u8) << 6
            | ((byte == b'/') as u8) << 7;
        byte += 1;
    }
    classes
};

/// Of a row of eight words of eight bytes each the place in it of the byte that the transposed row has at a place.
const TRANSPOSED: [u8; LANES] = {
    let mut places = [0; LANES];
    let mut place = 0;
    while place < LANES {
        places[place] = (place % 8 * 8 + place / 8) as u8;
        place += 1;
    }
    places
};

/// A table turns each byte into the eight bits of its classes; what remains is to gather the first bits of all bytes, the
/// second bits and so on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn ascii_of_eight(window: &WideWindow) -> Ascii<Zmm> {
    // SAFETY: the arrays have 64 bytes, and the load asks for no alignment.
    let load_all = |bytes: &[u8; LANES]| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    let (low, high, transposed) = (load_all(&CLASSES[0]), load_all(&CLASSES[1]), load_all(&TRANSPOSED));
    // Byte k is 1 << k: as factor of a matrix it gives column k.
    let columns = _mm512_set1_epi64(0x8040_2010_0804_0201u64.cast_signed());
    // Word k of row b: the bits of class k of the bytes of block b.
    let mut rows = [_mm512_setzero_si512(); BLOCKS];
    for (block, row) in rows.iter_mut().enumerate() {
        // SAFETY: the window has eight blocks, and the load asks for no alignment.
        let bytes = unsafe { _mm512_loadu_si512(window.as_ptr().add(block * LANES).cast()) };
        let classes = _mm512_permutex2var_epi8(low, bytes, high);
        // Eight bytes are taken for a matrix of bits, a row each.
        *row = _mm512_permutexvar_epi8(transposed, _mm512_gf2p8affine_epi64_epi8::<0>(columns, classes));
    }
    // Rows to columns: pairs of words, then of pairs, then of fours.
    let [a, b, c, d, e, f, g, h] = rows;
    let even = [(a, b), (c, d), (e, f), (g, h)].map(|(one, other)| _mm512_unpacklo_epi64(one, other));
    let odd = [(a, b), (c, d), (e, f), (g, h)].map(|(one, other)| _mm512_unpackhi_epi64(one, other));
    // A matrix has its first row in the highest byte, so that the bits of each byte have come in reverse.
    let reverse = |bits| Zmm(_mm512_gf2p8affine_epi64_epi8::<0>(bits, columns));
    // Of classes k, k + 2, k + 4 and k + 6 in four pairs of blocks.
    let four = |[p, q, r, s]: [__m512i; 4]| {
        let (low, high) = (_mm512_shuffle_i64x2::<0x88>(p, q), _mm512_shuffle_i64x2::<0x88>(r, s));
        let (low_2, high_2) = (_mm512_shuffle_i64x2::<0xDD>(p, q), _mm512_shuffle_i64x2::<0xDD>(r, s));
        [
            reverse(_mm512_shuffle_i64x2::<0x88>(low, high)),
            reverse(_mm512_shuffle_i64x2::<0x88>(low_2, high_2)),
            reverse(_mm512_shuffle_i64x2::<0xDD>(low, high)),
            reverse(_mm512_shuffle_i64x2::<0xDD>(low_2, high_2)),
        ]
    };
    let ([letter, digit, tab, apostrophe], [upper, blank, newline, slash]) = (four(even), four(odd));
    let none = Zmm(_mm512_setzero_si512());
    Ascii { letter, upper, digit, blank, tab, newline, apostrophe, slash, high: none, continuation: none }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn plain_letters(window: &Window) -> u64 {
    let (lead, second) = (load(window, 0), load(window, 1));
    let number = _mm512_and_si512(lead, set(0x0F));
    let plain = _mm512_cmpeq_epi8_mask(_mm512_and_si512(lead, set(0xF0)), set(0xE0))
        & _mm512_cmpge_epu8_mask(second, _mm512_shuffle_epi8(table(&PLAIN.first), number))
        & _mm512_cmple_epu8_mask(second, _mm512_shuffle_epi8(table(&PLAIN.last), number));
    opaque(plain)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn contracted(window: &Window, any_case: bool) -> u64 {
    let letters = _mm512_or_si512(load(window, 0), set(if any_case { 0x20 } else { 0 }));
    let found = CONTRACTED.map(|letter| _mm512_cmpeq_epi8_mask(letters, set(letter)));
    opaque(found.into_iter().fold(0, |all, some| all | some))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn alike(window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
    let Sample { bytes, n_bytes, .. } = sample;
    // The seven bits are the lowest of the last byte but one and six of the last.
    let (last_but_one, last) = (load(window, n_bytes - 2), load(window, n_bytes - 1));
    let mut alike = _mm512_cmpeq_epi8_mask(_mm512_and_si512(last_but_one, set(0xFE)), set(bytes[n_bytes - 2] & 0xFE));
    // With two bytes this is the same comparison once more, which costs less than a branch.
    let care = if n_bytes == 2 { 0xFE } else { 0xFF };
    alike &= _mm512_cmpeq_epi8_mask(_mm512_and_si512(load(window, 0), set(care)), set(bytes[0] & care));
    if n_bytes == 4 {
        alike &= _mm512_cmpeq_epi8_mask(load(window, 1), set(bytes[1]));
    }
    // The upper four of the seven bits choose a byte of a plane, the lower three a bit of it.
    let high_bit = _mm512_slli_epi16::<3>(_mm512_and_si512(last_but_one, set(1)));
    let low_bits = _mm512_and_si512(_mm512_srli_epi16::<3>(last), set(7));
    let byte = _mm512_or_si512(high_bit, low_bits);
    let bits = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let bit = _mm512_shuffle_epi8(table(&bits), _mm512_and_si512(last, set(7)));
    let classes = planes.each_ref().map(|plane| _mm512_test_epi8_mask(_mm512_shuffle_epi8(table(plane), byte), bit));
    (opaque(alike), classes.map(opaque))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vbmi2")]
fn write_places(at: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
    const ALL: [u8; LANES] = {
        let mut all = [0; LANES];
        let mut place = 0;
        while place < LANES {
            all[place] = place as u8;
            place += 1;
        }
        all
    };
    let mut places = [0u8; LANES];
    // SAFETY: both arrays have 64 bytes, and neither load nor store asks for alignment.
    unsafe {
        let all = _mm512_loadu_si512(ALL.as_ptr().cast());
        _mm512_storeu_si512(places.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(mask, all));
    }
    let at = _mm512_set1_epi64(at as i64);
    let n_places = mask.count_ones() as usize;
    for (k, some) in room.chunks_exact_mut(AT_ONCE).enumerate().take(LANES / AT_ONCE) {
        for (eight, places) in some.chunks_exact_mut(8).zip(places[k * AT_ONCE..].chunks_exact(8)) {
            // SAFETY: the load reads the eight bytes of `places`, and the store writes eight numbers of 64 bits, the
            // size of `usize` here, to `eight`.
            unsafe {
                let places = _mm512_cvtepu8_epi64(_mm_loadl_epi64(places.as_ptr().cast()));
                _mm512_storeu_si512(eight.as_mut_ptr().cast(), _mm512_add_epi64(places, at));
            }
        }
        if n_places <= (k + 1) * AT_ONCE {
            break;
        }
    }
}

/// Eight words in one register. There is a value only where there is one of [`Avx512`].
#[derive(Clone, Copy)]
pub struct Zmm(__m512i);

impl BitAnd for Zmm {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        // SAFETY: `self` says that the processor has AVX-512F.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }
}

impl BitOr for Zmm {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }
}

impl Not for Zmm {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_xor_si512(self.0, _mm512_set1_epi64(-1)) })
    }
}

impl Mask for Zmm {
    #[inline(always)]
    fn words(self) -> [u64; BLOCKS] {
        let mut words = [0; BLOCKS];
        // SAFETY: as above, and the array has the 64 bytes that the store writes.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.0) };
        words
    }

    #[inline(always)]
    fn up<const N: u32>(self, before: u64) -> Self {
        // SAFETY: `self` says that the processor has AVX-512F and AVX-512VBMI2.
        unsafe {
            let below = _mm512_alignr_epi64::<7>(self.0, _mm512_set1_epi64((before << (64 - N)).cast_signed()));
            // The amount is no constant expression of the intrinsic's type.
            Self(_mm512_shldv_epi64(self.0, below, _mm512_set1_epi64(N.into())))
        }
    }

    #[inline(always)]
    fn down(self, behind: u64) -> Self {
        // SAFETY: as above.
        unsafe {
            let above = _mm512_alignr_epi64::<1>(_mm512_set1_epi64(behind.cast_signed()), self.0);
            Self(_mm512_shrdi_epi64::<1>(self.0, above))
        }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> (Self, bool) {
        // SAFETY: `self` says that the processor has AVX-512F.
        unsafe {
            let sum = _mm512_add_epi64(self.0, other.0);
            let ones = _mm512_set1_epi64(-1);
            let over = _mm512_cmplt_epu64_mask(sum, other.0);
            let full = _mm512_cmpeq_epi64_mask(sum, ones);
            let carries = carries(over.into(), full.into());
            #[expect(clippy::cast_possible_truncation, reason = "the bit behind the eight is given by itself")]
            (Self(_mm512_mask_sub_epi64(sum, carries as u8, sum, ones)), carries >> BLOCKS != 0)
        }
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: as above.
        unsafe { _mm512_test_epi64_mask(self.0, self.0) == 0 }
    }

    #[inline(always)]
    fn last_word(self) -> u64 {
        // SAFETY: as above.
        let [.., last] = unsafe { std::mem::transmute::<__m512i, [u64; BLOCKS]>(self.0) };
        last
    }
}
