//! A lookup table that starts small and doubles as it fills, up to a fixed size.
//!
//! An entry's index is the low bits of its hash, so that an entry stays in place or moves to an index of its own when one
//! more bit counts. Short texts touch little memory; long ones get a table large enough for most of their pre-tokens.

use crate::error::Result;
use crate::sys::huge_pages::{AnyBits, ZeroedArray};

/// Entries of a new table.
const INITIAL_LEN: usize = 1 << 10;

pub struct GrowingCache<T> {
    /// Address space for the largest size.
    entries: ZeroedArray<T>,
    /// The number of entries in use, a power of two, minus one.
    mask: usize,
    n_inserted: usize,
}

impl<T: AnyBits> GrowingCache<T> {
    /// An empty table that grows to at most `max_len` entries, a power of two.
    ///
    /// # Errors
    /// [`crate::Error::Memory`] if the system refuses the memory.
    pub fn new(max_len: usize) -> Result<Self> {
        debug_assert!(max_len.is_power_of_two() && max_len >= INITIAL_LEN);
        Ok(Self { entries: ZeroedArray::new(max_len)?, mask: INITIAL_LEN - 1, n_inserted: 0 })
    }

    /// Entries in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// Bytes of memory.
    pub fn n_bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// A view for many lookups while nothing changes.
    #[inline]
    pub fn view(&self) -> View<'_, T> {
        View { entries: &self.entries[..self.len()], mask: self.mask }
    }

    #[inline]
    pub fn get(&self, hash: u32) -> &T {
        self.view().get(hash)
    }

    #[inline]
    pub fn get_mut(&mut self, hash: u32) -> &mut T {
        let index = hash as usize & self.mask;
        &mut self.entries[index]
    }

    /// The entry to overwrite with a new value; counts it towards the next growth.
    #[inline]
    pub fn get_for_insert(&mut self, hash: u32) -> &mut T {
        self.n_inserted += 1;
        self.get_mut(hash)
    }

    /// Whether the table should grow: values were inserted for half of its entries.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.n_inserted > self.mask / 2 && self.len() < self.entries.len()
    }

    /// Doubles the table. `spread(entries, index)` moves what is at an old index and does not belong there any more.
    pub fn grow(&mut self, mut spread: impl FnMut(&mut [T], usize)) {
        let old_len = self.len();
        self.entries.prepare(old_len..2 * old_len);
        let entries = &mut self.entries[..2 * old_len];
        for index in 0..old_len {
            spread(entries, index);
        }
        self.mask = 2 * old_len - 1;
    }
}

/// See [`GrowingCache::view`].
#[derive(Clone, Copy)]
pub struct View<'c, T> {
    entries: &'c [T],
    mask: usize,
}

impl<'c, T> View<'c, T> {
    #[inline]
    pub fn get(self, hash: u32) -> &'c T {
        &self.entries[hash as usize & self.mask]
    }

    /// The address of the entry, to be prefetched. It may outlive the table.
    #[inline]
    pub fn address(self, hash: u32) -> *const T {
        self.entries.as_ptr().wrapping_add(hash as usize & self.mask)
    }
}

#[cfg(test)]
#[path = "tests/growing_cache.rs"]
mod tests;
