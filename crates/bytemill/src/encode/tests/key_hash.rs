use super::*;
use crate::sys::hash::PACKED_BYTES;
use proptest::prelude::*;
use std::collections::HashSet;

/// Key and hash of the first `n_bytes`, and the hash of that key once more.
struct PackOne<'t> {
    sixteen: &'t [u8; 16],
    n_bytes: usize,
}

impl<H: KeyHash> Kernel<H> for PackOne<'_> {
    type Output = (Packed, u32, u32);

    #[inline(always)]
    fn run(self, hasher: H) -> Self::Output {
        let mut key = MaybeUninit::uninit();
        let hash = hasher.pack(self.sixteen, self.n_bytes, &mut key);
        // SAFETY: `KeyHash::pack` has written it.
        let key = unsafe { key.assume_init() };
        (key, hash, hasher.hash(key))
    }
}

/// With the portable way and with the one that suits this processor.
fn packed(sixteen: &[u8; 16], n_bytes: usize) -> [(Packed, u32, u32); 2] {
    [PackOne { sixteen, n_bytes }.run(Portable), run(PackOne { sixteen, n_bytes })]
}

/// The hash of one key.
pub fn hash(key: Packed) -> u32 {
    run(PackOne { sixteen: &key.bytes(), n_bytes: key.n_bytes() }).1
}

proptest! {
    #[test]
    fn every_hasher_agrees_with_the_portable_one(
        sixteen in prop::array::uniform16(any::<u8>()),
        n_bytes in 0..=PACKED_BYTES,
    ) {
        for (key, hash, again) in packed(&sixteen, n_bytes) {
            prop_assert_eq!(key, pack(&sixteen, 0, n_bytes));
            prop_assert_eq!(hash, again);
        }
    }
}

#[test]
fn the_upper_bits_depend_on_every_byte() {
    let text = [b'a'; 16];
    for way in 0..2 {
        let upper_bits = |text: &[u8; 16], n_bytes| packed(text, n_bytes)[way].1 >> 14;
        let places: HashSet<u32> = (0..=PACKED_BYTES).map(|n| upper_bits(&text, n)).collect();
        assert_eq!(places.len(), PACKED_BYTES + 1, "{way}");
        let places = (0..PACKED_BYTES).flat_map(|at| {
            (0..=255).map(move |byte| {
                let mut other = text;
                other[at] = byte;
                upper_bits(&other, PACKED_BYTES)
            })
        });
        // 3,826 different keys in 2¹⁸ places: some 28 coincide by chance.
        assert!(places.collect::<HashSet<u32>>().len() > 3_700, "{way}");
    }
}
