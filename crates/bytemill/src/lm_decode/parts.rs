//! The parts of a model between its matrices: norms, rotations, activation functions.

/// Activation function of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// silu(w₁ x) · w₃ x.
    SwiGlu,
    /// GELU, approximated with tanh as in GPT-2.
    Gelu,
    /// GELU with the error function.
    GeluExact,
    /// max(x, 0).
    Relu,
    /// max(x, 0)².
    Relu2,
}

impl Activation {
    /// Applies the function to `hidden`; `gated` is the second product of SwiGLU, and empty otherwise.
    pub(super) fn apply(self, hidden: &mut [f32], gated: &[f32]) {
        match self {
            Self::SwiGlu => {
                for (x, gated) in hidden.iter_mut().zip(gated) {
                    *x = *x / (1.0 + (-*x).exp()) * gated;
                }
            }
            Self::Gelu => hidden.iter_mut().for_each(|x| *x = gelu_tanh(*x)),
            Self::GeluExact => hidden.iter_mut().for_each(|x| *x = gelu(*x)),
            Self::Relu => hidden.iter_mut().for_each(|x| *x = x.max(0.0)),
            Self::Relu2 => hidden.iter_mut().for_each(|x| *x = x.max(0.0) * x.max(0.0)),
        }
    }
}

fn gelu_tanh(x: f32) -> f32 {
    let u = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    // (1 + tanh u) / 2 = 1 / (1 + e^(−2u))
    x / (1.0 + (-2.0 * u).exp())
}

/// x Φ(x), with the error function to 1.5e-7 (Abramowitz & Stegun 1964, formula 7.1.26).
fn gelu(x: f32) -> f32 {
    let z = f64::from(x).abs() * std::f64::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = t * series.iter().fold(0.0, |sum, c| sum * t + c) * (-z * z).exp(); // 1 − erf(z)
    let below = if x < 0.0 { 0.5 * tail } else { 1.0 - 0.5 * tail };
    (f64::from(x) * below) as f32
}

/// RMSNorm, or LayerNorm if `centred`.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'w> {
    /// Factor of each number.
    pub weight: &'w [f32],
    /// Term of each number.
    pub bias: Option<&'w [f32]>,
}

impl Norm<'_> {
    /// Normalizes `x` into `out`.
    pub(super) fn apply(&self, x: &[f32], centred: bool, eps: f32, out: &mut [f32]) {
        let n = x.len() as f32;
        let mean = if centred { sum(x.iter().copied()) / n } else { 0.0 };
        let variance = sum(x.iter().map(|x| (x - mean) * (x - mean))) / n;
        let scale = 1.0 / (variance + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(self.weight) {
            *out = (x - mean) * scale * weight;
        }
        for (out, bias) in out.iter_mut().zip(self.bias.unwrap_or_default()) {
            *out += bias;
        }
    }
}

/// Sums in float64: exact enough in any order.
fn sum(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.map(f64::from).sum::<f64>() as f32
}

/// Rotates the pairs of each head by the angles whose cos and sin are in `rotations`.
pub(super) fn rotate(heads: &mut [f32], d_head: usize, rotations: &[f32]) {
    for head in heads.chunks_exact_mut(d_head) {
        for (pair, rotation) in head.as_chunks_mut::<2>().0.iter_mut().zip(rotations.as_chunks::<2>().0) {
            let ([even, odd], [cos, sin]) = (*pair, *rotation);
            *pair = [even * cos - odd * sin, even * sin + odd * cos];
        }
    }
}
