//! Weights as whole numbers.

/// Counts are kept as multiples of one over a denominator that all weights share, and rounded once, at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    denominator: u64,
}

impl Scale {
    /// Counts are what they are.
    pub const ONE: Self = Self { denominator: 1 };

    /// Counts in units of one over `denominator` (0 is taken as 1).
    #[must_use]
    pub fn new(denominator: u64) -> Self {
        Self { denominator: denominator.max(1) }
    }

    /// The nearest whole number, from a half on the greater one; but never 0: what occurred is not lost.
    #[inline]
    #[must_use]
    pub fn round(self, total: u64) -> u64 {
        if self.denominator == 1 {
            return total;
        }
        let (whole, rest) = (total / self.denominator, total % self.denominator);
        // rest ≥ denominator / 2, without overflow.
        (whole + u64::from(rest >= self.denominator - rest)).max(1)
    }
}
