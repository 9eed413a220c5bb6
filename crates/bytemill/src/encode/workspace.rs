//! What a thread needs to encode, and the two passes that most pre-tokens need: hash, look up.

use super::misses::Misses;
use super::{HUGE, Id};
use crate::cache::{Cache, SHORT_IDS};
use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::huge::LargePages;
use crate::pretokenize::BLOCK;
use crate::words::Words;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Long pre-tokens of more bytes than this are not cut into pieces: the keys of a block must not grow with the text.
const MOST_TO_CUT: usize = 1 << 12;

/// Reused from call to call, with what it has learnt.
pub struct Workspace {
    pub cache: Cache,
    /// Where the pre-tokens of the block end.
    pub ends: Vec<usize>,
    /// The pre-tokens of the block, or pieces of them: bytes and hash of the short ones, [`Packed::NO_KEY`] for others.
    keys: Vec<(Packed, u64)>,
    /// Where those others are.
    long: Vec<Range<usize>>,
    /// How many of `keys` and of `long` have been looked up.
    n_done: (usize, usize),
    pub misses: Misses,
    pub symbols: Vec<u32>,
    /// Where the result's memory comes from.
    pub pages: LargePages,
    /// Bytes encoded since the caller was last asked whether to go on.
    pub since_pulse: usize,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
            ends: Vec::with_capacity(BLOCK),
            keys: Vec::with_capacity(BLOCK),
            long: Vec::new(),
            n_done: (0, 0),
            misses: Misses::default(),
            symbols: Vec::with_capacity(256),
            pages: LargePages::default(),
            since_pulse: 0,
        }
    }
}

impl Workspace {
    /// Hashes the pre-tokens of the block, which begins at `start`, and asks for their entries in the cache.
    ///
    /// `cut` calls the function it is given with the places at which a long pre-token may be cut.
    #[inline(never)]
    pub fn hash(&mut self, text: &[u8], mut start: usize, cut: impl Fn(&[u8], &mut dyn FnMut(usize))) {
        let Self { cache, ends, keys, long, n_done, .. } = self;
        keys.clear();
        long.clear();
        *n_done = (0, 0);
        let mut ends = ends.as_slice();
        while !ends.is_empty() {
            let known = keys.len();
            keys.reserve(ends.len());
            let mut n_short = 0;
            for (place, &end) in keys.spare_capacity_mut().iter_mut().zip(ends) {
                if end - start > PACKED_BYTES {
                    break;
                }
                let key = pack(text, start, end);
                let hash = key.hash();
                cache.prefetch(hash);
                place.write((key, hash));
                start = end;
                n_short += 1;
            }
            // SAFETY: so many places of the spare capacity have been written.
            unsafe { keys.set_len(known + n_short) };
            ends = &ends[n_short..];
            if let Some((&end, others)) = ends.split_first() {
                let pretoken = &text[start..end];
                let mut add = |start: usize, end: usize| {
                    if end - start > PACKED_BYTES {
                        long.push(start..end);
                        keys.push((Packed::NO_KEY, 0));
                    } else {
                        let key = pack(text, start, end);
                        cache.prefetch(key.hash());
                        keys.push((key, key.hash()));
                    }
                };
                let mut from = start;
                if pretoken.len() <= MOST_TO_CUT {
                    cut(pretoken, &mut |at| {
                        add(from, start + at);
                        from = start + at;
                    });
                }
                add(from, end);
                start = end;
                ends = others;
            }
        }
    }

    /// Appends the ids that the cache knows to `out`; the other pre-tokens are noted down, and what else may know them is asked
    /// for: until there are many of them, it has come.
    ///
    /// Stops at a huge pre-token and gives it; the next call goes on behind it.
    #[inline(never)]
    pub fn look_up<T: Id>(&mut self, out: &mut Vec<T>, words: &Words) -> Option<Range<usize>> {
        let Self { cache, keys, long, n_done, misses, .. } = self;
        let keys = &keys[n_done.0..];
        // An entry is copied whole, whatever the number of its ids.
        out.reserve(keys.len() * SHORT_IDS);
        let before = out.len();
        let spare = out.spare_capacity_mut();
        let mut filled = 0;
        let mut huge = None;
        for (index, &(key, hash)) in keys.iter().enumerate() {
            if let Some((ids, n_ids)) = cache.get(key, hash) {
                let ids = ids.map(|id| MaybeUninit::new(T::narrow(id)));
                // SAFETY: there is room for `SHORT_IDS` more for each key, and each before this one has taken at most as many.
                unsafe { spare.get_unchecked_mut(filled..filled + SHORT_IDS) }.copy_from_slice(&ids);
                filled += n_ids;
            } else if key == Packed::NO_KEY {
                let range = long[n_done.1].clone();
                n_done.1 += 1;
                if range.len() > HUGE {
                    n_done.0 += index + 1;
                    huge = Some(range);
                    break;
                }
                misses.add_long(before + filled, range);
            } else {
                words.prefetch(hash);
                cache.prefetch_many(hash);
                misses.add_short(before + filled, key, hash);
            }
        }
        if huge.is_none() {
            n_done.0 += keys.len();
        }
        // SAFETY: the first `filled` places of the spare capacity have been written: each entry is copied over
        // `SHORT_IDS` of them, of which `n_ids`, at most as many, are counted.
        unsafe { out.set_len(before + filled) };
        huge
    }
}
