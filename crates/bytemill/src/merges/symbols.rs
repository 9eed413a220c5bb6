//! What symbols stand for, and which of two pairs of them comes first.

use super::Ties;
use std::cmp::Ordering;

/// The bytes of every symbol.
pub struct Symbols {
    /// One after the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    byte_order: [u32; 256],
}

impl Symbols {
    /// The bytes alone.
    pub fn new() -> Self {
        Self { bytes: (0..=255).collect(), ends: (1..=256).collect(), byte_order: huggingface_byte_order() }
    }

    /// Makes room for as many more.
    pub fn reserve(&mut self, n_symbols: usize) {
        self.ends.reserve_exact(n_symbols);
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all symbols.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the symbol that two others are joined to.
    pub fn join(&mut self, left: u32, right: u32) -> u32 {
        for part in [left, right] {
            let (start, end) = self.range(part);
            self.bytes.extend_from_within(start..end);
        }
        self.ends.push(self.bytes.len());
        (self.ends.len() - 1) as u32
    }

    #[inline]
    fn range(&self, symbol: u32) -> (usize, usize) {
        let symbol = symbol as usize;
        (if symbol == 0 { 0 } else { self.ends[symbol - 1] }, self.ends[symbol])
    }

    #[inline]
    fn of(&self, symbol: u32) -> &[u8] {
        let (start, end) = self.range(symbol);
        &self.bytes[start..end]
    }

    /// Greater is the pair that is merged first.
    pub fn compare(&self, ties: Ties, one: (u32, u32), other: (u32, u32)) -> Ordering {
        match ties {
            Ties::Bytes => {
                let of = |(left, right)| (self.of(left), self.of(right));
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

/// The place of each byte when bytes are sorted by the character that GPT-2 shows them as: printable Latin-1
/// characters stand for themselves, the others are moved to U+0100 and up in their order.
pub fn huggingface_byte_order() -> [u32; 256] {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut order = [0; 256];
    let by_character = (0..256).filter(|&byte| printable(byte)).chain((0..256).filter(|&byte| !printable(byte)));
    for (place, byte) in (0..).zip(by_character) {
        order[byte as usize] = place;
    }
    order
}
