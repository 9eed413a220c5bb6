//! The table of pairs once all of them are known: a place for each, and no two pairs in one.
//!
//! Hash and displace. A pair's hash names a bucket, some three pairs to each, and a place; the bucket's pilot, a number found by
//! trying, moves the places of its pairs so that nobody else is there. A look-up reads the pilot (of 100,000 pairs 32 KB, which stay
//! near) and one entry of 1 MB. With two places for each pair there are two entries to read, of 2 MB, but both at once.

use super::{BITS, EMPTY, PairTable, Pairs, grid_place, hash, key, symbol_of};
use crate::error::{Error, Result};
use crate::prefetch::prefetch;
use crate::vocab::MAX_SYMBOLS;

/// Places for each bucket.
const BUCKET_SLOTS: usize = 4;

/// Pairs of one bucket beyond which no pilot is looked for: by chance not one table in 10⁵⁰ has so many, and pairs chosen to share a bucket
/// would take a time that grows with the square of their number.
const MOST_IN_BUCKET: u32 = 64;

/// Places in one word of bits.
const WORD: usize = 64;

/// Pair of symbols -> symbol, for look-ups alone.
#[derive(Clone, Debug)]
pub struct PerfectPairs {
    grid: Box<[u32]>,
    slots: Box<[u64]>,
    pilots: Box<[u8]>,
    bucket_shift: u32,
}

/// A pair that has been asked for, and where its entry is if there is one.
#[derive(Clone, Copy, Default)]
pub struct AskedOnce {
    key: u64,
    slot: usize,
}

impl PerfectPairs {
    /// The pairs of a table.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no pilots are to be found, however large the table, which only pairs chosen for that bring about.
    pub fn new(pairs: &PairTable) -> Result<Self> {
        let n_entries = entries(pairs).count();
        // Four fifths full at most: the last buckets, of one pair each, then find a place after five tries.
        let mut n_slots = (n_entries * 5 / 4).next_power_of_two().max(WORD);
        loop {
            if let Some((slots, pilots)) = place_all(pairs, n_entries, n_slots) {
                let bucket_shift = bucket_shift(n_slots);
                return Ok(Self { grid: pairs.grid.clone(), slots, pilots, bucket_shift });
            }
            n_slots *= 2;
            if n_slots > 64 * MAX_SYMBOLS {
                return Err(Error::Invalid("the merges cannot be put into a table".to_owned()));
            }
        }
    }
}

impl Pairs for PerfectPairs {
    type Asked = AskedOnce;

    #[inline]
    fn get_bytes(&self, left: u8, right: u8) -> u32 {
        self.grid[grid_place(left, right)]
    }

    #[inline]
    fn ask(&self, left: u32, right: u32) -> AskedOnce {
        let key = key(left, right);
        let hash = hash(key);
        let slot = slot(hash, self.pilots[(hash >> self.bucket_shift) as usize], self.slots.len());
        prefetch(&self.slots, slot);
        AskedOnce { key, slot }
    }

    #[inline]
    fn answer(&self, asked: AskedOnce) -> u32 {
        symbol_of(self.slots[asked.slot], asked.key)
    }
}

fn bucket_shift(n_slots: usize) -> u32 {
    64 - (n_slots / BUCKET_SLOTS).trailing_zeros()
}

/// Where a pilot puts a hash: the lower half says where it begins, the upper half how far each step goes, so that two hashes of
/// one bucket part unless both halves agree in the bits that count.
#[inline]
fn slot(hash: u64, pilot: u8, n_slots: usize) -> usize {
    hash.wrapping_add((hash >> 32).wrapping_mul(u64::from(pilot))) as usize & (n_slots - 1)
}

/// Entries in their places, and pilots.
type Placed = (Box<[u64]>, Box<[u8]>);

/// The entries of a table in no order.
fn entries(pairs: &PairTable) -> impl Iterator<Item = u64> {
    pairs.slots.iter().copied().filter(|&entry| entry != EMPTY)
}

/// Places for all `n_entries` entries, and the pilots; `None` where some bucket finds no pilot.
fn place_all(pairs: &PairTable, n_entries: usize, n_slots: usize) -> Option<Placed> {
    let shift = bucket_shift(n_slots);
    let n_buckets = n_slots / BUCKET_SLOTS;
    let bucket_of = |entry: u64| (hash(entry >> BITS) >> shift) as usize;
    // By buckets: where those of each end, and, once each is filled from its end on, where they begin.
    let mut starts = vec![0u32; n_buckets + 1];
    for entry in entries(pairs) {
        starts[bucket_of(entry)] += 1;
    }
    let most = starts.iter().copied().max().unwrap_or(0);
    if most > MOST_IN_BUCKET {
        return None;
    }
    let mut end = 0;
    for start in &mut starts {
        end += *start;
        *start = end;
    }
    let mut ordered = vec![0u64; n_entries];
    for entry in entries(pairs) {
        let start = &mut starts[bucket_of(entry)];
        *start -= 1;
        ordered[*start as usize] = entry;
    }
    let mut slots = vec![EMPTY; n_slots].into_boxed_slice();
    let mut pilots = vec![0; n_buckets].into_boxed_slice();
    // A bit for each place, all of which the nearest cache holds.
    let mut taken = vec![0u64; n_slots / WORD];
    let mut hashes = Vec::with_capacity(most as usize);
    let mut places = Vec::with_capacity(most as usize);
    // The largest buckets first, while there is much room.
    for size in (1..=most).rev() {
        for (bounds, pilot) in starts.windows(2).zip(&mut pilots).filter(|(bounds, _)| bounds[1] - bounds[0] == size) {
            let some = &ordered[bounds[0] as usize..bounds[1] as usize];
            hashes.clear();
            hashes.extend(some.iter().map(|entry| hash(entry >> BITS)));
            *pilot = (0..=u8::MAX).find(|&pilot| {
                places.clear();
                hashes.iter().all(|&hash| {
                    let place = slot(hash, pilot, n_slots);
                    let is_free = taken[place / WORD] >> (place % WORD) & 1 == 0 && !places.contains(&place);
                    places.push(place);
                    is_free
                })
            })?;
            for (&place, &entry) in places.iter().zip(some) {
                taken[place / WORD] |= 1 << (place % WORD);
                slots[place] = entry;
            }
        }
    }
    Some((slots, pilots))
}
