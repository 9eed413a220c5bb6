//! Decoding: ids to bytes.

use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::sys::memory;
use crate::sys::prefetch::prefetch_at;
use crate::vocab::Vocab;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

impl Vocab {
    /// Append the bytes of `ids` to `out`. A plain loop for a few ids; see [`Decoder`] for many.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id without a token.
    pub fn decode(&self, ids: impl IntoIterator<Item = u32>, out: &mut Vec<u8>) -> Result<()> {
        for id in ids {
            out.extend_from_slice(self.decoded(id).ok_or(Error::UnknownId(i64::from(id)))?);
        }
        Ok(())
    }
}

/// An id, possibly in memory that other threads write to, such as a Python array. Each read returns some number.
pub trait SharedId: Sync {
    /// The current value.
    fn id(&self) -> u32;
}

impl SharedId for u32 {
    #[inline]
    fn id(&self) -> u32 {
        *self
    }
}

impl SharedId for AtomicU32 {
    #[inline]
    fn id(&self) -> u32 {
        self.load(Relaxed)
    }
}

impl SharedId for AtomicU16 {
    #[inline]
    fn id(&self) -> u32 {
        u32::from(self.load(Relaxed))
    }
}

/// Bytes of a slot. A slot is copied whole, whatever the token's length: one load and one store instead of branches on
/// an unpredictable length.
const SLOT: usize = 16;

/// Length of the longest token that fits a slot beside its length. In English text, 1 token in 500 is longer.
const SHORT: usize = SLOT - 1;

/// Replaces the length in a slot: the token is in [`Decoder::long`].
const LONG: u8 = SLOT as u8;

/// Replaces the length in a slot: no token has this id.
const NONE: u8 = u8::MAX;

/// Ids counted or copied in an unrolled loop.
const GROUP: usize = 4;

/// The largest length in [`Decoder::lengths`]. In code, 1 token in 4,500 is longer.
const COUNTED: usize = 63;

/// Replaces the length of a longer token, or of no token.
const OTHER: u8 = u8::MAX;

/// If the lengths of a group add up to less than [`OTHER`], none of them is [`OTHER`].
const _: () = assert!(GROUP * COUNTED < OTHER as usize);

/// Ids between two cancellation checks: some milliseconds.
const IDS_PER_CHECK: usize = 1 << 20;

/// Ids copied between two checks of the remaining room.
const BLOCK: usize = 512;

/// Prefetch distance in ids. The slots of a vocabulary exceed the inner caches.
const AHEAD: usize = 16;

/// The tokens of a vocabulary, laid out for decoding many ids in two passes: count the bytes, then copy them.
pub struct Decoder {
    /// By id: the token and, in the last byte, its length; or [`LONG`] and the token's start and end in `long`; or
    /// [`NONE`].
    slots: Vec<[u8; SLOT]>,
    /// By id: the length of the token up to [`COUNTED`], or [`OTHER`]. At a sixteenth of the slots' size, it stays in an
    /// inner cache.
    lengths: Vec<u8>,
    /// The bytes of the tokens longer than [`SHORT`].
    long: Vec<u8>,
}

impl Decoder {
    /// Lay out the tokens of `vocab`.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(vocab: &Vocab) -> Result<Self> {
        let n_ids = vocab.n_ids();
        let (mut slots, mut lengths, mut long) = (Vec::new(), Vec::new(), Vec::new());
        slots.try_reserve_exact(n_ids).map_err(|_| Error::memory::<[u8; SLOT]>(n_ids))?;
        lengths.try_reserve_exact(n_ids).map_err(|_| Error::memory::<u8>(n_ids))?;
        for id in (0..=u32::MAX).take(n_ids) {
            let mut slot = [0; SLOT];
            let token = vocab.decoded(id).unwrap_or_default();
            slot[SHORT] = match token.len() {
                0 => NONE,
                n_bytes @ 1..=SHORT => {
                    slot[..n_bytes].copy_from_slice(token);
                    n_bytes as u8
                }
                n_bytes => {
                    long.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(long.len() + n_bytes))?;
                    // All tokens of a vocabulary together have less than 2³² bytes.
                    slot[..4].copy_from_slice(&(long.len() as u32).to_le_bytes());
                    long.extend_from_slice(token);
                    slot[4..8].copy_from_slice(&(long.len() as u32).to_le_bytes());
                    LONG
                }
            };
            slots.push(slot);
            lengths.push(if (1..=COUNTED).contains(&token.len()) { token.len() as u8 } else { OTHER });
        }
        Ok(Self { slots, lengths, long })
    }

    /// The number of bytes of `ids`.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id without a token; the errors of `interrupt`.
    pub fn n_bytes(&self, ids: &[impl SharedId], interrupt: Interrupt<'_>) -> Result<usize> {
        ids.chunks(IDS_PER_CHECK).try_fold(0usize, |n_bytes, chunk| {
            interrupt()?;
            // A saturated sum fails when the buffer is allocated.
            Ok(n_bytes.saturating_add(self.n_bytes_of_chunk(chunk)?))
        })
    }

    /// Not inlined, like [`Decoder::copy_short`], so that the loop keeps its variables in registers.
    #[inline(never)]
    fn n_bytes_of_chunk(&self, ids: &[impl SharedId]) -> Result<usize> {
        let lengths = &*self.lengths;
        let (groups, rest) = ids.as_chunks::<GROUP>();
        let mut n_bytes = 0usize;
        for group in groups {
            let n: u32 =
                group.iter().map(|id| lengths.get(id.id() as usize).map_or(u32::from(OTHER), |&n| u32::from(n))).sum();
            let n = if n < u32::from(OTHER) { n as usize } else { self.n_bytes_of_any(group)? };
            n_bytes = n_bytes.saturating_add(n);
        }
        Ok(n_bytes.saturating_add(self.n_bytes_of_any(rest)?))
    }

    #[cold]
    fn n_bytes_of_any(&self, ids: &[impl SharedId]) -> Result<usize> {
        ids.iter().map(|id| Ok(self.any(id.id())?.len())).sum()
    }

    /// Fill `out` with the bytes of `ids`. Its length must be their [`Decoder::n_bytes`].
    ///
    /// On success all of `out` is initialized; after an error part of it may not be.
    ///
    /// # Errors
    /// [`Error::UnknownId`] or [`Error::Invalid`] if another thread has changed the ids since they were counted; the
    /// errors of `interrupt`.
    pub fn fill(&self, ids: &[impl SharedId], out: &mut [MaybeUninit<u8>], interrupt: Interrupt<'_>) -> Result<()> {
        let (mut rest, mut at) = (ids, 0);
        // A block needs at most `BLOCK * SLOT` bytes, but rarely more than a third of them: each page is prepared only once.
        let mut n_prepared = 0;
        let mut next_check = rest.len();
        while !rest.is_empty() {
            if rest.len() <= next_check {
                interrupt()?;
                next_check = rest.len().saturating_sub(IDS_PER_CHECK);
            }
            let n_needed = out.len().min(at + BLOCK * SLOT);
            if n_needed > n_prepared {
                memory::prepare(&mut out[n_prepared..], n_needed - n_prepared);
                n_prepared = n_needed;
            }
            let (n_ids, n_bytes) = self.copy_short(rest, &mut out[at..]);
            at += n_bytes;
            rest = &rest[n_ids..];
            // The next token is long, unknown, or one of the last, which have no room for a whole slot.
            if n_ids < BLOCK
                && let Some((id, after)) = rest.split_first()
            {
                let token = self.any(id.id())?;
                let room = out.get_mut(at..at + token.len()).ok_or_else(changed)?;
                for (to, &byte) in room.iter_mut().zip(token) {
                    to.write(byte);
                }
                at += token.len();
                rest = after;
            }
        }
        if at == out.len() { Ok(()) } else { Err(changed()) }
    }

    /// Copy tokens to the start of `out` until one is long or unknown, at most [`BLOCK`] and as many as whole slots fit.
    /// Returns the number of tokens and the number of their bytes.
    #[inline(never)]
    fn copy_short(&self, ids: &[impl SharedId], out: &mut [MaybeUninit<u8>]) -> (usize, usize) {
        let n_most = ids.len().min(out.len() / SLOT).min(BLOCK);
        let slots = &*self.slots;
        let (mut n_ids, mut n_bytes) = (0, 0);
        // Returns false if the token is not a short one.
        let mut copy = |id: u32| {
            let Some(slot) = slots.get(id as usize) else { return false };
            if usize::from(slot[SHORT]) > SHORT {
                return false;
            }
            // SAFETY: `copy` is called at most `n_most` times, and each call advances `n_bytes` by less than SLOT. Before the
            // last call `n_bytes` is thus at most (n_most - 1) * SLOT, and `out` has room for n_most * SLOT bytes.
            unsafe { out.as_mut_ptr().add(n_bytes).cast::<[u8; SLOT]>().write_unaligned(*slot) };
            n_bytes += usize::from(slot[SHORT]);
            true
        };
        let (groups, _) = ids[..n_most].as_chunks::<GROUP>();
        let (later, _) = ids.get(AHEAD..).unwrap_or_default().as_chunks::<GROUP>();
        'all: {
            for (group, later) in groups.iter().zip(later) {
                for id in later {
                    prefetch_at(slots.as_ptr().wrapping_add(id.id() as usize));
                }
                for (k, id) in group.iter().enumerate() {
                    if !copy(id.id()) {
                        n_ids += k;
                        break 'all;
                    }
                }
                n_ids += GROUP;
            }
            while n_ids < n_most && copy(ids[n_ids].id()) {
                n_ids += 1;
            }
        }
        (n_ids, n_bytes)
    }

    /// The token of an id, of any length.
    #[cold]
    fn any(&self, id: u32) -> Result<&[u8]> {
        let Some(slot) = self.slots.get(id as usize) else { return Err(Error::UnknownId(i64::from(id))) };
        let &[a, b, c, d, e, f, g, h, .., n_bytes] = slot;
        let offset = |bytes| u32::from_le_bytes(bytes) as usize;
        match n_bytes {
            NONE => Err(Error::UnknownId(i64::from(id))),
            LONG => Ok(&self.long[offset([a, b, c, d])..offset([e, f, g, h])]),
            _ => Ok(&slot[..usize::from(n_bytes)]),
        }
    }
}

fn changed() -> Error {
    Error::Invalid("the ids were changed while they were decoded".to_owned())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
