//! The buffers and caches that one thread needs to encode, the two passes every pre-token takes (hash, then look up), and the
//! pool of idle workspaces.

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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Reused from text to text; the caches keep their content.
pub struct Workspace {
    pub short_cache: ShortCache,
    pub long_cache: LongCache,
    /// Where the pre-tokens of the block end.
    pub ends: Vec<usize>,
    /// The pre-tokens of the block, or the parts they are cut into: packed if short, else [`Packed::NO_KEY`].
    keys: Vec<Packed>,
    /// The hash of each key; 0 if it has none.
    hashes: Vec<u32>,
    /// Range and hash of those that are not short.
    long: Vec<(Range<usize>, u64)>,
    /// How many of `keys` and of `long` have been looked up.
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
            long: Vec::new(),
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
        self.long.clear();
        self.n_done = (0, 0);
        key_hash::run(HashBlock { workspace: self, text, start, cut });
    }

    /// Appends the ids of the block's pre-tokens to the buffered ids, or placeholders for those the cache does not hold.
    ///
    /// Stops at a pre-token that is too long for that and returns its range; the next call continues after it.
    #[inline(never)]
    pub fn look_up(&mut self, text: &[u8]) -> Option<Range<usize>> {
        let Self { short_cache, long_cache, keys, hashes, long, n_done, pending, ids, .. } = self;
        let (keys, hashes) = (&keys[n_done.0..], &hashes[n_done.0..]);
        // An entry is copied whole, whatever the number of its ids.
        ids.reserve(keys.len() * SHORT_IDS + (long.len() - n_done.1) * MAX_LONG_IDS);
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
                // SAFETY: `SHORT_IDS` values are reserved for each key and `MAX_LONG_IDS` for each long one, and none before
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
            let (range, hash) = long[n_done.1].clone();
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
        // SAFETY: the first `n_filled` values are written: `SHORT_IDS` for each short key, of which at most as many count, and
        // as many as count for each long one.
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

/// Copies the ids of a short pre-token that is not the first entry of its line into `slot`, or a placeholder, which will stand
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
        let Workspace { short_cache, long_cache, ends, keys, hashes, long, .. } = workspace;
        let lines = short_cache.lines();
        let mut ends = ends.as_slice();
        while !ends.is_empty() {
            let n_known = keys.len();
            keys.reserve(ends.len());
            hashes.reserve(ends.len());
            let mut n_short = 0;
            let mut from = start;
            let slots = keys.spare_capacity_mut().iter_mut().zip(hashes.spare_capacity_mut());
            for ((key, hash), &end) in slots.zip(ends) {
                if end - from > PACKED_BYTES {
                    break;
                }
                lines.prefetch(*hash.write(pack(hasher, text, from, end, key)));
                from = end;
                n_short += 1;
            }
            start = from;
            // SAFETY: the loop has written this many values of both.
            unsafe {
                keys.set_len(n_known + n_short);
                hashes.set_len(n_known + n_short);
            }
            ends = &ends[n_short..];
            if let Some((&end, others)) = ends.split_first() {
                let pretoken = &text[start..end];
                let mut add = |start: usize, end: usize| {
                    let mut key = MaybeUninit::new(Packed::NO_KEY);
                    if end - start > PACKED_BYTES {
                        let bytes = &text[start..end];
                        // A longer one is not in the cache, whatever the hash.
                        let hash = if bytes.len() <= MAX_CACHED_BYTES { long_hash(bytes, 0) } else { 0 };
                        long_cache.prefetch(hash);
                        long.push((start..end, hash));
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

// The process-wide pool of idle workspaces.
//
// All tokenizers share it, so what stays in memory between calls depends neither on how many there are nor on how many
// threads encoded: at most [`MAX_IDLE_BYTES`], of which the least recently used workspaces are given up first. A workspace
// belongs to one tokenizer, since its cache holds that tokenizer's ids.
//
// The lock is only tried: in a forked child, a thread that does not exist there may hold it. Who does not get it makes a new
// workspace, or drops one.

/// Bytes of idle workspaces. One that has seen a large text takes 21 MB.
const MAX_IDLE_BYTES: usize = 64 << 20;

/// How often the lock is tried. A thread holds it for less than a microsecond, unless it is suspended there; each try leaves
/// the processor to it.
const MAX_TRIES: usize = 1 << 8;

/// The workspaces, the least recently used first.
static POOL: Mutex<Idle> = Mutex::new(Idle(Vec::new()));

/// Identifies a tokenizer among those of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(u64);

impl Owner {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Takes an idle workspace of `owner`, or creates one.
///
/// # Errors
/// [`crate::Error::Memory`] if the system refuses the memory.
pub fn take(owner: Owner) -> Result<Box<Workspace>> {
    let idle = lock().and_then(|mut idle| idle.take(owner));
    idle.map_or_else(|| Workspace::new().map(Box::new), Ok)
}

/// Makes a workspace available to later calls of `owner`.
pub fn put_back(owner: Owner, mut workspace: Box<Workspace>) {
    workspace.reset();
    let surplus = lock().map(|mut idle| idle.put_back(owner, workspace, MAX_IDLE_BYTES));
    // Outside the lock: to free memory takes a while.
    drop(surplus);
}

/// Drops the idle workspaces of a tokenizer that is no longer used.
pub fn discard(owner: Owner) {
    let discarded = lock().map(|mut idle| idle.discard(owner));
    drop(discarded);
}

fn lock() -> Option<MutexGuard<'static, Idle>> {
    for _ in 0..MAX_TRIES {
        match POOL.try_lock() {
            Ok(idle) => return Some(idle),
            // A panic elsewhere cannot leave the list half changed.
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

#[derive(Default)]
struct Idle(Vec<IdleWorkspace>);

struct IdleWorkspace {
    owner: Owner,
    n_bytes: usize,
    workspace: Box<Workspace>,
}

impl Idle {
    fn take(&mut self, owner: Owner) -> Option<Box<Workspace>> {
        let index = self.0.iter().rposition(|idle| idle.owner == owner)?;
        Some(self.0.remove(index).workspace)
    }

    /// Returns what has to be given up for it.
    fn put_back(&mut self, owner: Owner, workspace: Box<Workspace>, max_bytes: usize) -> Vec<IdleWorkspace> {
        self.0.push(IdleWorkspace { owner, n_bytes: workspace.n_bytes(), workspace });
        let mut n_bytes: usize = self.0.iter().map(|idle| idle.n_bytes).sum();
        let mut n_surplus = 0;
        while n_bytes > max_bytes {
            n_bytes -= self.0[n_surplus].n_bytes;
            n_surplus += 1;
        }
        self.0.drain(..n_surplus).collect()
    }

    fn discard(&mut self, owner: Owner) -> Vec<IdleWorkspace> {
        self.0.extract_if(.., |idle| idle.owner == owner).collect()
    }
}

#[cfg(test)]
#[path = "tests/workspace.rs"]
mod tests;
