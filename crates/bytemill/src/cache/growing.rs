//! A table that begins small and doubles as it fills.
//!
//! A place is the lowest bits of a hash, so that when one bit more counts, what is in a place stays there or moves to one place
//! in the new half. Whoever encodes little waits for little memory: 16 MB are 2 ms, and 14 where the host of a virtual machine has
//! them.

use crate::huge::{HugeArray, LARGE_PAGE, Plain};

/// Values to begin with.
const FIRST: usize = 1 << 10;

/// Up to `MOST` values.
pub struct Growing<T, const MOST: usize> {
    values: HugeArray<T, MOST>,
    /// One less than the number of places, a power of two.
    mask: usize,
    /// Values of which the memory has been taken.
    n_taken: usize,
    /// So much has been new so far.
    n_new: usize,
}

impl<T: Plain, const MOST: usize> Growing<T, MOST> {
    pub fn new() -> Self {
        const { assert!(MOST.is_power_of_two() && MOST >= FIRST) };
        let mut values = HugeArray::zeroed();
        values.take_memory(0..FIRST);
        Self { values, mask: FIRST - 1, n_taken: FIRST, n_new: 0 }
    }

    /// The bits of a hash that count.
    #[inline]
    pub fn mask(&self) -> usize {
        self.mask
    }

    /// The place of a hash.
    #[inline]
    pub fn place(&self, hash: u32) -> usize {
        // The second mask is for the compiler, which need not check an index then.
        hash as usize & self.mask & (MOST - 1)
    }

    /// All there is, and room for more.
    #[inline]
    pub fn values(&self) -> &[T; MOST] {
        &self.values
    }

    /// What is in the place of a hash.
    #[inline]
    pub fn get(&self, hash: u32) -> &T {
        &self.values[self.place(hash)]
    }

    /// As [`Growing::get`].
    #[inline]
    pub fn get_mut(&mut self, hash: u32) -> &mut T {
        let place = self.place(hash);
        &mut self.values[place]
    }

    /// What is in the place of a hash, for something new.
    #[inline]
    pub fn get_new(&mut self, hash: u32) -> &mut T {
        self.n_new += 1;
        self.get_mut(hash)
    }

    /// Whether so much has been new that it should grow: something for every other place. (With sets of two entries, up to as many
    /// as there are places no difference could be told.)
    #[inline]
    pub fn is_full(&self) -> bool {
        self.n_new > self.mask / 2 && self.mask < MOST - 1
    }

    /// How much has been new so far.
    #[inline]
    pub fn n_new(&self) -> usize {
        self.n_new
    }

    /// Has twice as many places. `split` is called with what is in each place and what will be in the new one that goes with it,
    /// and with these places.
    pub fn grow(&mut self, mut split: impl FnMut(&mut T, &mut T, usize, usize)) {
        let n = self.mask + 1;
        if 2 * n > self.n_taken {
            // A large page no sooner: most texts are short.
            let is_half = 2 * n * size_of::<T>() == LARGE_PAGE / 2;
            let first = if is_half { self.values.take_first_large(n) } else { None };
            if first.is_none() {
                self.values.take_memory(n..2 * n);
            }
            self.n_taken = first.unwrap_or(2 * n);
        }
        let (old, new) = self.values[..2 * n].split_at_mut(n);
        for (place, (value, other)) in old.iter_mut().zip(new).enumerate() {
            split(value, other, place, place + n);
        }
        self.mask = 2 * n - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: any bits are a number.
    unsafe impl Plain for u32 {}

    #[test]
    fn what_is_moved_is_where_its_hash_says() {
        let mut table = Growing::<u32, { 8 * FIRST }>::new();
        // Their own hashes, and none is 0; no two in one place.
        let hashes = || (1..FIRST as u32).map(|number| number | number.wrapping_mul(0x9E37_79B9) << 10);
        for hash in hashes() {
            assert_eq!(std::mem::replace(table.get_new(hash), hash), 0);
        }
        for n in [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST] {
            assert_eq!(table.mask(), n - 1);
            assert!(hashes().all(|hash| *table.get(hash) == hash && table.place(hash) < n));
            assert_eq!(table.values().iter().filter(|&&hash| hash != 0).count(), FIRST - 1);
            assert_eq!(table.is_full(), n == FIRST, "what was new counts for every size");
            if n < 8 * FIRST {
                table.grow(|value, other, place, other_place| {
                    assert_eq!(other_place, place + n);
                    if *value as usize & n != 0 {
                        *other = std::mem::take(value);
                    }
                });
            }
        }
    }
}
