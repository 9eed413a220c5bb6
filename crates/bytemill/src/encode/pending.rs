//! Pre-tokens that the short cache does not hold.
//!
//! Finding the ids of one means waiting for memory several times over. So pre-tokens that miss the cache stay pending until
//! there are many, and then they are merged in lockstep. Until then a *placeholder*, a number that is no id, stands for the
//! ids of each of them, both in the buffered ids and in the cache, so that a pre-token that occurs twice is merged once.

use super::id::Id;
use super::long_cache::LongCache;
use super::short_cache::{SHORT_IDS, ShortCache};
use crate::error::{Error, Result};
use crate::sys::hash::Packed;
use crate::sys::memory;
use std::ops::Range;

/// Pending pre-tokens that are resolved together; no number from 64 to 1,024 was clearly better.
const MANY: usize = 256;

/// Numbers from here on are placeholders. Ids are below: they are fewer than sixteen times the number of tokens.
const FIRST_PLACEHOLDER: u32 = 1 << 31;

/// Ids are copied in blocks of this many, also where fewer are needed: their number is unpredictable.
const COPY_BLOCK: usize = 16;

#[derive(Default)]
pub struct Pending {
    pub pretokens: Vec<Pretoken>,
    /// Indices of placeholders among the buffered ids, in ascending order, and the pre-token that each stands for.
    occurrences: Vec<(u32, u32)>,
    /// Where the ids of each pre-token start in `ids`, once they are known, and how many they are.
    pub spans: Vec<(u32, u32)>,
    pub ids: Vec<u32>,
    /// Pre-tokens to be merged in lockstep: in narrow lanes, and in wide ones.
    pub to_merge: [Vec<u32>; 2],
}

pub struct Pretoken {
    /// Packed if it is short, else [`Packed::NO_KEY`].
    pub key: Packed,
    /// Selects the line of the short cache.
    pub short_hash: u32,
    /// Where it is in the text, unless it is short.
    pub range: Range<usize>,
    /// Selects the slot of the long cache.
    pub long_hash: u64,
    /// Whether the long cache held it when it was resolved.
    pub is_cached: bool,
}

impl Pretoken {
    pub fn is_short(&self) -> bool {
        self.key != Packed::NO_KEY
    }

    /// What the long cache knows it by: its bytes, or the key and a last byte that is not the last one of any text. `sixteen`
    /// is scratch space.
    #[inline]
    pub fn long_key<'b>(&self, text: &'b [u8], sixteen: &'b mut [u8; 16]) -> &'b [u8] {
        if !self.is_short() {
            return &text[self.range.clone()];
        }
        *sixteen = self.key.bytes();
        sixteen[15] |= 0xF0;
        sixteen
    }
}

impl Pending {
    /// Adds a pre-token and returns its placeholder, which stands at `index` among the buffered ids.
    pub fn add(&mut self, pretoken: Pretoken, index: usize) -> u32 {
        let placeholder = FIRST_PLACEHOLDER | self.pretokens.len() as u32;
        self.pretokens.push(pretoken);
        self.add_occurrence(index, placeholder);
        placeholder
    }

    /// Records that a placeholder stands at `index` too.
    pub fn add_occurrence(&mut self, index: usize, placeholder: u32) {
        self.occurrences.push((index as u32, placeholder - FIRST_PLACEHOLDER));
    }

    /// Whether enough pre-tokens are pending to resolve them.
    #[inline]
    pub fn are_many(&self) -> bool {
        self.pretokens.len() >= MANY
    }

    fn clear(&mut self) {
        self.pretokens.clear();
        self.occurrences.clear();
        self.spans.clear();
        self.ids.clear();
        self.to_merge.iter_mut().for_each(Vec::clear);
    }

    /// Drops all pending pre-tokens and removes their placeholders from the cache.
    pub fn discard(&mut self, cache: &mut ShortCache) {
        for pretoken in self.pretokens.iter().filter(|pretoken| pretoken.is_short()) {
            cache.remove_placeholder(pretoken.key, pretoken.short_hash);
        }
        self.clear();
    }

    /// Puts the ids of all pre-tokens into the caches, in place of the placeholders.
    pub fn store(&mut self, text: &[u8], short_cache: &mut ShortCache, long_cache: &mut LongCache) {
        // Ids are copied in blocks.
        self.ids.extend([0; COPY_BLOCK]);
        for (pretoken, &(start, n_ids)) in self.pretokens.iter().zip(&self.spans) {
            if pretoken.is_cached {
                continue;
            }
            let (ids, n_ids) = (&self.ids[start as usize..], n_ids as usize);
            if pretoken.is_short() {
                if let Some(first) = ids.first_chunk().filter(|_| n_ids <= SHORT_IDS) {
                    short_cache.insert(pretoken.key, pretoken.short_hash, first, n_ids);
                    continue;
                }
                short_cache.remove_placeholder(pretoken.key, pretoken.short_hash);
            }
            long_cache.insert(pretoken.long_key(text, &mut [0; 16]), pretoken.long_hash, &ids[..n_ids]);
        }
    }

    /// Appends the buffered `ids` to `out`, with resolved ids in place of placeholders, and clears both.
    pub fn flush<T: Id>(&mut self, ids: &mut Vec<u32>, out: &mut Vec<T>) -> Result<()> {
        let Self { occurrences, spans, ids: resolved, .. } = self;
        let n_resolved: usize = occurrences.iter().map(|&(_, pretoken)| spans[pretoken as usize].1 as usize).sum();
        let n_more = ids.len() - occurrences.len() + n_resolved + COPY_BLOCK;
        out.try_reserve(n_more).map_err(|_| Error::memory::<T>(out.len() + n_more))?;
        memory::prepare(out.spare_capacity_mut(), n_more);
        ids.extend([0; COPY_BLOCK]);
        let mut append = |ids: &[u32], n_ids: usize| {
            let n_after = out.len() + n_ids;
            for block in &ids.as_chunks::<COPY_BLOCK>().0[..n_ids.div_ceil(COPY_BLOCK)] {
                out.extend_from_slice(&block.map(T::narrow));
            }
            out.truncate(n_after);
        };
        let mut start = 0;
        for &(index, pretoken) in &*occurrences {
            let (first, n_ids) = spans[pretoken as usize];
            append(&ids[start..], index as usize - start);
            append(&resolved[first as usize..], n_ids as usize);
            start = index as usize + 1;
        }
        append(&ids[start..], ids.len() - COPY_BLOCK - start);
        ids.clear();
        self.clear();
        Ok(())
    }
}
