//! The contents of a slot: 16 bits while symbols fit, 32 bits afterwards.

/// A slot of one or two 16-bit halves: [`Narrow`] or [`Wide`].
pub trait Slot: Copy + PartialEq + Send + Sync {
    /// Precedes each pre-token and follows the last one.
    const SEPARATOR: Self;
    /// Fills the slots between the first and the last slot of a token.
    const FILLER: Self;
    /// Number of symbols that a slot can hold.
    const MAX_SYMBOLS: usize;

    /// The first slot of a token.
    fn first(symbol: u32) -> Self;

    /// The last slot of a token that takes at least two slots.
    fn last(symbol: u32) -> Self;

    /// The symbol in the first or last slot of a token. For a separator, a number of at least [`Slot::MAX_SYMBOLS`].
    fn symbol(self) -> u32;

    /// True for the first slot of a token and for separators.
    fn is_start(self) -> bool;

    /// Views stored halves as slots.
    fn view(halves: &[u16]) -> &[Self];

    /// Views stored halves as slots.
    fn view_mut(halves: &mut [u16]) -> &mut [Self];
}

/// For up to 32,766 symbols.
pub type Narrow = [u16; 1];
/// For up to 2,147,483,646 symbols.
pub type Wide = [u16; 2];

/// Flag of the last slot of a token that takes at least two slots. Separator and filler have it, too.
const LAST: u16 = 1 << 15;

/// The low half comes first.
impl<const W: usize> Slot for [u16; W] {
    const SEPARATOR: Self = [u16::MAX; W];
    const FILLER: Self = {
        let mut filler = Self::SEPARATOR;
        filler[0] -= 1;
        filler
    };
    // The two greatest numbers are excluded: with the flag they would equal the separator and the filler.
    const MAX_SYMBOLS: usize = if cfg!(test) && W == 1 { 300 } else { (1 << (16 * W - 1)) - 2 };

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
    fn is_start(self) -> bool {
        self[W - 1] < LAST || self == Self::SEPARATOR
    }

    #[inline]
    fn view(halves: &[u16]) -> &[Self] {
        halves.as_chunks().0
    }

    #[inline]
    fn view_mut(halves: &mut [u16]) -> &mut [Self] {
        halves.as_chunks_mut().0
    }
}

#[cfg(test)]
#[path = "tests/slot.rs"]
mod tests;
