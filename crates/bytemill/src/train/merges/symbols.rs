//! The byte strings of symbols, and the order of equally frequent pairs.

use std::cmp::Ordering;

/// Which of two equally frequent pairs is merged first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// The lexicographically greatest pair of byte strings.
    Bytes,
    /// The pair with the smallest ids in the numbering of Hugging Face's trainer: bytes in the order of their GPT-2
    /// characters, then merges in the order in which they were learned.
    HuggingFace,
}

/// The byte string of every symbol.
pub struct Symbols {
    /// All byte strings, concatenated.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Position of each byte in the order of Hugging Face's trainer.
    byte_order: [u32; 256],
}

impl Symbols {
    /// The symbols of the 256 bytes.
    pub fn new() -> Self {
        Self { bytes: (0..=255).collect(), ends: (1..=256).collect(), byte_order: huggingface_byte_order() }
    }

    /// Reserves memory for `n_symbols` more.
    pub fn reserve(&mut self, n_symbols: usize) {
        self.ends.reserve_exact(n_symbols);
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Total length of all byte strings.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the symbol that `left` and `right` merge into, and returns it.
    pub fn add(&mut self, left: u32, right: u32) -> u32 {
        for half in [left, right] {
            let (start, end) = self.range(half);
            self.bytes.extend_from_within(start..end);
        }
        self.ends.push(self.bytes.len());
        (self.ends.len() - 1) as u32
    }

    /// Adds a symbol with its bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// The bytes of two symbols.
    pub fn joined(&self, left: u32, right: u32) -> Vec<u8> {
        [self.bytes_of(left), self.bytes_of(right)].concat()
    }

    #[inline]
    fn range(&self, symbol: u32) -> (usize, usize) {
        let symbol = symbol as usize;
        (if symbol == 0 { 0 } else { self.ends[symbol - 1] }, self.ends[symbol])
    }

    #[inline]
    fn bytes_of(&self, symbol: u32) -> &[u8] {
        let (start, end) = self.range(symbol);
        &self.bytes[start..end]
    }

    /// Compares equally frequent pairs. The greater one is merged first.
    pub fn compare(&self, ties: Ties, one: (u32, u32), other: (u32, u32)) -> Ordering {
        match ties {
            Ties::Bytes => {
                let of = |(left, right)| (self.bytes_of(left), self.bytes_of(right));
                of(one).cmp(&of(other))
            }
            Ties::HuggingFace => {
                let order = |symbol: u32| self.byte_order.get(symbol as usize).copied().unwrap_or(symbol);
                let of = |(left, right)| (order(left), order(right));
                of(other).cmp(&of(one))
            }
        }
    }
}

/// The rank of each byte when bytes are sorted by their GPT-2 characters: printable Latin-1 characters represent
/// themselves, all other bytes are mapped to U+0100 and up, in order.
pub fn huggingface_byte_order() -> [u32; 256] {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut order = [0; 256];
    let by_character = (0..256).filter(|&byte| printable(byte)).chain((0..256).filter(|&byte| !printable(byte)));
    for (rank, byte) in (0..).zip(by_character) {
        order[byte as usize] = rank;
    }
    order
}
