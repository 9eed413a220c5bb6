//! Packing and hashing of short pre-tokens, for the loop that every pre-token goes through.
//!
//! With AES instructions, three rounds of the cipher hash a key in the register where it was packed; elsewhere it takes a
//! 128-bit product. Hashes last no longer than the process, so each processor may have its own.

#[cfg(target_arch = "x86_64")]
use crate::sys::cpu::Aes;
use crate::sys::cpu::Kernel;
use crate::sys::hash::{Packed, pack};
use std::mem::MaybeUninit;

/// A way to pack and hash.
pub trait KeyHash: Copy {
    /// Packs the first `n_bytes` of `sixteen`, at most 15, into `key` as [`pack`] does, and returns [`KeyHash::hash`] of it.
    fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32;

    /// A number whose every bit depends on every byte of the key.
    fn hash(self, key: Packed) -> u32;
}

/// Runs work on many keys, compiled for the way that suits this processor.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn run<W: Kernel<Aes, Output = O> + Kernel<Portable, Output = O>, O>(work: W) -> O {
    match Aes::detect() {
        Some(aes) => aes.run(work),
        None => work.run(Portable),
    }
}

/// Runs work on many keys.
#[cfg(not(target_arch = "x86_64"))]
pub fn run<W: Kernel<Portable>>(work: W) -> W::Output {
    work.run(Portable)
}

/// The upper half of [`Packed::hash`].
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl KeyHash for Portable {
    #[inline(always)]
    fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
        self.hash(*key.write(pack(sixteen, 0, n_bytes)))
    }

    #[inline(always)]
    fn hash(self, key: Packed) -> u32 {
        (key.hash() >> 32) as u32
    }
}

#[cfg(target_arch = "x86_64")]
impl KeyHash for Aes {
    #[inline(always)]
    fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
        // SAFETY: `self` proves that the processor has AES and AVX.
        unsafe { aes::pack(sixteen, n_bytes, key) }
    }

    #[inline(always)]
    fn hash(self, key: Packed) -> u32 {
        // SAFETY: as above.
        unsafe { aes::hash(aes::load(key)) }
    }
}

#[cfg(target_arch = "x86_64")]
mod aes {
    use crate::sys::hash::{MASKS, PACKED_BYTES, Packed};
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    /// Each number of bytes, in the highest byte.
    static COUNTS: [u128; PACKED_BYTES + 1] = [
        0 << 120,
        1 << 120,
        2 << 120,
        3 << 120,
        4 << 120,
        5 << 120,
        6 << 120,
        7 << 120,
        8 << 120,
        9 << 120,
        10 << 120,
        11 << 120,
        12 << 120,
        13 << 120,
        14 << 120,
        15 << 120,
    ];

    #[inline]
    #[target_feature(enable = "aes,avx")]
    pub fn load(key: Packed) -> __m128i {
        _mm_set_epi64x(key.high.cast_signed(), key.low.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "aes,avx")]
    pub fn pack(sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
        let (mask, count) = (&MASKS[n_bytes % 16], &COUNTS[n_bytes % 16]);
        // SAFETY: each load reads 16 bytes, unaligned; the store writes the 16 bytes of a `Packed`, whose first field is the
        // lower half.
        unsafe {
            let bytes =
                _mm_and_si128(_mm_loadu_si128(sixteen.as_ptr().cast()), _mm_loadu_si128((&raw const *mask).cast()));
            let packed = _mm_or_si128(bytes, _mm_loadu_si128((&raw const *count).cast()));
            _mm_storeu_si128(key.as_mut_ptr().cast(), packed);
            hash(packed)
        }
    }

    /// Three rounds: after one, each column depends on four bytes; after two, on all sixteen, but on each four of them through
    /// one byte, so that keys that differ in these alone collide once in 256 times.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    pub fn hash(key: __m128i) -> u32 {
        let round = _mm_set_epi64x(0x9E37_79B9_7F4A_7C15_u64.cast_signed(), 0xD6E8_FEB8_6659_FD93_u64.cast_signed());
        let hashed = _mm_aesenc_si128(_mm_aesenc_si128(_mm_aesenc_si128(key, round), round), round);
        _mm_cvtsi128_si32(hashed).cast_unsigned()
    }
}

#[cfg(test)]
#[path = "tests/key_hash.rs"]
pub mod tests;
