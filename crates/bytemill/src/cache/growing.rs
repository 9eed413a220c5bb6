//! A table that begins small and grows as it fills: to twice its size, or at once to that of a text that is to come.
//!
//! A place is the lowest bits of a hash, so that when more bits count, what is in a place stays there or moves to new places of
//! its own. Whoever encodes little waits for little memory: 16 MB are 2 ms, and 14 where the host of a virtual machine has
//! them. Whoever encodes much would move what is there again and again, and drive out some of it in between: with the size
//! that it comes to anyway from the beginning, 27 MB of English documents take 0.94 of the time.

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
    #[cfg(test)]
    pub fn n_new(&self) -> usize {
        self.n_new
    }

    /// Has twice as many places, or as many as fill `n_bytes` if that is more. `spread` is called with the values, as many as there
    /// will be places, and each place so far, and is to move what is there to where it will be looked for.
    pub fn grow(&mut self, n_bytes: usize, mut spread: impl FnMut(&mut [T], usize)) {
        let n = self.mask + 1;
        let n_places = (n_bytes / size_of::<T>()).next_power_of_two().clamp(2 * n, MOST);
        self.take_memory(n, n_places);
        let values = &mut self.values[..n_places];
        for place in 0..n {
            spread(values, place);
        }
        self.mask = n_places - 1;
    }

    /// Takes the memory of so many values, of which the first `n` are in use.
    fn take_memory(&mut self, n: usize, n_values: usize) {
        let n_in_page = LARGE_PAGE / size_of::<T>();
        // A large page no sooner: most texts are short.
        if 2 * self.n_taken < n_in_page && 2 * n_values >= n_in_page {
            let first = self.values.take_first_large(n);
            self.n_taken = first.unwrap_or_else(|| {
                let until = n_values.min(n_in_page);
                self.values.take_memory(self.n_taken..until);
                until
            });
        }
        if self.n_taken < n_values {
            self.values.take_memory(self.n_taken..n_values);
            self.n_taken = n_values;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: any bits are a number.
    unsafe impl Plain for u32 {}

    #[test]
    fn what_is_moved_is_where_its_hash_says() {
        const MOST: usize = 1 << 20;
        // Their own hashes, and none is 0; no two in one place.
        let hashes = || (1..FIRST as u32).map(|number| number | number.wrapping_mul(0x9E37_79B9) << 10);
        // To twice the size and to some more; from 4 KB to a large page; to half of one, which is taken whole, and on in it; and to all
        // there is, where more than that is asked for.
        for steps in [
            &[(0, 2), (0, 4), (9_000 * 4, 16), (16 * FIRST * 4, 32)][..],
            &[(3 << 19, 512), (0, 1_024)],
            &[(1 << 20, 256), (0, 512), (0, 1_024)],
            &[(0, 2), (usize::MAX, 1_024)],
        ] {
            let mut table = Growing::<u32, MOST>::new();
            for hash in hashes() {
                assert_eq!(std::mem::replace(table.get_new(hash), hash), 0);
            }
            for &(n_bytes, times) in [(0, 1)].iter().chain(steps) {
                if times > 1 {
                    table.grow(n_bytes, |values, place| {
                        let to = values[place] as usize & (values.len() - 1);
                        if values[place] != 0 && to != place {
                            values[to] = std::mem::take(&mut values[place]);
                        }
                    });
                }
                let n = times * FIRST;
                assert_eq!(table.mask(), n - 1, "{steps:?}");
                assert!(hashes().all(|hash| *table.get(hash) == hash && table.place(hash) < n));
                assert_eq!(table.values().iter().filter(|&&hash| hash != 0).count(), FIRST - 1);
                assert_eq!(table.is_full(), times == 1, "what was new counts for every size");
            }
        }
    }
}
