//! Matrices of weights, in float32 or quantized by groups of a row.

use crate::{Error, Result};

/// Consecutive weights of a row that share a scale.
pub const GROUP: usize = 32;

/// Rows of weights, one after another.
///
/// A quantized weight is its code times the scale of its group, a number in float16. The numbers are those of GGUF's `q8_0` and
/// `q4_0`, with codes and scales in arrays of their own.
#[derive(Clone, Copy, Debug)]
pub enum Matrix<'w> {
    /// The weights.
    Float32(&'w [f32]),
    /// A code of a byte for each weight.
    Int8 {
        /// −127 to 127.
        codes: &'w [i8],
        /// The bits of a float16 for each group.
        scales: &'w [u16],
    },
    /// A code of four bits for each weight.
    Int4 {
        /// 16 bytes for each group: the low four bits belong to its first 16 weights, the high ones to the others. From each, 8 is
        /// subtracted.
        codes: &'w [u8],
        /// The bits of a float16 for each group.
        scales: &'w [u16],
    },
}

impl<'w> Matrix<'w> {
    /// The number of weights.
    pub fn n_weights(&self) -> usize {
        match self {
            Self::Float32(weights) => weights.len(),
            Self::Int8 { codes, .. } => codes.len(),
            Self::Int4 { codes, .. } => 2 * codes.len(),
        }
    }

    /// Returns whether rows have `width` weights, and each group a scale.
    pub(super) fn has_rows_of(&self, width: usize) -> bool {
        let has_groups = |scales: &[u16]| {
            width.is_multiple_of(GROUP) && scales.len().checked_mul(GROUP).is_some_and(|n| n == self.n_weights())
        };
        self.n_weights().is_multiple_of(width)
            && match self {
                Self::Float32(_) => true,
                Self::Int8 { scales, .. } | Self::Int4 { scales, .. } => has_groups(scales),
            }
    }

    /// Returns `n` rows from `start`.
    pub(super) fn rows(&self, start: usize, n: usize, width: usize) -> Self {
        let (start, n) = (start * width, n * width);
        let of_groups = |scales: &'w [u16]| &scales[start / GROUP..][..n / GROUP];
        match *self {
            Self::Float32(weights) => Self::Float32(&weights[start..][..n]),
            Self::Int8 { codes, scales } => Self::Int8 { codes: &codes[start..][..n], scales: of_groups(scales) },
            Self::Int4 { codes, scales } => {
                Self::Int4 { codes: &codes[start / 2..][..n / 2], scales: of_groups(scales) }
            }
        }
    }

    /// Returns a row in float32.
    ///
    /// # Errors
    /// There is no such row.
    pub(super) fn row(&self, number: usize, width: usize) -> Result<Vec<f32>> {
        if number >= self.n_weights() / width {
            return Err(beyond(number, self.n_weights() / width));
        }
        Ok(match self.rows(number, 1, width) {
            Self::Float32(weights) => weights.to_vec(),
            Self::Int8 { codes, scales } => (codes.as_chunks::<GROUP>().0.iter().zip(scales))
                .flat_map(|(codes, scale)| codes.map(|code| f32::from(code) * float16(*scale)))
                .collect(),
            Self::Int4 { codes, scales } => (codes.as_chunks::<{ GROUP / 2 }>().0.iter().zip(scales))
                .flat_map(|(codes, scale)| {
                    [codes.map(low), codes.map(high)].map(|half| half.map(|x| x * float16(*scale)))
                })
                .flatten()
                .collect(),
        })
    }
}

/// The code in the low four bits.
#[inline(always)]
pub(super) fn low(codes: u8) -> f32 {
    (i32::from(codes & 15) - 8) as f32
}

/// The code in the high four bits.
#[inline(always)]
pub(super) fn high(codes: u8) -> f32 {
    (i32::from(codes >> 4) - 8) as f32
}

/// The value of the bits of a finite float16.
///
/// Its exponent and mantissa, moved to those of a float32, are a number 2⁻¹¹² times as large, also if it is subnormal.
#[inline(always)]
pub(super) fn float16(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// The error for a row that a table does not have.
pub(super) fn beyond(number: usize, n_rows: usize) -> Error {
    Error::Invalid(format!("{number} is beyond a table of {n_rows} rows"))
}
