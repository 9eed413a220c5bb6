//! The table of pairs once all of them are known: one place for each, with no two in the same.
//!
//! Hash and displace: a hash tells a pair's bucket and two numbers, and a number chosen for each bucket, its pilot, tells what place
//! these make, so that no two pairs share one. A look-up reads the pilot (32 KB for 100,000 pairs) and one entry (1 MB, three
//! quarters full), half of what two places for each pair need, in half the memory.

use super::{EMPTY, NONE, PairTable, SYMBOL, BITS, key};
use crate::error::{Error, Result};
use crate::hash::fold;
use crate::prefetch::prefetch;
use crate::vocab::MAX_SYMBOLS;
use std::hint::select_unpredictable;

/// Places for each bucket.
const SLOTS_A_BUCKET: usize = 4;

/// Pairs of symbols and what they become, for look-ups alone.
#[derive(Clone, Debug)]
pub struct PerfectPairs {
    grid: Box<[u32]>,
    slots: Box<[u64]>,
    pilots: Box<[u8]>,
    bucket_shift: u32,
}

/// A pair that has been asked for.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    key: u64,
    slot: usize,
}

fn hash(key: u64) -> u64 {
    fold(key ^ 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93)
}

#[inline(always)]
fn slot(hash: u64, pilot: u8, n_slots: usize) -> usize {
    (hash.wrapping_add(u64::from(pilot).wrapping_mul(hash >> 32)) as usize) & (n_slots - 1)
}

impl PerfectPairs {
    pub fn new(pairs: &PairTable) -> Result<Self> {
        let entries: Vec<u64> = pairs.slots.iter().copied().filter(|&entry| entry != EMPTY).collect();
        let mut n_slots = (entries.len() * 5 / 4).next_power_of_two().max(64);
        loop {
            if let Some(found) = Self::with_slots(&entries, n_slots, &pairs.grid) {
                return Ok(found);
            }
            n_slots *= 2;
            if n_slots > 64 * MAX_SYMBOLS {
                return Err(Error::Invalid("the merges cannot be put into a table".to_owned()));
            }
        }
    }

    fn with_slots(entries: &[u64], n_slots: usize, grid: &[u32]) -> Option<Self> {
        let n_buckets = n_slots / SLOTS_A_BUCKET;
        let bucket_shift = 64 - n_buckets.trailing_zeros();
        let mut starts = vec![0u32; n_buckets + 1];
        let hashes: Vec<u64> = entries.iter().map(|&entry| hash(entry >> BITS)).collect();
        for hash in &hashes {
            starts[(hash >> bucket_shift) as usize + 1] += 1;
        }
        let most = starts.iter().copied().max().unwrap_or(0) as usize;
        for bucket in 0..n_buckets {
            starts[bucket + 1] += starts[bucket];
        }
        let mut next = starts.clone();
        let mut ordered = vec![(0u64, 0u64); entries.len()];
        for (&hash, &entry) in hashes.iter().zip(entries) {
            let at = &mut next[(hash >> bucket_shift) as usize];
            ordered[*at as usize] = (hash, entry);
            *at += 1;
        }
        let mut of_size: Vec<Vec<u32>> = vec![Vec::new(); most + 1];
        for bucket in 0..n_buckets {
            of_size[(starts[bucket + 1] - starts[bucket]) as usize].push(bucket as u32);
        }
        let mut slots = vec![EMPTY; n_slots].into_boxed_slice();
        let mut pilots = vec![0u8; n_buckets].into_boxed_slice();
        let mut taken = vec![0u64; n_slots / 64];
        let mut places = Vec::with_capacity(most);
        for &bucket in of_size[1..].iter().rev().flatten() {
            let bucket = bucket as usize;
            let some = &ordered[starts[bucket] as usize..starts[bucket + 1] as usize];
            let fits = |pilot: &u8| {
                places.clear();
                for &(hash, _) in some {
                    let place = slot(hash, *pilot, n_slots);
                    if taken[place >> 6] >> (place & 63) & 1 != 0 || places.contains(&place) {
                        return false;
                    }
                    places.push(place);
                }
                true
            };
            pilots[bucket] = (0..=u8::MAX).find(fits)?;
            for (&place, &(_, entry)) in places.iter().zip(some) {
                taken[place >> 6] |= 1 << (place & 63);
                slots[place] = entry;
            }
        }
        Some(Self { grid: grid.into(), slots, pilots, bucket_shift })
    }

    /// The symbol that two bytes become, or [`NONE`].
    #[inline]
    #[must_use]
    pub fn get_bytes(&self, left: u8, right: u8) -> u32 {
        self.grid[usize::from(left) << 8 | usize::from(right)]
    }

    #[inline]
    #[must_use]
    pub fn ask(&self, left: u32, right: u32) -> Asked {
        let key = key(left, right);
        let hash = hash(key);
        let slot = slot(hash, self.pilots[(hash >> self.bucket_shift) as usize], self.slots.len());
        prefetch(&self.slots, slot);
        Asked { key, slot }
    }

    #[inline]
    #[must_use]
    pub fn answer(&self, asked: Asked) -> u32 {
        let entry = self.slots[asked.slot];
        select_unpredictable(entry >> BITS == asked.key, (entry & SYMBOL) as u32, NONE)
    }
}
