//! Decoding: ids to bytes.

use crate::error::{Error, Result};
use crate::prefetch::prefetch_at;
use crate::vocab::Vocab;

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

/// Bytes of a slot. It is copied whole, whatever the token's length: one load and one store, in place of a call and
/// of branches on a length that nobody can foresee.
const SLOT: usize = 16;

/// The longest token that a slot holds, beside its length. Of the tokens of English text 1 in 500 is longer.
const SHORT: usize = SLOT - 1;

/// In place of the length: a token elsewhere.
const LONG: u8 = SLOT as u8;

/// Ids for which room is made at a time.
const BLOCK: usize = 128;

/// How many ids ahead a slot is asked for: all slots of a vocabulary do not fit the nearer caches.
const AHEAD: usize = 16;

/// The tokens of a vocabulary, laid out for decoding many ids.
pub struct Decoder {
    /// By id: the token and in the last byte its length, 0 for an id that no token has; or [`LONG`], and first the
    /// place in `long` where the token starts and that where it ends.
    slots: Box<[[u8; SLOT]]>,
    /// The bytes of the tokens longer than [`SHORT`].
    long: Vec<u8>,
}

impl Decoder {
    /// The tokens of `vocab`, whose bytes are fewer than 2³² altogether.
    #[must_use]
    pub fn new(vocab: &Vocab) -> Self {
        let mut long = Vec::new();
        let slots = (0..vocab.n_ids() as u32).map(|id| {
            let mut slot = [0; SLOT];
            let token = vocab.token(id).unwrap_or_default();
            if token.len() <= SHORT {
                slot[..token.len()].copy_from_slice(token);
                slot[SHORT] = token.len() as u8;
            } else {
                slot[..4].copy_from_slice(&(long.len() as u32).to_le_bytes());
                long.extend_from_slice(token);
                slot[4..8].copy_from_slice(&(long.len() as u32).to_le_bytes());
                slot[SHORT] = LONG;
            }
            slot
        });
        Self { slots: slots.collect(), long }
    }

    /// Appends the bytes of `ids` to `out`, as [`Vocab::decode`] does. What `out` holds after an error is undefined.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id that no token has.
    pub fn decode(&self, ids: &[u32], out: &mut Vec<u8>) -> Result<()> {
        let mut rest = ids;
        while !rest.is_empty() {
            let start = out.len();
            out.resize(start + rest.len().min(BLOCK) * SLOT, 0);
            let (n_ids, n_bytes) = self.copy_short(rest, &mut out[start..]);
            out.truncate(start + n_bytes);
            rest = &rest[n_ids..];
            if n_ids < BLOCK
                && let Some((&id, after)) = rest.split_first()
            {
                out.extend_from_slice(self.long(id).ok_or(Error::UnknownId(i64::from(id)))?);
                rest = after;
            }
        }
        Ok(())
    }

    /// Copies up to [`BLOCK`] tokens to `out`, which has room for a slot each, up to the first that is long or that
    /// does not exist. Gives the number of tokens and that of their bytes.
    #[inline]
    fn copy_short(&self, ids: &[u32], out: &mut [u8]) -> (usize, usize) {
        let mut at = 0;
        for (n_ids, &id) in ids.iter().take(BLOCK).enumerate() {
            if let Some(later) = ids.get(n_ids + AHEAD).and_then(|&later| self.slots.get(later as usize)) {
                prefetch_at(later);
            }
            let (Some(slot), Some(to)) =
                (self.slots.get(id as usize), out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<SLOT>))
            else {
                return (n_ids, at);
            };
            let n_bytes = usize::from(slot[SHORT]);
            if n_bytes.wrapping_sub(1) >= SHORT {
                return (n_ids, at);
            }
            *to = *slot;
            at += n_bytes;
        }
        (ids.len().min(BLOCK), at)
    }

    #[cold]
    fn long(&self, id: u32) -> Option<&[u8]> {
        let &[a, b, c, d, e, f, g, h, .., n_bytes] = self.slots.get(id as usize)?;
        let place = |bytes| u32::from_le_bytes(bytes) as usize;
        (n_bytes == LONG).then(|| &self.long[place([a, b, c, d])..place([e, f, g, h])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tokens of the lengths about a slot's, ids with gaps, a special token.
    fn vocab() -> Vocab {
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte) * 2, vec![byte])).collect();
        tokens.extend((2..=40).map(|n_bytes| (1000 + n_bytes, (0..n_bytes as u8).collect())));
        tokens.push((70_000, vec![b'x'; 1000]));
        Vocab::from_merges(tokens, &[], vec![("<|end of all of it|>".to_owned(), 80_000)]).unwrap()
    }

    /// Mostly ids of tokens, now and then one of none.
    fn ids() -> impl Strategy<Value = Vec<u32>> {
        let known = prop_oneof![8 => (0u32..256).prop_map(|byte| byte * 2), 8 => 1002u32..=1040, 1 => Just(70_000), 1 => Just(80_000)];
        let any = prop_oneof![1000 => known, 1 => 0u32..80_010, 1 => any::<u32>()];
        prop::collection::vec(any, 0..600)
    }

    proptest! {
        #[test]
        fn decoding_by_slots_is_the_plain_loop(ids in ids(), before in prop::collection::vec(any::<u8>(), 0..40)) {
            let vocab = vocab();
            let (mut fast, mut plain) = (before.clone(), before);
            let done = Decoder::new(&vocab).decode(&ids, &mut fast);
            match vocab.decode(ids.iter().copied(), &mut plain) {
                Ok(()) => {
                    prop_assert!(done.is_ok());
                    prop_assert_eq!(fast, plain);
                }
                Err(Error::UnknownId(unknown)) => {
                    prop_assert!(matches!(done, Err(Error::UnknownId(id)) if id == unknown));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }

    #[test]
    fn blocks_end_anywhere() {
        let vocab = vocab();
        let decoder = Decoder::new(&vocab);
        for n_ids in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1] {
            for id in [130, 1015, 1016, 1017] {
                let (mut fast, mut plain) = (Vec::new(), Vec::new());
                decoder.decode(&vec![id; n_ids], &mut fast).unwrap();
                vocab.decode(vec![id; n_ids], &mut plain).unwrap();
                assert_eq!(fast, plain, "{n_ids} times {id}");
            }
        }
    }
}
