use super::*;
use crate::sys::hash::PACKED_BYTES;
use proptest::prelude::*;
use std::collections::HashSet;

fn all_hashers() -> Vec<KeyHasher> {
    vec![KeyHasher::Portable(Portable), KeyHasher::best()]
}

struct PackOne<'t> {
    sixteen: &'t [u8; 16],
    n_bytes: usize,
    found: &'t mut Option<(Packed, u32)>,
}

impl KeyHashWork for PackOne<'_> {
    #[inline(always)]
    fn run(self, hasher: impl KeyHash) {
        let mut key = MaybeUninit::uninit();
        let hash = hasher.pack(self.sixteen, self.n_bytes, &mut key);
        // SAFETY: `KeyHash::pack` has written it.
        *self.found = Some((unsafe { key.assume_init() }, hash));
    }
}

proptest! {
    #[test]
    fn every_hasher_packs_as_the_portable_one_and_hashes_a_key_as_it_packs_it(
        sixteen in prop::array::uniform16(any::<u8>()),
        n_bytes in 0..=PACKED_BYTES,
    ) {
        for hasher in all_hashers() {
            let mut found = None;
            hasher.run(PackOne { sixteen: &sixteen, n_bytes, found: &mut found });
            let (key, hash) = found.unwrap();
            prop_assert_eq!(key, pack(&sixteen, 0, n_bytes));
            prop_assert_eq!(hash, hasher.hash(key));
        }
    }
}

#[test]
fn one_byte_more_or_another_one_changes_the_upper_bits() {
    let text = [b'a'; 16];
    for hasher in all_hashers() {
        let places: HashSet<u32> = (0..=PACKED_BYTES).map(|n| hasher.hash(pack(&text, 0, n)) >> 14).collect();
        assert_eq!(places.len(), PACKED_BYTES + 1, "{hasher:?}");
        let places = (0..PACKED_BYTES).flat_map(|at| {
            (0..=255).map(move |byte| {
                let mut other = text;
                other[at] = byte;
                hasher.hash(pack(&other, 0, PACKED_BYTES)) >> 14
            })
        });
        // 3,826 different keys in 2¹⁸ places: some 28 coincide by chance.
        assert!(places.collect::<HashSet<u32>>().len() > 3_700, "{hasher:?}");
    }
}
