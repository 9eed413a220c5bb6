//! The next token of a language model on the CPU: one token at a time, computed in float32, at the speed of memory.
//!
//! The modules in Python compute prompts; this computes the same function for a single new token, for which the time is that of
//! reading every weight once. Weights and the cache of keys and values belong to the caller.
//!
//! - [`model`]: the weights and the cache, and whether their sizes agree
//! - [`matrix`]: weights in float32, or quantized by groups
//! - [`dot`]: products of a matrix and a vector, and attention of one query
//! - [`parts`]: norms, rotations, activation functions
//! - [`team`]: threads that work in step

pub mod dot;
pub mod matrix;
pub mod model;
mod parts;
pub mod team;

use crate::Result;
use dot::Instructions;
pub use matrix::Matrix;
pub use model::{Block, Cache, Linear, Model, Shape};
pub use parts::{Activation, Norm};
use team::Team;

/// Computes with a team of threads.
pub struct Decoder {
    team: Team,
    instructions: Instructions,
}

impl Decoder {
    /// Starts the threads.
    pub fn new(n_threads: usize) -> Self {
        Self { team: Team::new(n_threads), instructions: Instructions::detect() }
    }

    /// Computes on the calling thread alone from now on, or on all threads again; the results are the same.
    pub fn work_alone(&mut self, alone: bool) {
        self.team.work_alone(alone);
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
        model::check(model, caches, logits.len())?;
        let d = model.shape.d_model;
        let mut x = model.embedding.row(id, d)?;
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
        let mut hidden = vec![0.0; block.down.weight.n_weights() / shape.d_model];
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
                instructions.multiply(*rows, x, *bias, out);
            }
        });
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
    (table.chunks_exact(width).nth(number)).ok_or_else(|| matrix::beyond(number, table.len() / width))
}

#[cfg(test)]
mod tests;
