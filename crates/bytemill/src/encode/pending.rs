//! Pre-tokens that the cache does not hold.
//!
//! Finding the ids of one means waiting for memory several times over. So pre-tokens that miss the cache stay pending until
//! there are many; then every table is prefetched and they are merged in lockstep. Until then a *placeholder*, a number
//! that is no id, stands for the ids of each of them, both in the buffered ids and in the cache, so that a pre-token that
//! occurs twice is merged once.
//!
//! An unpredictable branch costs as much as a merge, so decisions per pre-token are made by arithmetic where possible.

use super::cache::{Cache, SHORT_IDS};
use super::encoder::Encoder;
use super::id::Id;
use super::workspace::Workspace;
use crate::bpe::limits::{MAX_LOCKSTEP_BYTES, MAX_LOCKSTEP_SHORT_BYTES};
use crate::bpe::{GROUP, merge_group};
use crate::error::{Error, Result};
use crate::sys::hash::Packed;
use crate::sys::huge_pages;
use crate::sys::interrupt::Interrupt;
use crate::vocab::Vocab;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Pending pre-tokens that are resolved together; no number from 64 to 1,024 was clearly better.
const MANY: usize = 256;

/// Numbers from here on are placeholders. Ids are below: they are fewer than sixteen times the number of tokens.
const FIRST_PLACEHOLDER: u32 = 1 << 31;

/// Lanes for [`MAX_LOCKSTEP_SHORT_BYTES`] and for [`MAX_LOCKSTEP_BYTES`].
const SHORT_LANES: usize = MAX_LOCKSTEP_SHORT_BYTES + 1;
const LONG_LANES: usize = MAX_LOCKSTEP_BYTES + 1;

#[derive(Default)]
pub struct Pending {
    short: Vec<Short>,
    long: Vec<Long>,
    resolved: Resolved,
    /// Where placeholders stand among the buffered ids, in ascending order, and which.
    occurrences: Vec<(u32, u32)>,
    /// Indices into `short` of pre-tokens that a table may hold, and of those to be merged.
    maybe_known: Vec<u32>,
    to_merge: Vec<u32>,
    /// Indices into `long` of pre-tokens to be merged in lockstep.
    long_to_merge: Vec<u32>,
}

struct Short {
    key: Packed,
    /// Of the table of pre-tokens with many ids.
    full_hash: u64,
    /// Of the table of pre-tokens with few.
    hash: u32,
    placeholder: u32,
}

struct Long {
    range: Range<usize>,
    hash: u32,
    placeholder: u32,
}

/// The ids behind the placeholders.
#[derive(Default)]
struct Resolved {
    /// For each placeholder, where its ids start in `ids`, and how many they are.
    spans: Vec<(u32, u32)>,
    ids: Vec<u32>,
}

impl Resolved {
    fn new_placeholder(&mut self) -> u32 {
        self.spans.push((0, 0));
        FIRST_PLACEHOLDER | (self.spans.len() - 1) as u32
    }

    /// Ends the ids of a placeholder, which start at `start` in `ids`.
    fn end(&mut self, placeholder: u32, start: usize) {
        self.spans[(placeholder - FIRST_PLACEHOLDER) as usize] = (start as u32, (self.ids.len() - start) as u32);
    }

    #[inline]
    fn n_ids(&self, placeholder: u32) -> usize {
        self.spans[(placeholder - FIRST_PLACEHOLDER) as usize].1 as usize
    }

    /// The ids of a placeholder, followed by others.
    #[inline]
    fn ids_from(&self, placeholder: u32) -> &[u32] {
        &self.ids[self.spans[(placeholder - FIRST_PLACEHOLDER) as usize].0 as usize..]
    }
}

/// Ids are copied in blocks of this many, also where fewer are needed: their number is unpredictable.
const COPY_BLOCK: usize = 16;

/// Uninitialised output that is filled from the front.
struct Output<'o, T> {
    spare: &'o mut [MaybeUninit<T>],
    n_filled: usize,
}

impl<T: Id> Output<'_, T> {
    /// Copies the first `n` of `ids`, and may write up to [`COPY_BLOCK`] values after them.
    #[inline]
    fn copy(&mut self, ids: &[u32], n: usize) {
        let spare = &mut self.spare[self.n_filled..];
        let mut done = 0;
        while done < n {
            if let (Some(ids), Some(spare)) = (ids[done..].first_chunk::<COPY_BLOCK>(), spare[done..].first_chunk_mut())
            {
                *spare = ids.map(|id| MaybeUninit::new(T::narrow(id)));
                done += COPY_BLOCK;
            } else {
                for (slot, &id) in spare[done..n].iter_mut().zip(&ids[done..n]) {
                    slot.write(T::narrow(id));
                }
                break;
            }
        }
        self.n_filled += n;
    }
}

impl Pending {
    /// Adds a short pre-token and returns its placeholder, which stands at `index` among the buffered ids.
    pub fn add_short(&mut self, key: Packed, hash: u32, full_hash: u64, index: usize) -> u32 {
        let placeholder = self.resolved.new_placeholder();
        self.short.push(Short { key, full_hash, hash, placeholder });
        self.add_occurrence(index, placeholder);
        placeholder
    }

    /// Adds a longer pre-token and returns its placeholder, which stands at `index` among the buffered ids.
    pub fn add_long(&mut self, range: Range<usize>, hash: u32, index: usize) -> u32 {
        let placeholder = self.resolved.new_placeholder();
        self.long.push(Long { range, hash, placeholder });
        self.add_occurrence(index, placeholder);
        placeholder
    }

    /// Records that a placeholder stands at `index` too.
    pub fn add_occurrence(&mut self, index: usize, placeholder: u32) {
        self.occurrences.push((index as u32, placeholder));
    }

    /// Whether enough pre-tokens are pending to resolve them.
    #[inline]
    pub fn are_many(&self) -> bool {
        self.resolved.spans.len() >= MANY
    }

    fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
        self.resolved.spans.clear();
        self.resolved.ids.clear();
        self.occurrences.clear();
    }

    /// Drops all pending pre-tokens and removes their placeholders from the cache.
    pub fn discard(&mut self, cache: &mut Cache) {
        for Short { key, hash, .. } in &self.short {
            cache.remove_placeholder(*key, *hash);
        }
        self.clear();
    }

    /// Divides the short pre-tokens into those that a table may hold and those to be merged.
    fn partition_short(&mut self, may_be_known: impl Fn(&Short) -> bool) {
        let Self { short, maybe_known, to_merge, .. } = self;
        maybe_known.resize(short.len(), 0);
        to_merge.resize(short.len(), 0);
        let (mut n_known, mut n_to_merge) = (0, 0);
        for (index, pretoken) in (0..).zip(&*short) {
            let may_be_known = may_be_known(pretoken);
            maybe_known[n_known] = index;
            to_merge[n_to_merge] = index;
            n_known += usize::from(may_be_known);
            n_to_merge += usize::from(!may_be_known);
        }
        maybe_known.truncate(n_known);
        to_merge.truncate(n_to_merge);
    }
}

impl Workspace {
    /// Appends the buffered ids to `out`, with resolved ids in place of placeholders.
    fn flush<T: Id>(&mut self, out: &mut Vec<T>) -> Result<()> {
        let Self { ids, pending, .. } = self;
        if ids.is_empty() {
            pending.clear();
            return Ok(());
        }
        let Pending { occurrences, resolved, .. } = pending;
        let n_resolved: usize = occurrences.iter().map(|&(_, placeholder)| resolved.n_ids(placeholder)).sum();
        let n_more = ids.len() - occurrences.len() + n_resolved + COPY_BLOCK;
        out.try_reserve(n_more).map_err(|_| Error::memory::<T>(out.len() + n_more))?;
        huge_pages::prepare(out.spare_capacity_mut(), n_more);
        let n_before = out.len();
        let mut output = Output { spare: out.spare_capacity_mut(), n_filled: 0 };
        let mut start = 0;
        for &(index, placeholder) in &*occurrences {
            let index = index as usize;
            output.copy(&ids[start..], index - start);
            output.copy(resolved.ids_from(placeholder), resolved.n_ids(placeholder));
            start = index + 1;
        }
        output.copy(&ids[start..], ids.len() - start);
        let n_filled = output.n_filled;
        // SAFETY: `Output` has written its first `n_filled` values, which start at `n_before`.
        unsafe { out.set_len(n_before + n_filled) };
        ids.clear();
        pending.clear();
        Ok(())
    }
}

impl Encoder {
    /// Finds the ids of all pending pre-tokens and appends the buffered ids to `out`.
    #[inline(never)]
    pub(super) fn resolve<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &[u8],
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let Workspace { cache, pending, symbols, .. } = workspace;
        self.look_up_short(cache, pending);
        self.merge_short(cache, pending);
        self.look_up_long(cache, pending, text, symbols, interrupt)?;
        self.merge_long(cache, pending, text);
        workspace.flush(out)?;
        workspace.cache.grow();
        Ok(())
    }

    /// Resolves the short pre-tokens that a table holds.
    fn look_up_short(&self, cache: &mut Cache, pending: &mut Pending) {
        let has_whole_tokens = !self.unreachable_tokens().is_empty();
        pending.partition_short(|pretoken| has_whole_tokens | cache.may_have_many(pretoken.full_hash));
        let Pending { short, resolved, maybe_known, to_merge, .. } = pending;
        for &index in &*maybe_known {
            cache.prefetch_many(short[index as usize].full_hash);
        }
        for &index in &*maybe_known {
            let Short { key, full_hash, hash, placeholder } = short[index as usize];
            let start = resolved.ids.len();
            if let Some(id) = self.unreachable_token(&key.bytes()[..key.n_bytes()]) {
                resolved.ids.push(id);
                cache.insert(key, hash, &[id, 0, 0, 0], 1);
            } else if let Some(ids) = cache.get_many(key, full_hash) {
                resolved.ids.extend_from_slice(ids);
                cache.remove_placeholder(key, hash);
            } else {
                to_merge.push(index);
            }
            resolved.end(placeholder, start);
        }
    }

    /// Merges the short pre-tokens that no table holds, and caches them.
    fn merge_short(&self, cache: &mut Cache, pending: &mut Pending) {
        let Pending { short, resolved, to_merge, .. } = pending;
        // The sets may have left the processor's cache since the lookup.
        let prefetcher = cache.prefetcher();
        let bytes = |index: usize, lanes: &mut [u8; SHORT_LANES]| {
            let Short { key, hash, .. } = short[to_merge[index] as usize];
            prefetcher.prefetch(hash);
            *lanes = key.bytes();
            key.n_bytes()
        };
        merge_group::<SHORT_LANES, GROUP>(self.pairs(), to_merge.len(), bytes, |index, symbols, n_symbols| {
            let Short { key, full_hash, hash, placeholder } = short[to_merge[index] as usize];
            let (start, first) = store_ids(self.vocab(), resolved, placeholder, symbols, n_symbols);
            // Most pre-tokens have few symbols, so this branch is predictable.
            if n_symbols <= SHORT_IDS {
                cache.insert(key, hash, &first, n_symbols);
            } else {
                cache.remove_placeholder(key, hash);
                cache.insert_many(key, full_hash, &resolved.ids[start..]);
            }
        });
    }

    /// Resolves the longer pre-tokens that a table holds, and those too long for lockstep.
    fn look_up_long(
        &self,
        cache: &mut Cache,
        pending: &mut Pending,
        text: &[u8],
        symbols: &mut Vec<u32>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let Pending { long, resolved, long_to_merge, .. } = pending;
        long_to_merge.clear();
        for (index, Long { range, hash, placeholder }) in (0..).zip(&*long) {
            let start = resolved.ids.len();
            let pretoken = &text[range.clone()];
            if let Some(ids) = cache.get_long(text, range, *hash) {
                resolved.ids.extend_from_slice(ids);
            } else if let Some(id) = self.unreachable_token(pretoken) {
                resolved.ids.push(id);
            } else if range.len() <= MAX_LOCKSTEP_BYTES {
                long_to_merge.push(index);
            } else {
                self.merge_pretoken(pretoken, symbols, &mut resolved.ids, interrupt)?;
                cache.insert_long(text, range, *hash, &resolved.ids[start..]);
            }
            resolved.end(*placeholder, start);
        }
        Ok(())
    }

    /// Merges the longer pre-tokens that are left, and caches them.
    fn merge_long(&self, cache: &mut Cache, pending: &mut Pending, text: &[u8]) {
        let Pending { long, resolved, long_to_merge, .. } = pending;
        let bytes = |index: usize, lanes: &mut [u8; LONG_LANES]| {
            let pretoken = &text[long[long_to_merge[index] as usize].range.clone()];
            lanes[..pretoken.len()].copy_from_slice(pretoken);
            pretoken.len()
        };
        merge_group::<LONG_LANES, GROUP>(self.pairs(), long_to_merge.len(), bytes, |index, symbols, n_symbols| {
            let Long { range, hash, placeholder } = &long[long_to_merge[index] as usize];
            let (start, _) = store_ids(self.vocab(), resolved, *placeholder, symbols, n_symbols);
            cache.insert_long(text, range, *hash, &resolved.ids[start..]);
        });
    }
}

/// Stores the ids of symbols for a placeholder. Returns where they start, and the first ids (any ids after the last).
#[inline]
fn store_ids<const LANES: usize>(
    vocab: &Vocab,
    resolved: &mut Resolved,
    placeholder: u32,
    symbols: &[u32; LANES],
    n_symbols: usize,
) -> (usize, [u32; SHORT_IDS]) {
    let start = resolved.ids.len();
    let mut first = [0; SHORT_IDS];
    for (id, &symbol) in first.iter_mut().zip(symbols) {
        *id = vocab.symbol_id(symbol);
    }
    resolved.ids.extend_from_slice(&first);
    if n_symbols <= SHORT_IDS {
        resolved.ids.truncate(start + n_symbols);
    } else {
        let others = &symbols[SHORT_IDS..n_symbols];
        resolved.ids.extend(others.iter().map(|&symbol| vocab.symbol_id(symbol)));
    }
    resolved.end(placeholder, start);
    (start, first)
}
