//! The buffers and caches that one thread needs to encode, and the two passes every pre-token takes: hash, then look up.

use super::key_hash::{self, KeyHash};
use super::long_cache::{LongCache, MAX_LONG_IDS};
use super::pending::{Pending, Pretoken};
use super::short_cache::{Lookup, SHORT_IDS, ShortCache};
use crate::bpe::limits::{MAX_CACHED_BYTES, MAX_COLLECTED_BYTES, MAX_CUT_BYTES};
use crate::error::Result;
use crate::pretokenize::MAX_ENDS;
use crate::sys::cpu::Kernel;
use crate::sys::hash::{PACKED_BYTES, Packed, long_hash};
use crate::sys::interrupt::Interrupt;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Reused from text to text; the caches keep their content.
pub struct Workspace {
    pub short_cache: ShortCache,
    pub long_cache: LongCache,
    /// Where the pre-tokens of the block end.
    pub ends: Vec<usize>,
    /// The pre-tokens of the block, or the parts they are cut into: packed if that is possible, else [`Packed::NO_KEY`].
    keys: Vec<Packed>,
    /// The hash of each key; 0 if it has none.
    hashes: Vec<u32>,
    /// Range and hash of those that are not packed.
    unpacked: Vec<(Range<usize>, u64)>,
    /// How many of `keys` and of `unpacked` have been looked up.
    n_done: (usize, usize),
    pub pending: Pending,
    /// Ids and placeholders that wait until the placeholders are resolved.
    pub ids: Vec<u32>,
    /// Scratch space for merging.
    pub symbols: Vec<u32>,
    /// Bytes encoded since the last cancellation check.
    pub since_check: usize,
}

/// Bytes of text between two cancellation checks.
pub(super) const BYTES_PER_CHECK: usize = 1 << 20;

/// Symbols of scratch space kept between texts.
const MAX_KEPT_SYMBOLS: usize = MAX_COLLECTED_BYTES;

impl Workspace {
    /// A workspace with empty caches.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new() -> Result<Self> {
        Ok(Self {
            short_cache: ShortCache::new()?,
            long_cache: LongCache::new()?,
            ends: Vec::with_capacity(MAX_ENDS),
            keys: Vec::with_capacity(MAX_ENDS),
            hashes: Vec::with_capacity(MAX_ENDS),
            unpacked: Vec::new(),
            n_done: (0, 0),
            pending: Pending::default(),
            ids: Vec::new(),
            symbols: Vec::with_capacity(256),
            since_check: 0,
        })
    }

    /// Bytes of memory, but for small buffers.
    pub fn n_bytes(&self) -> usize {
        self.short_cache.n_bytes()
            + self.long_cache.n_bytes()
            + size_of::<u32>() * (self.ids.capacity() + self.symbols.capacity())
    }

    /// Packs and hashes the pre-tokens of the block, which starts at `start`, and prefetches their cache entries.
    ///
    /// `cut` calls the function it is given with the offsets at which a long pre-token may be cut.
    #[inline(never)]
    pub fn hash(&mut self, text: &[u8], start: usize, cut: impl Fn(&[u8], &mut dyn FnMut(usize))) {
        self.keys.clear();
        self.hashes.clear();
        self.unpacked.clear();
        self.n_done = (0, 0);
        key_hash::run(HashBlock { workspace: self, text, start, cut });
    }

    /// Appends the ids of the block's pre-tokens to the buffered ids, or placeholders for those the cache does not hold.
    ///
    /// Stops at a pre-token that is too long for that and returns its range; the next call continues after it.
    #[inline(never)]
    pub fn look_up(&mut self, text: &[u8]) -> Option<Range<usize>> {
        let Self { short_cache, long_cache, keys, hashes, unpacked, n_done, pending, ids, .. } = self;
        let (keys, hashes) = (&keys[n_done.0..], &hashes[n_done.0..]);
        // An entry is copied whole, whatever the number of its ids.
        ids.reserve(keys.len() * SHORT_IDS + (unpacked.len() - n_done.1) * MAX_LONG_IDS);
        let n_before = ids.len();
        let spare = ids.spare_capacity_mut();
        let mut n_filled = 0;
        let mut too_long = None;
        let mut rest = keys.iter().zip(hashes);
        'block: loop {
            let lines = short_cache.lines();
            let (key, hash) = loop {
                let Some((&key, &hash)) = rest.next() else { break 'block };
                let Some((ids, n_ids)) = lines.get_first(key, hash) else { break (key, hash) };
                // SAFETY: `SHORT_IDS` values are reserved for each key and `MAX_LONG_IDS` for each without, and none before
                // this one has filled more.
                let slot = unsafe { spare.get_unchecked_mut(n_filled..n_filled + SHORT_IDS) };
                slot.copy_from_slice(&ids.map(MaybeUninit::new));
                n_filled += n_ids;
            };
            // SAFETY: as above.
            let slot = unsafe { spare.get_unchecked_mut(n_filled..n_filled + SHORT_IDS) };
            let index = n_before + n_filled;
            if key != Packed::NO_KEY {
                n_filled += look_up_other(short_cache, long_cache, pending, key, hash, index, slot);
                continue;
            }
            let (range, hash) = unpacked[n_done.1].clone();
            n_done.1 += 1;
            if range.len() > MAX_COLLECTED_BYTES {
                n_done.0 += keys.len() - rest.len();
                too_long = Some(range);
                break;
            }
            if let Some(ids) = long_cache.get(&text[range.clone()], hash) {
                for (slot, &id) in spare[n_filled..n_filled + ids.len()].iter_mut().zip(ids) {
                    slot.write(id);
                }
                n_filled += ids.len();
            } else {
                let pretoken = Pretoken { key, short_hash: 0, range, long_hash: hash, is_cached: false };
                slot[0].write(pending.add(pretoken, index));
                n_filled += 1;
            }
        }
        if too_long.is_none() {
            n_done.0 += keys.len();
        }
        // SAFETY: the first `n_filled` values are written: `SHORT_IDS` for each packed key, of which at most as many count, and
        // as many as count for each other one.
        unsafe { ids.set_len(n_before + n_filled) };
        too_long
    }

    /// Drops the buffered ids and the placeholders.
    pub fn discard_pending(&mut self) {
        self.ids.clear();
        self.pending.discard(&mut self.short_cache);
    }

    /// Prepares for another text, whatever became of the last one, and gives back large scratch buffers.
    pub fn reset(&mut self) {
        self.discard_pending();
        self.symbols.clear();
        self.symbols.shrink_to(MAX_KEPT_SYMBOLS);
    }
}

/// Copies the ids of a packed pre-token that is not the first entry of its line into `slot`, or a placeholder, which will stand
/// at `index` among the buffered ids. Returns the number of values.
///
/// A function of its own, so that the loop that calls it for 3 of 100 pre-tokens keeps its variables in registers.
#[cold]
#[inline(never)]
fn look_up_other(
    short_cache: &mut ShortCache,
    long_cache: &LongCache,
    pending: &mut Pending,
    key: Packed,
    hash: u32,
    index: usize,
    slot: &mut [MaybeUninit<u32>],
) -> usize {
    let placeholder = match short_cache.get_other(key, hash) {
        Some(Lookup::Ids(ids, n_ids)) => {
            slot.copy_from_slice(&ids.map(MaybeUninit::new));
            return n_ids;
        }
        Some(Lookup::Placeholder(placeholder)) => {
            pending.add_occurrence(index, placeholder);
            placeholder
        }
        None => {
            let long_hash = key.hash();
            let placeholder =
                pending.add(Pretoken { key, short_hash: hash, range: 0..0, long_hash, is_cached: false }, index);
            if long_cache.may_hold(long_hash) {
                // With so many ids it would replace another entry of the short cache, and be removed again.
                long_cache.prefetch(long_hash);
            } else {
                short_cache.insert_placeholder(key, hash, placeholder);
            }
            placeholder
        }
    };
    slot.copy_from_slice(&[MaybeUninit::new(placeholder); SHORT_IDS]);
    1
}

/// Counts `n_bytes` of work and checks for cancellation when there is enough of it. The count carries over from text to text:
/// many short ones must be interruptible too.
#[inline]
pub(super) fn check_every(since_check: &mut usize, n_bytes: usize, interrupt: Interrupt) -> Result<()> {
    *since_check += n_bytes;
    if *since_check >= BYTES_PER_CHECK {
        *since_check = 0;
        interrupt()?;
    }
    Ok(())
}

/// See [`Workspace::hash`].
struct HashBlock<'w, 't, C> {
    workspace: &'w mut Workspace,
    text: &'t [u8],
    start: usize,
    cut: C,
}

impl<H: KeyHash, C: Fn(&[u8], &mut dyn FnMut(usize))> Kernel<H> for HashBlock<'_, '_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self, hasher: H) {
        let Self { workspace, text, mut start, cut } = self;
        let Workspace { short_cache, long_cache, ends, keys, hashes, unpacked, .. } = workspace;
        let lines = short_cache.lines();
        let mut ends = ends.as_slice();
        while !ends.is_empty() {
            let n_known = keys.len();
            keys.reserve(ends.len());
            hashes.reserve(ends.len());
            let mut n_packed = 0;
            let mut from = start;
            let slots = keys.spare_capacity_mut().iter_mut().zip(hashes.spare_capacity_mut());
            for ((key, hash), &end) in slots.zip(ends) {
                if end - from > PACKED_BYTES {
                    break;
                }
                lines.prefetch(*hash.write(pack(hasher, text, from, end, key)));
                from = end;
                n_packed += 1;
            }
            start = from;
            // SAFETY: the loop has written this many values of both.
            unsafe {
                keys.set_len(n_known + n_packed);
                hashes.set_len(n_known + n_packed);
            }
            ends = &ends[n_packed..];
            if let Some((&end, others)) = ends.split_first() {
                let pretoken = &text[start..end];
                let mut add = |start: usize, end: usize| {
                    let mut key = MaybeUninit::new(Packed::NO_KEY);
                    if end - start > PACKED_BYTES {
                        let bytes = &text[start..end];
                        // A longer one is not in the cache, whatever the hash.
                        let hash = if bytes.len() <= MAX_CACHED_BYTES { long_hash(bytes, 0) } else { 0 };
                        long_cache.prefetch(hash);
                        unpacked.push((start..end, hash));
                        hashes.push(0);
                    } else {
                        let hash = pack(hasher, text, start, end, &mut key);
                        lines.prefetch(hash);
                        hashes.push(hash);
                    }
                    // SAFETY: it starts as `NO_KEY`, and `pack` writes a whole key.
                    keys.push(unsafe { key.assume_init() });
                };
                let mut from = start;
                if pretoken.len() <= MAX_CUT_BYTES {
                    cut(pretoken, &mut |offset| {
                        add(from, start + offset);
                        from = start + offset;
                    });
                }
                add(from, end);
                start = end;
                ends = others;
            }
        }
    }
}

/// Packs `text[start..end]`, at most [`PACKED_BYTES`] of them, into `key` and returns its hash.
///
/// One load of 16 bytes, except at the end of the text.
#[inline(always)]
fn pack(hasher: impl KeyHash, text: &[u8], start: usize, end: usize, key: &mut MaybeUninit<Packed>) -> u32 {
    if start < (text.len() + 1).saturating_sub(16) {
        // SAFETY: `start` + 16 is at most the length of the text.
        hasher.pack(unsafe { &*text.as_ptr().add(start).cast() }, end - start, key)
    } else {
        let mut sixteen = [0; 16];
        sixteen[..end - start].copy_from_slice(&text[start..end]);
        hasher.pack(&sixteen, end - start, key)
    }
}
