//! Decoding: ids to bytes.

use crate::error::{Error, Result};
use crate::vocab::Vocab;

/// Ids for which room is made at a time.
const BLOCK: usize = 128;

/// Bytes that are copied at once, whatever the token's length: one load and one store in place of a call and a
/// branch on the length that nobody can foresee. Of the tokens of English text 1 in 1,000 is longer.
const CHUNK: usize = 16;

impl Vocab {
    /// Appends the bytes of `ids` to `out`. What `out` holds after an error is undefined.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for the first id that no token has.
    pub fn decode(&self, ids: impl IntoIterator<Item = u32>, out: &mut Vec<u8>) -> Result<()> {
        let mut ids = ids.into_iter();
        let mut block = [0; BLOCK];
        loop {
            let n_ids = block.iter_mut().zip(&mut ids).map(|(entry, id)| *entry = id).count();
            if n_ids == 0 {
                return Ok(());
            }
            self.decode_block(&block[..n_ids], out)?;
        }
    }

    fn decode_block(&self, mut ids: &[u32], out: &mut Vec<u8>) -> Result<()> {
        while !ids.is_empty() {
            let start = out.len();
            out.resize(start + ids.len() * CHUNK, 0);
            let (n_ids, n_bytes) = self.copy_short(ids, &mut out[start..]);
            out.truncate(start + n_bytes);
            ids = &ids[n_ids..];
            if let Some((&long, rest)) = ids.split_first() {
                out.extend_from_slice(self.token(long).ok_or(Error::UnknownId(i64::from(long)))?);
                ids = rest;
            }
        }
        Ok(())
    }

    /// Copies tokens, each followed by bytes that are none of it, up to the first one that [`CHUNK`] bytes do not
    /// hold or that does not exist. Gives the number of tokens and their bytes.
    #[inline]
    fn copy_short(&self, ids: &[u32], out: &mut [u8]) -> (usize, usize) {
        let (bytes, starts) = self.bytes_by_id();
        let mut at = 0;
        for (n_ids, &id) in ids.iter().enumerate() {
            let id = id as usize;
            let (Some(&start), Some(&end)) = (starts.get(id), starts.get(id + 1)) else { return (n_ids, at) };
            let n_bytes = end.wrapping_sub(start) as usize;
            let (from, to) = (bytes.get(start as usize..), out.get_mut(at..));
            let (Some(from), Some(to)) =
                (from.and_then(<[u8]>::first_chunk::<CHUNK>), to.and_then(<[u8]>::first_chunk_mut::<CHUNK>))
            else {
                return (n_ids, at);
            };
            if n_bytes.wrapping_sub(1) >= CHUNK {
                return (n_ids, at);
            }
            *to = *from;
            at += n_bytes;
        }
        (ids.len(), at)
    }
}
