//! Keys of a text's pre-tokens and their places in the cache, for the loop that every pre-token goes through.
//!
//! With AES instructions three rounds of the cipher mix a key in the register where it was packed; a product of 128 bits
//! needs it in two others. Places last no longer than the process, so each processor may have its own.

use crate::hash::{Packed, pack};
use std::mem::MaybeUninit;

/// A way to pack and to mix.
pub trait Mix: Copy {
    /// Packs the first `n_bytes` of `sixteen`, at most 15, as [`pack`] does, into `key`; gives [`Mix::mix`] of it.
    fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32;

    /// A number whose every bit depends on every byte of the key.
    fn mix(self, key: Packed) -> u32;
}

/// What this processor mixes with.
#[derive(Clone, Copy, Debug)]
pub enum Mixing {
    /// Any processor.
    Plain(Plain),
    /// x86-64 with AES and AVX.
    #[cfg(target_arch = "x86_64")]
    Aes(aes::Aes),
}

impl Mixing {
    /// The quickest on this processor.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(aes) = aes::Aes::detect() {
            return Self::Aes(aes);
        }
        Self::Plain(Plain)
    }

    /// [`Mix::mix`] of a key.
    #[inline]
    #[must_use]
    pub fn mix(self, key: Packed) -> u32 {
        match self {
            Self::Plain(plain) => plain.mix(key),
            #[cfg(target_arch = "x86_64")]
            Self::Aes(aes) => aes.mix(key),
        }
    }

    /// Does `work` with code compiled for this way.
    #[inline]
    pub fn run<W: MixWork>(self, work: W) {
        match self {
            Self::Plain(plain) => work.run(plain),
            #[cfg(target_arch = "x86_64")]
            Self::Aes(aes) => aes.run(work),
        }
    }
}

/// Something to be done with many keys.
pub trait MixWork {
    /// To be marked `#[inline(always)]`, so that it is compiled for the instructions in question.
    fn run(self, mix: impl Mix);
}

/// The upper half of [`Packed::hash`].
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Mix for Plain {
    #[inline(always)]
    fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
        self.mix(*key.write(pack(sixteen, 0, n_bytes)))
    }

    #[inline(always)]
    fn mix(self, key: Packed) -> u32 {
        (key.hash() >> 32) as u32
    }
}

#[cfg(target_arch = "x86_64")]
mod aes {
    use super::{Mix, MixWork};
    use crate::hash::{MASKS, PACKED_BYTES, Packed};
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    /// There is a value of this type only where the processor has the features that the functions below are compiled for.
    #[derive(Clone, Copy, Debug)]
    pub struct Aes(());

    /// For each number of bytes that number in the highest byte.
    static COUNTS: [u128; PACKED_BYTES + 1] = {
        let mut counts = [0; PACKED_BYTES + 1];
        let mut n_bytes = 0;
        while n_bytes <= PACKED_BYTES {
            counts[n_bytes] = (n_bytes as u128) << 120;
            n_bytes += 1;
        }
        counts
    };

    impl Aes {
        pub fn detect() -> Option<Self> {
            (is_x86_feature_detected!("aes") && is_x86_feature_detected!("avx")).then_some(Self(()))
        }

        pub fn run<W: MixWork>(self, work: W) {
            #[target_feature(enable = "aes,avx")]
            fn compiled<W: MixWork>(aes: Aes, work: W) {
                work.run(aes)
            }
            // SAFETY: `self` says that the processor has these features.
            unsafe { compiled(self, work) }
        }
    }

    impl Mix for Aes {
        #[inline(always)]
        fn pack(self, sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
            // SAFETY: `self` says that the processor has AES and AVX.
            unsafe { pack(sixteen, n_bytes, key) }
        }

        #[inline(always)]
        fn mix(self, key: Packed) -> u32 {
            // SAFETY: as above.
            unsafe { mix(_mm_set_epi64x(key.high.cast_signed(), key.low.cast_signed())) }
        }
    }

    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn pack(sixteen: &[u8; 16], n_bytes: usize, key: &mut MaybeUninit<Packed>) -> u32 {
        let (mask, count) = (&MASKS[n_bytes % 16], &COUNTS[n_bytes % 16]);
        // SAFETY: each load reads the 16 bytes of what it is given, the store writes those of a `Packed`: two numbers, of which
        // the first is the lower half. None asks for alignment.
        unsafe {
            let load = |from: *const u8| _mm_loadu_si128(from.cast());
            let bytes = _mm_and_si128(load(sixteen.as_ptr()), load((&raw const *mask).cast()));
            let packed = _mm_or_si128(bytes, load((&raw const *count).cast()));
            _mm_storeu_si128(key.as_mut_ptr().cast(), packed);
            mix(packed)
        }
    }

    /// After one round each column depends on four bytes, after two on all sixteen, but on each four of them through one byte, so
    /// that keys which differ in these alone meet once in 256 times; hence three.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn mix(key: __m128i) -> u32 {
        let round = _mm_set_epi64x(0x9E37_79B9_7F4A_7C15_u64.cast_signed(), 0xD6E8_FEB8_6659_FD93_u64.cast_signed());
        let mixed = _mm_aesenc_si128(_mm_aesenc_si128(_mm_aesenc_si128(key, round), round), round);
        _mm_cvtsi128_si32(mixed).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::PACKED_BYTES;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn all() -> Vec<Mixing> {
        vec![Mixing::Plain(Plain), Mixing::best()]
    }

    struct PackOne<'t> {
        sixteen: &'t [u8; 16],
        n_bytes: usize,
        found: &'t mut Option<(Packed, u32)>,
    }

    impl MixWork for PackOne<'_> {
        #[inline(always)]
        fn run(self, mix: impl Mix) {
            let mut key = MaybeUninit::uninit();
            let mixed = mix.pack(self.sixteen, self.n_bytes, &mut key);
            // SAFETY: `Mix::pack` has written it.
            *self.found = Some((unsafe { key.assume_init() }, mixed));
        }
    }

    proptest! {
        #[test]
        fn every_way_packs_as_the_plain_one_and_mixes_a_key_as_it_packs_it(
            sixteen in prop::array::uniform16(any::<u8>()),
            n_bytes in 0..=PACKED_BYTES,
        ) {
            for mixing in all() {
                let mut found = None;
                mixing.run(PackOne { sixteen: &sixteen, n_bytes, found: &mut found });
                let (key, mixed) = found.unwrap();
                prop_assert_eq!(key, pack(&sixteen, 0, n_bytes));
                prop_assert_eq!(mixed, mixing.mix(key));
            }
        }
    }

    #[test]
    fn one_byte_more_or_another_one_changes_the_upper_bits() {
        let text = [b'a'; 16];
        for mixing in all() {
            let places: HashSet<u32> = (0..=PACKED_BYTES).map(|n| mixing.mix(pack(&text, 0, n)) >> 14).collect();
            assert_eq!(places.len(), PACKED_BYTES + 1, "{mixing:?}");
            let places = (0..PACKED_BYTES).flat_map(|at| {
                (0..=255).map(move |byte| {
                    let mut other = text;
                    other[at] = byte;
                    mixing.mix(pack(&other, 0, PACKED_BYTES)) >> 14
                })
            });
            // 3,826 different keys in 2¹⁸ places: some 28 coincide by chance.
            assert!(places.collect::<HashSet<u32>>().len() > 3_700, "{mixing:?}");
        }
    }
}
