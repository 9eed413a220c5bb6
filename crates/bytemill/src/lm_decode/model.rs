//! The weights of a model and its cache, which belong to the caller.

use super::matrix::Matrix;
use super::parts::{Activation, Norm};
use crate::{Error, Result};

/// What the sizes of the weights do not tell.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Width of the stream.
    pub d_model: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values, shared by groups of query heads.
    pub n_kv_heads: usize,
    /// Norms precede the sub-layers, instead of following the additions.
    pub norm_first: bool,
    /// Norms are LayerNorm, instead of RMSNorm.
    pub centred: bool,
    /// Term of the norms.
    pub eps: f32,
    /// Activation function.
    pub activation: Activation,
    /// Bound of the logits.
    pub soft_cap: Option<f32>,
}

/// A linear layer: a row of weights for each output.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'w> {
    /// The rows.
    pub weight: Matrix<'w>,
    /// Term of each output.
    pub bias: Option<&'w [f32]>,
}

/// The weights of a block.
#[derive(Debug)]
pub struct Block<'w> {
    /// The norms of attention and of the feed-forward network.
    pub norms: [Norm<'w>; 2],
    /// Queries, keys and values.
    pub qkv: [Linear<'w>; 3],
    /// Weights of RMSNorm over each head of queries and of keys.
    pub qk_norms: Option<[&'w [f32]; 2]>,
    /// From the heads to the stream.
    pub output: Linear<'w>,
    /// Into the feed-forward network: one layer, or two for SwiGLU.
    pub up: Vec<Linear<'w>>,
    /// Back to the stream.
    pub down: Linear<'w>,
}

/// The weights of a model.
#[derive(Debug)]
pub struct Model<'w> {
    /// What the sizes do not tell.
    pub shape: Shape,
    /// A row for each id.
    pub embedding: Matrix<'w>,
    /// A row for each position, added to the embedding.
    pub positions: Option<&'w [f32]>,
    /// For each position, cos and sin of each pair of a head.
    pub rotations: Option<&'w [f32]>,
    /// The blocks.
    pub blocks: Vec<Block<'w>>,
    /// The norm before the output layer.
    pub final_norm: Option<Norm<'w>>,
    /// The output layer.
    pub head: Linear<'w>,
}

/// Keys and values of a block, each of shape (`n_kv_heads`, capacity, `d_head`).
#[derive(Debug)]
pub struct Cache<'c> {
    /// Keys of the positions so far.
    pub keys: &'c mut [f32],
    /// Values of the positions so far.
    pub values: &'c mut [f32],
}

impl<'w> Linear<'w> {
    /// The weights and bias of `n` outputs from `start`.
    pub(super) fn rows(&self, start: usize, n: usize, width: usize) -> (Matrix<'w>, Option<&'w [f32]>) {
        (self.weight.rows(start, n, width), self.bias.map(|bias| &bias[start..][..n]))
    }
}

/// Returns an error unless all sizes agree.
pub(super) fn check(model: &Model<'_>, caches: &[Cache<'_>], vocab_size: usize) -> Result<()> {
    let Shape { d_model, d_head, n_heads, n_kv_heads, activation, .. } = model.shape;
    if [d_model, d_head, n_heads, n_kv_heads, vocab_size].contains(&0) || !n_heads.is_multiple_of(n_kv_heads) {
        return Err(Error::Invalid("the sizes of the model contradict each other".into()));
    }
    let (d_q, d_kv) = (n_heads * d_head, n_kv_heads * d_head);
    let linear = |layer: &Linear<'_>, n_out: usize, n_in: usize| {
        layer.weight.n_weights() == n_out * n_in
            && layer.weight.has_rows_of(n_in)
            && layer.bias.is_none_or(|bias| bias.len() == n_out)
    };
    let norm = |norm: &Norm<'_>| norm.weight.len() == d_model && norm.bias.is_none_or(|bias| bias.len() == d_model);
    let block = |block: &Block<'_>| {
        let d_ff = block.down.weight.n_weights() / d_model;
        d_ff > 0
            && block.norms.iter().all(norm)
            && block.qkv.iter().zip([d_q, d_kv, d_kv]).all(|(layer, n_out)| linear(layer, n_out, d_model))
            && block.qk_norms.is_none_or(|weights| weights.iter().all(|weight| weight.len() == d_head))
            && linear(&block.output, d_model, d_q)
            && block.up.len() == 1 + usize::from(activation == Activation::SwiGlu)
            && block.up.iter().all(|layer| linear(layer, d_ff, d_model))
            && linear(&block.down, d_model, d_ff)
    };
    let cache = |cache: &Cache<'_>| {
        cache.keys.len() == cache.values.len()
            && !cache.keys.is_empty()
            && cache.keys.len().is_multiple_of(n_kv_heads * d_head)
    };
    let agree = model.embedding.has_rows_of(d_model)
        && model.blocks.iter().all(block)
        && caches.len() == model.blocks.len()
        && caches.iter().all(cache)
        && model.final_norm.as_ref().is_none_or(norm)
        && linear(&model.head, vocab_size, d_model);
    if agree { Ok(()) } else { Err(Error::Invalid("the sizes of the weights contradict each other".into())) }
}
