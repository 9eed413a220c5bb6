//! Decoding: ids to bytes.

use crate::error::{Error, Result};
use crate::huge::Pages;
use crate::prefetch::prefetch_at;
use crate::pulse::Pulse;
use crate::vocab::Vocab;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

impl Vocab {
    /// Appends the bytes of `ids` to `out`: the plain loop, for a few of them.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id that no token has.
    pub fn decode(&self, ids: impl IntoIterator<Item = u32>, out: &mut Vec<u8>) -> Result<()> {
        for id in ids {
            out.extend_from_slice(self.token(id).ok_or(Error::UnknownId(i64::from(id)))?);
        }
        Ok(())
    }
}

/// An id, also in memory that other threads may write to at any time, as they may to an array of Python's: each reading gives some number.
pub trait SharedId: Sync {
    /// What it is now.
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

/// Bytes of a slot. It is copied whole, whatever the token's length: one load and one store, in place of a call and
/// of branches on a length that nobody can foresee.
const SLOT: usize = 16;

/// The longest token that a slot holds, beside its length. Of the tokens of English text 1 in 500 is longer.
const SHORT: usize = SLOT - 1;

/// In place of the length in a slot: a token elsewhere.
const LONG: u8 = SLOT as u8;

/// In place of the length in a slot: no token.
const NONE: u8 = u8::MAX;

/// Ids that are counted, or copied, in a loop of known length.
const GROUP: usize = 4;

/// The greatest length that is counted by a look at it alone. Of the tokens of code 1 in 4,500 is longer.
const COUNTED: usize = 63;

/// In place of the length of a longer token, or of none.
const OTHER: u8 = u8::MAX;

/// A group has none of [`OTHER`] if its lengths come to less than that.
const _: () = assert!(GROUP * COUNTED < OTHER as usize);

/// Ids between two pulses: some milliseconds.
const PULSE_IDS: usize = 1 << 20;

/// Ids that are copied between two looks at the room for them.
const BLOCK: usize = 512;

/// How many ids ahead a slot is asked for: all slots of a vocabulary do not fit the nearer caches.
const AHEAD: usize = 16;

/// The tokens of a vocabulary, laid out for decoding many ids: first their bytes are counted, then copied to where they are to stay.
pub struct Decoder {
    /// By id: the token and in the last byte its length; or [`LONG`], and first the place in `long` where the token starts
    /// and that where it ends; or [`NONE`].
    slots: Box<[[u8; SLOT]]>,
    /// By id: the length of the token up to [`COUNTED`], or [`OTHER`]. A sixteenth of the slots, it stays in a nearer cache.
    lengths: Box<[u8]>,
    /// The bytes of the tokens longer than [`SHORT`].
    long: Vec<u8>,
}

impl Decoder {
    /// The tokens of `vocab`, whose bytes are fewer than 2³² altogether.
    #[must_use]
    pub fn new(vocab: &Vocab) -> Self {
        let n_ids = vocab.n_ids();
        let (mut slots, mut lengths, mut long) = (Vec::with_capacity(n_ids), Vec::with_capacity(n_ids), Vec::new());
        for id in 0..n_ids as u32 {
            let mut slot = [0; SLOT];
            let token = vocab.token(id).unwrap_or_default();
            slot[SHORT] = match token.len() {
                0 => NONE,
                n_bytes @ 1..=SHORT => {
                    slot[..n_bytes].copy_from_slice(token);
                    n_bytes as u8
                }
                _ => {
                    slot[..4].copy_from_slice(&(long.len() as u32).to_le_bytes());
                    long.extend_from_slice(token);
                    slot[4..8].copy_from_slice(&(long.len() as u32).to_le_bytes());
                    LONG
                }
            };
            slots.push(slot);
            lengths.push(if (1..=COUNTED).contains(&token.len()) { token.len() as u8 } else { OTHER });
        }
        Self { slots: slots.into(), lengths: lengths.into(), long }
    }

    /// The number of bytes that `ids` stand for.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id that no token has; what `pulse` gives.
    pub fn n_bytes(&self, ids: &[impl SharedId], pulse: Pulse<'_>) -> Result<usize> {
        ids.chunks(PULSE_IDS).try_fold(0usize, |n_bytes, part| {
            pulse()?;
            // Where that is too much, it is too much for memory too.
            Ok(n_bytes.saturating_add(self.n_bytes_of_part(part)?))
        })
    }

    /// A function of its own, as [`Decoder::copy_short`] is, so that its loop keeps its few numbers in registers.
    #[inline(never)]
    fn n_bytes_of_part(&self, ids: &[impl SharedId]) -> Result<usize> {
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

    /// Fills `out` with the bytes of `ids`, which are [`Decoder::n_bytes`] of them. After an error some of it is not filled.
    ///
    /// # Errors
    /// [`Error::UnknownId`] and [`Error::Invalid`] where another thread has changed the ids since they were counted; what `pulse` gives.
    pub fn fill(&self, ids: &[impl SharedId], out: &mut [MaybeUninit<u8>], pulse: Pulse<'_>) -> Result<()> {
        let mut pages = Pages::default();
        let (mut rest, mut at) = (ids, 0);
        let mut next_pulse = rest.len();
        while !rest.is_empty() {
            if rest.len() <= next_pulse {
                pulse()?;
                next_pulse = rest.len().saturating_sub(PULSE_IDS);
            }
            pages.take_spare(&mut out[at..], BLOCK * SLOT, true);
            let (n_ids, n_bytes) = self.copy_short(rest, &mut out[at..]);
            at += n_bytes;
            rest = &rest[n_ids..];
            // One that is long or does not exist, or one of the last, which have no room for whole slots.
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

    /// Copies up to [`BLOCK`] tokens to the front of `out`, as many as it has slots, up to the first that is long or does not exist.
    /// Gives the number of tokens and that of their bytes.
    #[inline(never)]
    fn copy_short(&self, ids: &[impl SharedId], out: &mut [MaybeUninit<u8>]) -> (usize, usize) {
        let n_most = ids.len().min(out.len() / SLOT).min(BLOCK);
        let slots = &*self.slots;
        let (mut n_ids, mut n_bytes) = (0, 0);
        // Gives whether the token is a short one.
        let mut copy = |id: u32| {
            let Some(slot) = slots.get(id as usize) else { return false };
            if usize::from(slot[SHORT]) > SHORT {
                return false;
            }
            // SAFETY: it is called for no more than `n_most` ids, of which each takes less than a slot, and so many slots have room in `out`.
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

    /// A token of any length.
    #[cold]
    fn any(&self, id: u32) -> Result<&[u8]> {
        let Some(slot) = self.slots.get(id as usize) else { return Err(Error::UnknownId(i64::from(id))) };
        let &[a, b, c, d, e, f, g, h, .., n_bytes] = slot;
        let place = |bytes| u32::from_le_bytes(bytes) as usize;
        match n_bytes {
            NONE => Err(Error::UnknownId(i64::from(id))),
            LONG => Ok(&self.long[place([a, b, c, d])..place([e, f, g, h])]),
            _ => Ok(&slot[..usize::from(n_bytes)]),
        }
    }
}

fn changed() -> Error {
    Error::Invalid("the ids were changed while they were decoded".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::no_pulse;
    use proptest::prelude::*;

    /// Tokens of the lengths about a slot's and about [`COUNTED`], ids with gaps, a special token.
    fn vocab() -> Vocab {
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte) * 2, vec![byte])).collect();
        tokens.extend((2..=70).map(|n_bytes| (1000 + n_bytes, (0..n_bytes as u8).collect())));
        tokens.push((70_000, vec![b'x'; 1000]));
        Vocab::from_merges(tokens, &[], vec![("<|end of all of it|>".to_owned(), 80_000)]).unwrap()
    }

    /// Mostly ids of tokens, now and then one of none.
    fn ids() -> impl Strategy<Value = Vec<u32>> {
        let known = prop_oneof![8 => (0u32..256).prop_map(|byte| byte * 2), 8 => 1002u32..=1070, 1 => Just(70_000), 1 => Just(80_000)];
        let any = prop_oneof![1000 => known, 1 => 0u32..80_010, 1 => any::<u32>()];
        prop::collection::vec(any, 0..600)
    }

    fn decoded(decoder: &Decoder, ids: &[impl SharedId]) -> Result<Vec<u8>> {
        let mut out = vec![MaybeUninit::uninit(); decoder.n_bytes(ids, &no_pulse)?];
        decoder.fill(ids, &mut out, &no_pulse)?;
        // SAFETY: all of it has been filled.
        Ok(out.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    proptest! {
        #[test]
        fn decoding_by_slots_is_the_plain_loop(ids in ids()) {
            let vocab = vocab();
            let mut plain = Vec::new();
            let decoder = Decoder::new(&vocab);
            let done = decoded(&decoder, &ids);
            let shared: Vec<AtomicU32> = ids.iter().copied().map(AtomicU32::new).collect();
            let of_shared = decoded(&decoder, &shared);
            prop_assert_eq!(done.as_ref().ok(), of_shared.as_ref().ok());
            match vocab.decode(ids.iter().copied(), &mut plain) {
                Ok(()) => prop_assert_eq!(done.unwrap(), plain),
                Err(Error::UnknownId(unknown)) => {
                    prop_assert!(matches!(done, Err(Error::UnknownId(id)) if id == unknown));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn ids_that_change_after_they_were_counted_are_told(counted in ids(), ids in ids()) {
            let decoder = Decoder::new(&vocab());
            let n_bytes = decoder.n_bytes(&counted, &no_pulse);
            prop_assume!(n_bytes.is_ok());
            let n_bytes = n_bytes.unwrap();
            let filled = decoder.fill(&ids, &mut vec![MaybeUninit::uninit(); n_bytes], &no_pulse);
            match decoder.n_bytes(&ids, &no_pulse) {
                Ok(n_now) => prop_assert_eq!(filled.is_ok(), n_now == n_bytes),
                Err(_) => prop_assert!(filled.is_err()),
            }
        }
    }

    #[test]
    fn blocks_end_anywhere() {
        let vocab = vocab();
        let decoder = Decoder::new(&vocab);
        for n_ids in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1] {
            for id in [130, 1015, 1016, 1017] {
                let mut plain = Vec::new();
                vocab.decode(vec![u32::from(id); n_ids], &mut plain).unwrap();
                let narrow: Vec<AtomicU16> = (0..n_ids).map(|_| AtomicU16::new(id)).collect();
                assert_eq!(decoded(&decoder, &narrow).unwrap(), plain, "{n_ids} times {id}");
            }
        }
    }

    #[test]
    fn many_ids_go_to_pages_that_are_taken_ahead() {
        let vocab = vocab();
        let ids: Vec<u32> = (0..800_000)
            .map(|k| match k % 1_000 {
                0 => 70_000,
                n if n % 3 == 0 => 1002 + n % 39,
                n => 2 * (n % 256),
            })
            .collect();
        let mut plain = Vec::new();
        vocab.decode(ids.iter().copied(), &mut plain).unwrap();
        assert!(plain.len() > 2 * crate::huge::LARGE_PAGE);
        assert!(decoded(&Decoder::new(&vocab), &ids).unwrap() == plain);
    }

    #[test]
    fn a_pulse_ends_either_pass() {
        let decoder = Decoder::new(&vocab());
        let ids = vec![130; 3 * PULSE_IDS];
        let beats = AtomicU32::new(0);
        let until = |n: u32| {
            beats.store(0, Relaxed);
            let beats = &beats;
            move || if beats.fetch_add(1, Relaxed) < n { Ok(()) } else { Err(Error::Interrupted) }
        };
        let mut out = vec![MaybeUninit::uninit(); ids.len()];
        for n in [0, 1, 2] {
            assert!(matches!(decoder.n_bytes(&ids, &until(n)), Err(Error::Interrupted)));
            assert!(matches!(decoder.fill(&ids, &mut out, &until(n)), Err(Error::Interrupted)));
            assert_eq!(beats.load(Relaxed), n + 1);
        }
        assert_eq!(decoder.n_bytes(&ids, &until(3)).unwrap(), ids.len());
        decoder.fill(&ids, &mut out, &until(3)).unwrap();
    }
}
