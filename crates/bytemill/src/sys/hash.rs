//! Short keys packed into a register, and their hash.

/// Most bytes that [`pack`] takes.
pub const PACKED_BYTES: usize = 15;

/// Up to 15 bytes and their number, in two words: equal keys are equal byte strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Packed {
    /// The first 8 bytes, little-endian.
    pub low: u64,
    /// The other 7 bytes, and the number of bytes in the highest byte.
    pub high: u64,
}

/// All bits of the first bytes.
pub static MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut n_bytes = 0;
    while n_bytes < 16 {
        masks[n_bytes] = (1 << (8 * n_bytes)) - 1;
        n_bytes += 1;
    }
    masks
};

/// Packs `text[start..end]`, at most [`PACKED_BYTES`] of them.
///
/// One load of 16 bytes and a mask where the text goes on that far, which it does for all but its last pre-tokens.
#[inline]
#[must_use]
pub fn pack(text: &[u8], start: usize, end: usize) -> Packed {
    let n_bytes = end - start;
    debug_assert!(n_bytes <= PACKED_BYTES);
    let word = if let Some(sixteen) = text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        u128::from_le_bytes(*sixteen) & MASKS[n_bytes % 16]
    } else {
        let mut sixteen = [0; 16];
        sixteen[..n_bytes].copy_from_slice(&text[start..end]);
        u128::from_le_bytes(sixteen)
    };
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    Packed { low: word as u64, high: (word >> 64) as u64 | (n_bytes as u64) << 56 }
}

impl Packed {
    /// Equal to no key of text, even where the upper half of its highest byte does not count: UTF-8 has no byte 0xFF. Nor to
    /// the default with which tables are filled.
    pub const NO_KEY: Self = Self { low: 0, high: u64::MAX };

    /// The bytes, in the first [`Packed::n_bytes`] places.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.low) | u128::from(self.high) << 64).to_le_bytes()
    }

    /// How many bytes were packed.
    #[must_use]
    pub fn n_bytes(self) -> usize {
        (self.high >> 56) as usize
    }

    /// A number in the order of the byte strings.
    #[inline]
    #[must_use]
    pub fn order(self) -> u128 {
        // The last byte is the number of bytes: of two strings that differ in zeros at the end alone the shorter is less.
        u128::from_be_bytes(self.bytes())
    }

    /// A hash whose high bits depend on every byte: the two halves of a 128-bit product, folded.
    #[inline]
    #[must_use]
    pub fn hash(self) -> u64 {
        self.hash_seeded(0)
    }

    /// Like [`Packed::hash`], but depends on a seed, so that no text can be crafted whose pre-tokens collide.
    #[inline]
    #[must_use]
    pub fn hash_seeded(self, seed: u64) -> u64 {
        fold(self.low ^ 0x9E37_79B9_7F4A_7C15 ^ seed, self.high ^ 0xD6E8_FEB8_6659_FD93 ^ seed.rotate_left(32))
    }
}

/// Multiplies to 128 bits and folds the halves together.
#[inline]
#[must_use]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    {
        product as u64 ^ (product >> 64) as u64
    }
}

/// Hash of a pre-token of more than eight bytes whose high bits depend on every byte, and on a seed: so that no text
/// can be made on purpose whose pre-tokens all fall on one place.
#[inline]
pub fn long_hash(pretoken: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ pretoken.len() as u64;
    let (words, rest) = pretoken.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), 0x9E37_79B9_7F4A_7C15);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), 0xD6E8_FEB8_6659_FD93)
}

/// Hash of a pair of numbers.
#[inline]
#[must_use]
pub fn hash_pair(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A hasher for keys that are one `u64`: enough for tables that no adversary fills.
#[derive(Default, Clone, Copy, Debug)]
pub struct PairHasher(u64);

impl std::hash::Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value ^ 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93);
    }
}

/// Builds [`PairHasher`]s.
pub type PairBuild = std::hash::BuildHasherDefault<PairHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_the_same_at_the_end_of_a_text_and_inside_it() {
        let text: Vec<u8> = (1..=64).collect();
        for start in 0..20 {
            for n_bytes in 0..=PACKED_BYTES {
                let inside = pack(&text, start, start + n_bytes);
                let at_end = pack(&text[..start + n_bytes], start, start + n_bytes);
                assert_eq!(inside, at_end);
                assert_eq!(inside.bytes()[..inside.n_bytes()], text[start..start + n_bytes]);
            }
        }
    }

    #[test]
    fn zero_bytes_and_lengths_make_different_keys() {
        let zeros = [0; 32];
        let keys: std::collections::HashSet<u64> = (0..=15).map(|n_bytes| pack(&zeros, 0, n_bytes).hash()).collect();
        assert_eq!(keys.len(), 16);
    }
}
