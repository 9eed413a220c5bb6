//! The integer types that ids are written as.

use crate::error::{Error, Result};

/// An id in the output: `u16` if every id of the vocabulary fits, else `u32`; `()` where only the number of ids matters.
pub trait Id: Copy + Default + PartialEq + Send + 'static {
    /// Number of different ids that the type can hold.
    const CAPACITY: usize;

    /// The id in this width. Callers check the vocabulary with [`check_width`] first, so nothing is cut off.
    fn narrow(id: u32) -> Self;

    /// Leaves one of several `id`s in a row, from the index `start` on. Numbers without a value stay.
    fn fuse(ids: &mut Vec<Self>, start: usize, id: u32) {
        let id = Self::narrow(id);
        let mut n_kept = start;
        for index in start..ids.len() {
            if index > start && ids[index] == id && ids[index - 1] == id {
                continue;
            }
            ids[n_kept] = ids[index];
            n_kept += 1;
        }
        ids.truncate(n_kept);
    }
}

/// Checks that every id of a vocabulary of `n_ids` fits the type.
///
/// # Errors
/// [`Error::Invalid`] if it does not.
#[inline]
pub fn check_width<T: Id>(n_ids: usize) -> Result<()> {
    if n_ids <= T::CAPACITY {
        return Ok(());
    }
    Err(Error::Invalid(format!("ids up to {} do not fit {} bits", n_ids - 1, 8 * size_of::<T>())))
}

impl Id for u16 {
    const CAPACITY: usize = 1 << 16;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "checked by `check_width`")]
    fn narrow(id: u32) -> Self {
        id as Self
    }
}

impl Id for u32 {
    const CAPACITY: usize = usize::MAX;

    #[inline]
    fn narrow(id: u32) -> Self {
        id
    }
}

impl Id for () {
    const CAPACITY: usize = usize::MAX;

    #[inline]
    fn narrow(_: u32) {}

    fn fuse(_: &mut Vec<Self>, _: usize, _: u32) {}
}
