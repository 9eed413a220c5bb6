//! Short byte strings packed into 16 bytes, and hash functions.

/// Maximum number of bytes that [`pack`] accepts.
pub const PACKED_BYTES: usize = 15;

/// Up to 15 bytes and their number, in two words. Two byte strings are equal exactly if their keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Packed {
    /// The first 8 bytes, little-endian.
    pub low: u64,
    /// The other 7 bytes, and the number of bytes in the highest byte.
    pub high: u64,
}

/// Masks that keep the first 0 to 15 bytes.
pub static MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut n_bytes = 0;
    while n_bytes < 16 {
        masks[n_bytes] = (1 << (8 * n_bytes)) - 1;
        n_bytes += 1;
    }
    masks
};

/// Packs `text[start..end]`, at most [`PACKED_BYTES`] bytes.
///
/// Takes one load of 16 bytes and a mask, except within the last 16 bytes of the text.
#[inline]
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
    /// Differs from every key of a byte string, also in tables that use the upper half of the highest byte for something else,
    /// because UTF-8 has no byte 0xFF. Differs from the default too, which marks free entries in tables.
    pub const NO_KEY: Self = Self { low: 0, high: u64::MAX };

    /// The bytes; only the first [`Packed::n_bytes`] belong to the string.
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.low) | u128::from(self.high) << 64).to_le_bytes()
    }

    /// Number of bytes in the string.
    pub fn n_bytes(self) -> usize {
        (self.high >> 56) as usize
    }

    /// A number that orders keys as their byte strings.
    #[inline]
    pub fn order(self) -> u128 {
        // The last byte is the length, so if strings differ only in trailing zeros, the shorter one comes first.
        u128::from_be_bytes(self.bytes())
    }

    /// A hash whose high bits depend on every byte: the two halves of a 128-bit product, combined by exclusive or.
    #[inline]
    pub fn hash(self) -> u64 {
        self.hash_seeded(0)
    }

    /// Like [`Packed::hash`], with a seed. With a random one, nobody can craft a text whose pre-tokens collide.
    #[inline]
    pub fn hash_seeded(self, seed: u64) -> u64 {
        fold(self.low ^ 0x9E37_79B9_7F4A_7C15 ^ seed, self.high ^ 0xD6E8_FEB8_6659_FD93 ^ seed.rotate_left(32))
    }
}

/// Multiplies two numbers and combines the halves of the product by exclusive or.
#[inline]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    {
        product as u64 ^ (product >> 64) as u64
    }
}

/// A seeded hash of a byte string of any length. Its high bits depend on every byte. With a random seed, nobody can craft a text
/// whose pre-tokens collide.
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

/// A hash of a pair of numbers; only the high bits are usable.
#[inline]
pub fn hash_pair(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
#[path = "tests/hash.rs"]
mod tests;
