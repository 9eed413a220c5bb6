//! Rounding of weighted counts.

/// Divides a weighted total by the common denominator of the weights, which is not 0.
///
/// Weights are integers over that denominator, so totals are exact and rounded once, at the end: to the nearest integer,
/// half up, but to at least 1 so that no counted pre-token is lost.
#[inline]
pub fn scaled(total: u64, denominator: u64) -> u64 {
    if denominator == 1 {
        return total;
    }
    let (quotient, remainder) = (total / denominator, total % denominator);
    // remainder ≥ denominator / 2, without overflow.
    (quotient + u64::from(remainder >= denominator - remainder)).max(1)
}
