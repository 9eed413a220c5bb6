//! Inner products, the work of a decoder: every weight is read once, so memory bandwidth is the limit.

use super::matrix::{GROUP, Matrix, float16, high, low};
use crate::sys::prefetch::prefetch_at;

const LANES: usize = 16;
const CHUNK: usize = 4 * LANES;

/// Distance in numbers at which weights are prefetched. Rows follow each other, so this also reaches into the next row.
const AHEAD: usize = 1024;

/// The same for bytes of quantized weights.
const BYTES_AHEAD: usize = 2048;

/// The instructions that a decoder uses.
#[derive(Clone, Copy, Debug)]
pub enum Instructions {
    /// What every processor of the architecture has.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Fma(crate::sys::cpu::Fma),
}

impl Instructions {
    /// Returns the fastest that the processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(fma) = crate::sys::cpu::Fma::detect() {
            return Self::Fma(fma);
        }
        Self::Portable
    }

    /// Computes `out[r] = rows[r] · x + bias[r]`; `rows` has one row of the length of `x` for each number of `out`.
    pub fn multiply(self, rows: Matrix<'_>, x: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
        debug_assert_eq!(rows.n_weights(), x.len() * out.len());
        debug_assert!(rows.has_rows_of(x.len()));
        self.run(Multiply { rows, x, bias, out });
    }

    /// Computes the attention of one query: `out = Σⱼ wⱼ values[j]` with `w = softmax(keys · query)`.
    ///
    /// `keys` and `values` have one row of the length of `query` for each number of `scores`, which is overwritten.
    pub fn attend(self, query: &[f32], keys: &[f32], values: &[f32], scores: &mut [f32], out: &mut [f32]) {
        self.run(Attend { query, keys, values, scores, out });
    }

    fn run<W: Work>(self, work: W) {
        match self {
            Self::Portable => work.run::<{ cfg!(target_arch = "aarch64") }>(),
            #[cfg(target_arch = "x86_64")]
            Self::Fma(fma) => fma.run(Fused(work)),
        }
    }
}

/// Work that is compiled with and without fused multiply-add, which in software is slow.
trait Work {
    fn run<const FUSED: bool>(self);
}

#[cfg(target_arch = "x86_64")]
struct Fused<W>(W);

#[cfg(target_arch = "x86_64")]
impl<W: Work> crate::sys::cpu::Kernel<crate::sys::cpu::Fma> for Fused<W> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: crate::sys::cpu::Fma) {
        self.0.run::<true>();
    }
}

struct Multiply<'a> {
    rows: Matrix<'a>,
    x: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Work for Multiply<'_> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let (x, width) = (self.x, self.x.len());
        match self.rows {
            Matrix::Float32(weights) => {
                for (row, out) in weights.chunks_exact(width).zip(&mut *self.out) {
                    *out = dot::<FUSED>(row, x);
                }
            }
            Matrix::Int8 { codes, scales } => {
                let rows = codes.chunks_exact(width).zip(scales.chunks_exact(width / GROUP));
                for ((codes, scales), out) in rows.zip(&mut *self.out) {
                    *out = dot_int8::<FUSED>(codes, scales, x);
                }
            }
            Matrix::Int4 { codes, scales } => {
                let rows = codes.chunks_exact(width / 2).zip(scales.chunks_exact(width / GROUP));
                for ((codes, scales), out) in rows.zip(&mut *self.out) {
                    *out = dot_int4::<FUSED>(codes, scales, x);
                }
            }
        }
        for (out, bias) in self.out.iter_mut().zip(self.bias.unwrap_or_default()) {
            *out += bias;
        }
    }
}

struct Attend<'a> {
    query: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    scores: &'a mut [f32],
    out: &'a mut [f32],
}

impl Work for Attend<'_> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let width = self.query.len();
        for (key, score) in self.keys.chunks_exact(width).zip(&mut *self.scores) {
            *score = dot::<FUSED>(key, self.query);
        }
        let max = self.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for score in &mut *self.scores {
            *score = (*score - max).exp();
            sum += *score;
        }
        self.out.fill(0.0);
        for (value, weight) in self.values.chunks_exact(width).zip(&*self.scores) {
            let weight = weight / sum;
            for (out, value) in self.out.iter_mut().zip(value) {
                *out = add_product::<FUSED>(weight, *value, *out);
            }
        }
    }
}

#[inline(always)]
fn add_product<const FUSED: bool>(a: f32, b: f32, sum: f32) -> f32 {
    if FUSED { a.mul_add(b, sum) } else { a * b + sum }
}

/// The inner product of a row of weights and a vector of the same length.
#[inline(always)]
fn dot<const FUSED: bool>(row: &[f32], x: &[f32]) -> f32 {
    let (row_chunks, row_rest) = row.as_chunks::<CHUNK>();
    let (x_chunks, x_rest) = x.as_chunks::<CHUNK>();
    let mut sums = [[0.0; LANES]; CHUNK / LANES];
    for (row, x) in row_chunks.iter().zip(x_chunks) {
        for (k, sums) in sums.iter_mut().enumerate() {
            prefetch_at(row.as_ptr().wrapping_add(AHEAD + k * LANES));
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = add_product::<FUSED>(row[k * LANES + lane], x[k * LANES + lane], *sum);
            }
        }
    }
    let [a, b, c, d] = sums;
    let total = (0..LANES).map(|lane| (a[lane] + b[lane]) + (c[lane] + d[lane])).sum();
    row_rest.iter().zip(x_rest).fold(total, |sum, (a, b)| add_product::<FUSED>(*a, *b, sum))
}

/// The inner product of a row of codes and a vector: Σ over groups of scale · Σ code · x.
#[inline(always)]
fn dot_int8<const FUSED: bool>(codes: &[i8], scales: &[u16], x: &[f32]) -> f32 {
    let (groups, xs) = (codes.as_chunks::<GROUP>().0, x.as_chunks::<GROUP>().0);
    let mut sums = [0.0; LANES];
    for ((codes, scale), x) in groups.iter().zip(scales).zip(xs) {
        prefetch_at(codes.as_ptr().wrapping_add(BYTES_AHEAD));
        let scale = float16(*scale);
        for (lane, sum) in sums.iter_mut().enumerate() {
            let first = f32::from(codes[lane]) * x[lane];
            let both = add_product::<FUSED>(f32::from(codes[LANES + lane]), x[LANES + lane], first);
            *sum = add_product::<FUSED>(scale, both, *sum);
        }
    }
    sums.iter().sum()
}

/// The same for codes of four bits.
#[inline(always)]
fn dot_int4<const FUSED: bool>(codes: &[u8], scales: &[u16], x: &[f32]) -> f32 {
    let (groups, xs) = (codes.as_chunks::<LANES>().0, x.as_chunks::<GROUP>().0);
    let mut sums = [0.0; LANES];
    for ((codes, scale), x) in groups.iter().zip(scales).zip(xs) {
        prefetch_at(codes.as_ptr().wrapping_add(BYTES_AHEAD));
        let scale = float16(*scale);
        for (lane, sum) in sums.iter_mut().enumerate() {
            let first = low(codes[lane]) * x[lane];
            let both = add_product::<FUSED>(high(codes[lane]), x[LANES + lane], first);
            *sum = add_product::<FUSED>(scale, both, *sum);
        }
    }
    sums.iter().sum()
}

const _: () = assert!(GROUP == 2 * LANES);
