//! The next token of a language model on the CPU: one token at a time, in float32, at the speed of memory.
//!
//! The modules in Python compute prompts; this computes the same function for a single new token, for which the time is that of
//! reading every weight once. Weights and the cache of keys and values belong to the caller.
//!
//! - [`dot`]: products of a matrix and a vector, and attention of one query
//! - [`parts`]: norms, rotations, activation functions
//! - [`team`]: threads that work in step

pub mod dot;
mod parts;
pub mod team;

use crate::{Error, Result};
use dot::Instructions;
pub use parts::{Activation, Norm};
use team::Team;

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
    pub weight: &'w [f32],
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
    pub embedding: &'w [f32],
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

/// Computes with a team of threads.
pub struct Decoder {
    team: Team,
    instructions: Instructions,
}

impl Decoder {
    /// Starts the threads.
    #[must_use]
    pub fn new(n_threads: usize, instructions: Instructions) -> Self {
        Self { team: Team::new(n_threads), instructions }
    }

    /// Computes the logits after the token `id` at `position`, and adds its keys and values to the caches.
    ///
    /// A cache holds the last positions in order. When it is full, its first position makes room, and the token attends to it for
    /// the last time: the caches of a sliding window hold one position fewer than the window.
    ///
    /// # Errors
    /// A size contradicts another one, or `id` or `position` is beyond the tables.
    pub fn next_logits(
        &mut self,
        model: &Model<'_>,
        caches: &mut [Cache<'_>],
        (id, position): (usize, usize),
        logits: &mut [f32],
    ) -> Result<()> {
        check(model, caches, logits.len())?;
        let d = model.shape.d_model;
        let mut x = row(model.embedding, id, d)?.to_vec();
        if let Some(positions) = model.positions {
            add(&mut x, row(positions, position, d)?);
        }
        let rotations = model.rotations.map(|table| row(table, position, model.shape.d_head)).transpose()?;
        let mut y = vec![0.0; d];
        let shape = &model.shape;
        for (block, cache) in model.blocks.iter().zip(caches) {
            self.block(&Place { shape, block, position, rotations }, cache, &mut x, &mut y);
        }
        if let Some(norm) = &model.final_norm {
            norm.apply(&x, model.shape.centred, model.shape.eps, &mut y);
            std::mem::swap(&mut x, &mut y);
        }
        self.linear(&model.head, &x, logits);
        if let Some(cap) = model.shape.soft_cap {
            logits.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
        }
        Ok(())
    }

    /// Computes a block: `x` is the stream, `y` is overwritten.
    fn block(&mut self, place: &Place<'_>, cache: &mut Cache<'_>, x: &mut Vec<f32>, y: &mut Vec<f32>) {
        let Place { shape, block, .. } = place;
        let normalize = |number: usize, x: &[f32], y: &mut [f32]| {
            block.norms[number].apply(x, shape.centred, shape.eps, y);
        };
        let mut heads = vec![0.0; shape.n_heads * shape.d_head];
        let mut hidden = vec![0.0; block.down.weight.len() / shape.d_model];
        if shape.norm_first {
            normalize(0, x, y);
            self.attention(place, cache, y, &mut heads);
            self.linear(&block.output, &heads, y);
            add(x, y);
            normalize(1, x, y);
            self.feed_forward(place, y, &mut hidden);
            self.linear(&block.down, &hidden, y);
            add(x, y);
        } else {
            self.attention(place, cache, x, &mut heads);
            self.linear(&block.output, &heads, y);
            add(x, y);
            normalize(0, x, y);
            self.feed_forward(place, y, &mut hidden);
            self.linear(&block.down, &hidden, x);
            add(x, y);
            normalize(1, x, y);
            std::mem::swap(x, y);
        }
    }

    /// Computes the heads' results `out` before the output layer, for the normalized stream `x`.
    fn attention(&mut self, place: &Place<'_>, cache: &mut Cache<'_>, x: &[f32], out: &mut [f32]) {
        let Place { shape, block, position, rotations } = place;
        let (d_head, d_kv) = (shape.d_head, shape.n_kv_heads * shape.d_head);
        let mut qkv = vec![0.0; out.len() + 2 * d_kv];
        let (q, kv) = qkv.split_at_mut(out.len());
        let (k, v) = kv.split_at_mut(d_kv);
        self.products(&mut [(&block.qkv[0], &mut *q), (&block.qkv[1], &mut *k), (&block.qkv[2], &mut *v)], x);
        for (heads, number) in [(&mut *q, 0), (&mut *k, 1)] {
            if let Some(weights) = block.qk_norms {
                let norm = Norm { weight: weights[number], bias: None };
                for head in heads.chunks_exact_mut(d_head) {
                    let before = head.to_vec();
                    norm.apply(&before, false, shape.eps, head);
                }
            }
            if let Some(rotations) = rotations {
                parts::rotate(heads, d_head, rotations);
            }
        }
        let scale = 1.0 / (d_head as f32).sqrt();
        q.iter_mut().for_each(|q| *q *= scale);

        let capacity = cache.keys.len() / d_kv;
        let n_kept = (*position).min(capacity);
        let group = shape.n_heads / shape.n_kv_heads * d_head;
        let mut work: Vec<_> = (cache.keys.chunks_exact_mut(capacity * d_head))
            .zip(cache.values.chunks_exact_mut(capacity * d_head))
            .zip(k.chunks_exact(d_head).zip(v.chunks_exact(d_head)))
            .zip(q.chunks_exact(group).zip(out.chunks_exact_mut(group)))
            .map(|(((keys, values), new), (queries, out))| KvHead { keys, values, new, queries, out })
            .collect();
        let (instructions, n_threads) = (self.instructions, self.team.n_threads());
        let mut parts: Vec<_> = work.chunks_mut(shape.n_kv_heads.div_ceil(n_threads)).collect();
        self.team.for_each(&mut parts, |heads| {
            let mut scores = vec![0.0; n_kept + 1];
            heads.iter_mut().for_each(|head| head.attend(instructions, n_kept, &mut scores));
        });
    }

    /// Computes the inner numbers of the feed-forward network.
    fn feed_forward(&mut self, place: &Place<'_>, x: &[f32], hidden: &mut [f32]) {
        let Place { shape, block, .. } = place;
        let mut gated = vec![0.0; if block.up.len() > 1 { hidden.len() } else { 0 }];
        let share = hidden.len().div_ceil(self.team.n_threads());
        let mut gates = gated.chunks_mut(share);
        let mut parts: Vec<_> =
            hidden.chunks_mut(share).map(|hidden| (hidden, gates.next().unwrap_or_default())).enumerate().collect();
        let instructions = self.instructions;
        self.team.for_each(&mut parts, |(number, (hidden, gated))| {
            for (layer, out) in block.up.iter().zip([&mut **hidden, &mut **gated]) {
                let (rows, bias) = layer.rows(*number * share, out.len(), x.len());
                instructions.multiply(rows, x, bias, out);
            }
            shape.activation.apply(hidden, gated);
        });
    }

    fn linear(&mut self, layer: &Linear<'_>, x: &[f32], out: &mut [f32]) {
        self.products(&mut [(layer, out)], x);
    }

    /// Computes linear layers of the same input; each thread computes its share of the outputs of each.
    fn products(&mut self, layers: &mut [(&Linear<'_>, &mut [f32])], x: &[f32]) {
        let n_threads = self.team.n_threads();
        let mut parts: Vec<Vec<_>> = (0..n_threads).map(|_| Vec::with_capacity(layers.len())).collect();
        for (layer, out) in layers {
            let share = out.len().div_ceil(n_threads);
            for ((number, out), part) in out.chunks_mut(share).enumerate().zip(&mut parts) {
                part.push((layer.rows(number * share, out.len(), x.len()), out));
            }
        }
        let instructions = self.instructions;
        self.team.for_each(&mut parts, |part| {
            for ((rows, bias), out) in part {
                instructions.multiply(rows, x, *bias, out);
            }
        });
    }
}

impl<'w> Linear<'w> {
    /// The weights and bias of `n` outputs from `start`.
    fn rows(&self, start: usize, n: usize, width: usize) -> (&'w [f32], Option<&'w [f32]>) {
        (&self.weight[start * width..][..n * width], self.bias.map(|bias| &bias[start..][..n]))
    }
}

/// A block at a position.
struct Place<'a> {
    shape: &'a Shape,
    block: &'a Block<'a>,
    position: usize,
    rotations: Option<&'a [f32]>,
}

/// A head of keys and values, and the query heads that share it.
struct KvHead<'a> {
    keys: &'a mut [f32],
    values: &'a mut [f32],
    /// Key and value of the new token.
    new: (&'a [f32], &'a [f32]),
    queries: &'a [f32],
    out: &'a mut [f32],
}

impl KvHead<'_> {
    /// Attends to the `n_kept` positions in the cache and the new one, and adds that to the cache.
    fn attend(&mut self, instructions: Instructions, n_kept: usize, scores: &mut [f32]) {
        let (key, value) = self.new;
        let start = n_kept * key.len();
        if start == self.keys.len() {
            let (keys, values) = ([&*self.keys, key].concat(), [&*self.values, value].concat());
            self.attend_to(instructions, &keys, &values, scores);
            self.keys.copy_from_slice(&keys[key.len()..]);
            self.values.copy_from_slice(&values[key.len()..]);
            return;
        }
        let end = start + key.len();
        self.keys[start..end].copy_from_slice(key);
        self.values[start..end].copy_from_slice(value);
        let (keys, values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
        self.attend_to(instructions, &keys[..end], &values[..end], scores);
    }

    fn attend_to(&mut self, instructions: Instructions, keys: &[f32], values: &[f32], scores: &mut [f32]) {
        let width = self.new.0.len();
        for (query, out) in self.queries.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            instructions.attend(query, keys, values, scores, out);
        }
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn row(table: &[f32], number: usize, width: usize) -> Result<&[f32]> {
    (table.chunks_exact(width).nth(number))
        .ok_or_else(|| Error::Invalid(format!("{number} is beyond a table of {} rows", table.len() / width)))
}

/// Returns an error unless all sizes agree.
fn check(model: &Model<'_>, caches: &[Cache<'_>], vocab_size: usize) -> Result<()> {
    let Shape { d_model, d_head, n_heads, n_kv_heads, activation, .. } = model.shape;
    if [d_model, d_head, n_heads, n_kv_heads, vocab_size].contains(&0) || !n_heads.is_multiple_of(n_kv_heads) {
        return Err(Error::Invalid("the sizes of the model contradict each other".into()));
    }
    let (d_q, d_kv) = (n_heads * d_head, n_kv_heads * d_head);
    let linear = |layer: &Linear<'_>, n_out: usize, n_in: usize| {
        layer.weight.len() == n_out * n_in && layer.bias.is_none_or(|bias| bias.len() == n_out)
    };
    let norm = |norm: &Norm<'_>| norm.weight.len() == d_model && norm.bias.is_none_or(|bias| bias.len() == d_model);
    let block = |block: &Block<'_>| {
        let d_ff = block.down.weight.len() / d_model;
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
    let agree = model.blocks.iter().all(block)
        && caches.len() == model.blocks.len()
        && caches.iter().all(cache)
        && model.final_norm.as_ref().is_none_or(norm)
        && linear(&model.head, vocab_size, d_model);
    if agree { Ok(()) } else { Err(Error::Invalid("the sizes of the weights contradict each other".into())) }
}

#[cfg(test)]
mod tests;
