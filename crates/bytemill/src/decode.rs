//! Decoding: ids to bytes.

use crate::error::{Error, Result};
use crate::vocab::Vocab;

impl Vocab {
    /// Appends the bytes of `ids` to `out`.
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
