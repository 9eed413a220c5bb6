//! AVX-512 with VBMI2 and GFNI: a block, or a mask of eight, in one register. A comparison yields the mask of a block.

use super::classifier::{Ascii, CJK, Classify, Sample, WRITE_WIDTH, WideWindow, Window, implement, opaque};
use super::mask::{Mask, carries};
use super::{BLOCK_BYTES, WIDE_BLOCKS};
use crate::sys::cpu::Avx512;
use crate::text::unicode::BitPlanes;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitOr, Not};

implement!("avx512f,avx512bw,avx512vbmi,avx512vbmi2,gfni,bmi1,bmi2,lzcnt,popcnt", Classify for Avx512 {
    type Mask = Zmm;
    fn mask(self, words: [u64; WIDE_BLOCKS]) -> Zmm = Zmm::new;
    fn ascii(self, window: &Window) -> Ascii = ascii;
    fn wide_ascii(self, window: &WideWindow) -> Ascii<Zmm> = wide_ascii;
    fn cjk(self, window: &Window) -> u64 = cjk;
    fn page(self, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) = page;
    fn write_positions(self, offset: usize, mask: u64, room: &mut [MaybeUninit<usize>]) -> () = write_positions;
});

/// Loads 64 bytes at `offset`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(bytes: &[u8], offset: usize) -> __m512i {
    let bytes = &bytes[offset..offset + BLOCK_BYTES];
    // SAFETY: the slice has 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Loads a table of 16 bytes into all four quarters, as `_mm512_shuffle_epi8` needs it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn table(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: the array has 16 bytes, and the load needs no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn set(byte: u8) -> __m512i {
    _mm512_set1_epi8(byte.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn ascii(_: Avx512, window: &Window) -> Ascii {
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

/// The classes of the 128 ASCII characters, one bit each, in the order of [`wide_ascii`].
const CLASSES: [[u8; BLOCK_BYTES]; 2] = {
    let mut classes = [[0; BLOCK_BYTES]; 2];
    let mut byte = 0;
    while byte < 128u8 {
        let is_newline = byte == b'\n' || byte == b'\r';
        classes[byte as usize / BLOCK_BYTES][byte as usize % BLOCK_BYTES] = byte.is_ascii_alphabetic() as u8
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

/// Transposes eight words of eight bytes: the source position of each byte.
const TRANSPOSED: [u8; BLOCK_BYTES] = {
    let mut sources = [0; BLOCK_BYTES];
    let mut k = 0;
    while k < BLOCK_BYTES {
        sources[k] = (k % 8 * 8 + k / 8) as u8;
        k += 1;
    }
    sources
};

/// A table maps each byte to the eight bits of its classes. The rest gathers the first bits of all bytes, the second bits and so on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn wide_ascii(cpu: Avx512, window: &WideWindow) -> Ascii<Zmm> {
    let (low, high, transposed) = (load(&CLASSES[0], 0), load(&CLASSES[1], 0), load(&TRANSPOSED, 0));
    // Byte k is 1 << k: multiplied by a matrix it yields column k.
    let columns = _mm512_set1_epi64(0x8040_2010_0804_0201u64.cast_signed());
    // Word k of row b holds the bits of class k in block b.
    let mut rows = [_mm512_setzero_si512(); WIDE_BLOCKS];
    for (block, row) in rows.iter_mut().enumerate() {
        let classes = _mm512_permutex2var_epi8(low, load(window, block * BLOCK_BYTES), high);
        // Eight bytes form a matrix of bits, one row each.
        *row = _mm512_permutexvar_epi8(transposed, _mm512_gf2p8affine_epi64_epi8::<0>(columns, classes));
    }
    // Transpose the rows: pairs of words, then pairs of pairs, then fours.
    let [a, b, c, d, e, f, g, h] = rows;
    let even = [(a, b), (c, d), (e, f), (g, h)].map(|(one, other)| _mm512_unpacklo_epi64(one, other));
    let odd = [(a, b), (c, d), (e, f), (g, h)].map(|(one, other)| _mm512_unpackhi_epi64(one, other));
    // A matrix has its first row in the highest byte, so the bits of each byte are reversed.
    let reverse = |bits| Zmm(cpu, _mm512_gf2p8affine_epi64_epi8::<0>(bits, columns));
    // Classes k, k + 2, k + 4 and k + 6 of four pairs of blocks.
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
    let none = Zmm(cpu, _mm512_setzero_si512());
    Ascii { letter, upper, digit, blank, tab, newline, apostrophe, slash, high: none, continuation: none }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn cjk(_: Avx512, window: &Window) -> u64 {
    let (lead, second) = (load(window, 0), load(window, 1));
    let row = _mm512_and_si512(lead, set(0x0F));
    let cjk = _mm512_cmpeq_epi8_mask(_mm512_and_si512(lead, set(0xF0)), set(0xE0))
        & _mm512_cmpge_epu8_mask(second, _mm512_shuffle_epi8(table(&CJK.first), row))
        & _mm512_cmple_epu8_mask(second, _mm512_shuffle_epi8(table(&CJK.last), row));
    opaque(cjk)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn page(_: Avx512, window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
    let Sample { bytes, n_bytes, .. } = sample;
    // The low seven bits of the code point: the lowest bit of the last byte but one and six bits of the last byte.
    let (last_but_one, last) = (load(window, n_bytes - 2), load(window, n_bytes - 1));
    let mut on_page = _mm512_cmpeq_epi8_mask(_mm512_and_si512(last_but_one, set(0xFE)), set(bytes[n_bytes - 2] & 0xFE));
    // With two bytes this repeats the same comparison, which costs less than a branch.
    let significant = if n_bytes == 2 { 0xFE } else { 0xFF };
    on_page &= _mm512_cmpeq_epi8_mask(_mm512_and_si512(load(window, 0), set(significant)), set(bytes[0] & significant));
    if n_bytes == 4 {
        on_page &= _mm512_cmpeq_epi8_mask(load(window, 1), set(bytes[1]));
    }
    // The upper four of the seven bits select a byte of a plane, the lower three a bit of that byte.
    let high_bit = _mm512_slli_epi16::<3>(_mm512_and_si512(last_but_one, set(1)));
    let low_bits = _mm512_and_si512(_mm512_srli_epi16::<3>(last), set(7));
    let byte = _mm512_or_si512(high_bit, low_bits);
    let bits = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let bit = _mm512_shuffle_epi8(table(&bits), _mm512_and_si512(last, set(7)));
    let classes = planes.each_ref().map(|plane| _mm512_test_epi8_mask(_mm512_shuffle_epi8(table(plane), byte), bit));
    (opaque(on_page), classes.map(opaque))
}

/// Writes the entries eight at a time, from positions that one instruction compresses to the front.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn write_positions(_: Avx512, offset: usize, mask: u64, room: &mut [MaybeUninit<usize>]) {
    const ALL: [u8; BLOCK_BYTES] = {
        let mut all = [0; BLOCK_BYTES];
        let mut k = 0;
        while k < BLOCK_BYTES {
            all[k] = k as u8;
            k += 1;
        }
        all
    };
    let mut positions = [0u8; BLOCK_BYTES];
    // SAFETY: the array has 64 bytes, and the store needs no alignment.
    unsafe { _mm512_storeu_si512(positions.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(mask, load(&ALL, 0))) };
    let offset = _mm512_set1_epi64(offset as i64);
    let n_positions = mask.count_ones() as usize;
    let sixteens = room.as_chunks_mut::<WRITE_WIDTH>().0.iter_mut().zip(positions.as_chunks::<WRITE_WIDTH>().0);
    for (k, (room, positions)) in sixteens.enumerate() {
        for (room, positions) in room.as_chunks_mut::<8>().0.iter_mut().zip(positions.as_chunks::<8>().0) {
            let positions = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(*positions)));
            // SAFETY: the array has eight entries, `usize` of 64 bits, and the store needs no alignment.
            unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), _mm512_add_epi64(positions, offset)) };
        }
        if n_positions <= (k + 1) * WRITE_WIDTH {
            break;
        }
    }
}

// Masks of 512 bits in one AVX-512 register.

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
