//! Rounding of weighted counts.

/// Denominator of weighted counts. Weights are integers over a common denominator; totals are rounded once, at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    denominator: u64,
}

impl Scale {
    /// Unweighted counts.
    pub const ONE: Self = Self { denominator: 1 };

    /// Counts in units of 1 / `denominator`. A denominator of 0 is taken as 1.
    #[must_use]
    pub fn new(denominator: u64) -> Self {
        Self { denominator: denominator.max(1) }
    }

    /// Rounds to the nearest integer, half up, but to at least 1 so that no counted pre-token is lost.
    #[inline]
    #[must_use]
    pub fn round(self, total: u64) -> u64 {
        if self.denominator == 1 {
            return total;
        }
        let (quotient, remainder) = (total / self.denominator, total % self.denominator);
        // remainder ≥ denominator / 2, without overflow.
        (quotient + u64::from(remainder >= self.denominator - remainder)).max(1)
    }
}
