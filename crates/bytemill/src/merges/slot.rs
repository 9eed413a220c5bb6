//! What a slot holds: 16 bits while symbols fit, 32 afterwards.

/// One or two numbers of 16 bits: [`Narrow`] or [`Wide`].
pub trait Slot: Copy + PartialEq + Send + Sync {
    /// Stands before each word and behind the last.
    const SEPARATOR: Self;
    /// Stands between the first and the last slot of a token.
    const FILLER: Self;
    /// All symbols are below.
    const SYMBOLS: usize;

    /// The first slot of a token.
    fn first(symbol: u32) -> Self;

    /// The last slot of a token of two slots or more.
    fn last(symbol: u32) -> Self;

    /// The symbol in a token's first or last slot; in a separator a number that is not below [`Slot::SYMBOLS`].
    fn symbol(self) -> u32;

    /// True of first slots and separators.
    fn stays(self) -> bool;

    /// What is stored, as slots.
    fn of(stored: &[u16]) -> &[Self];

    /// What is stored, as slots.
    fn of_mut(stored: &mut [u16]) -> &mut [Self];
}

/// For up to 32,766 symbols.
pub type Narrow = [u16; 1];
/// For all symbols that there can be.
pub type Wide = [u16; 2];

/// Marks the last slot of a token of two slots or more; separator and filler have it too.
const LAST: u16 = 1 << 15;

/// The lower half is stored first.
impl<const W: usize> Slot for [u16; W] {
    const SEPARATOR: Self = [u16::MAX; W];
    const FILLER: Self = {
        let mut filler = Self::SEPARATOR;
        filler[0] -= 1;
        filler
    };
    // Two numbers less than bits would do for: with the mark they would be separator and filler.
    const SYMBOLS: usize = if cfg!(test) && W == 1 { 300 } else { (1 << (16 * W - 1)) - 2 };

    #[inline]
    fn first(symbol: u32) -> Self {
        let mut slot = [0; W];
        for (part, half) in slot.iter_mut().enumerate() {
            *half = (symbol >> (16 * part)) as u16;
        }
        slot
    }

    #[inline]
    fn last(symbol: u32) -> Self {
        let mut slot = Self::first(symbol);
        slot[W - 1] |= LAST;
        slot
    }

    #[inline]
    fn symbol(mut self) -> u32 {
        self[W - 1] &= !LAST;
        self.iter().rev().fold(0, |symbol, &half| symbol << 16 | u32::from(half))
    }

    #[inline]
    fn stays(self) -> bool {
        self[W - 1] < LAST || self == Self::SEPARATOR
    }

    #[inline]
    fn of(stored: &[u16]) -> &[Self] {
        stored.as_chunks().0
    }

    #[inline]
    fn of_mut(stored: &mut [u16]) -> &mut [Self] {
        stored.as_chunks_mut().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols_come_back<S: Slot>(symbols: &[u32]) {
        for &symbol in symbols {
            let (first, last) = (S::first(symbol), S::last(symbol));
            assert_eq!((first.symbol(), last.symbol()), (symbol, symbol));
            assert!(first.stays() && !last.stays());
            for other in [S::SEPARATOR, S::FILLER] {
                assert!(first != other && last != other && first != last);
            }
        }
        assert!(S::SEPARATOR.stays() && !S::FILLER.stays());
        assert!(S::SEPARATOR.symbol() as usize >= S::SYMBOLS);
    }

    #[test]
    fn a_slot_gives_the_symbol_that_was_put_into_it() {
        symbols_come_back::<Narrow>(&[0, 255, 256, 0x7FFC, 0x7FFD]);
        symbols_come_back::<Wide>(&[0, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x1_0000, 0x7FFF_FFFD]);
    }
}
