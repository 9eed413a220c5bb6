//! What backtracking remembers on its way through a pre-token, in tables of fixed size.

use crate::pairs::NONE;
use std::ops::RangeInclusive;

/// Set in a symbol that was put before longer ones were tried; symbols have 21 bits.
pub(super) const GUESSED: u32 = 1 << 31;

/// Places at which no symbol of the pre-token ends, as far as they are known.
///
/// What is forgotten is found out again, so this is a table of fixed size, in which the places of far away blocks
/// take each other's room.
pub(super) struct DeadEnds<'t> {
    /// Numbers of blocks of 64 places, and their places.
    blocks: &'t mut [(usize, u64)],
    /// The furthest there ever was: behind it there is none.
    furthest: usize,
}

impl<'t> DeadEnds<'t> {
    pub(super) const NONE: (usize, u64) = (usize::MAX, 0);

    /// For a pre-token of so many bytes, at most `most` blocks, a power of two. Those that `few` has room for cost no
    /// allocation.
    pub(super) fn new(
        n_bytes: usize,
        most: usize,
        few: &'t mut [(usize, u64); 4],
        many: &'t mut Vec<(usize, u64)>,
    ) -> Self {
        let n_blocks = (n_bytes / 64 + 1).next_power_of_two().min(most);
        if n_blocks <= few.len() {
            return Self { blocks: &mut few[..n_blocks], furthest: 0 };
        }
        many.resize(n_blocks, Self::NONE);
        Self { blocks: many, furthest: 0 }
    }

    #[inline]
    pub(super) fn has(&self, place: usize) -> bool {
        if place > self.furthest {
            return false;
        }
        let (block, places) = self.blocks[(place / 64) & (self.blocks.len() - 1)];
        block == place / 64 && places >> (place % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, place: usize) {
        let mask = self.blocks.len() - 1;
        let block = &mut self.blocks[(place / 64) & mask];
        if block.0 != place / 64 {
            *block = (place / 64, 0);
        }
        block.1 |= 1 << (place % 64);
        self.furthest = self.furthest.max(place);
    }
}

/// Whether pairs stay apart, as far as it was asked before: a table in which the last that came to a place stays.
pub(super) struct Memo {
    entries: Vec<u64>,
    shift: u32,
}

impl Memo {
    /// Below this many bytes there is little repetition, and filling the table would cost more than it saves.
    const WORTHWHILE: usize = 1 << 10;

    /// `n_entries` is a power of two above 1.
    pub(super) fn new(n_bytes: usize, n_entries: usize) -> Self {
        let n_entries = if n_bytes < Self::WORTHWHILE.min(n_entries) { 0 } else { n_entries };
        // No entry has all bits set, since a symbol has 21.
        Self { entries: vec![u64::MAX; n_entries], shift: 64 - n_entries.trailing_zeros() % 64 }
    }

    #[inline]
    pub(super) fn get(&mut self, left: u32, right: u32, answer: impl FnOnce() -> bool) -> bool {
        let key = u64::from(left) << 21 | u64::from(right);
        let place = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift.min(63);
        let Some(entry) = self.entries.get_mut(place as usize) else { return answer() };
        if *entry >> 1 != key {
            *entry = key << 1 | u64::from(answer());
        }
        *entry & 1 == 1
    }
}

/// Which tokens stood behind another before the same bytes: a table in which the last that came to a place stays.
///
/// An entry is found by sixteen bytes of text, and is true of its tokens and eight bytes: these start with them, and each may stand
/// beside the one before. That they will stand there is a guess. In text that repeats itself nearly all guesses are right, and two
/// tokens take no more than two loads and a multiplication, one after the other.
pub(super) struct Followers {
    entries: Vec<Follower>,
    shift: u32,
    /// Guesses made, less those not to be had, from 0 to [`Followers::MOST_CREDIT`].
    credit: usize,
    /// Tokens that go without, since the credit was used up; and how many will the next time.
    n_to_skip: usize,
    next_skip: usize,
}

#[derive(Clone, Copy)]
struct Follower {
    bytes: [u8; Followers::MOST_BYTES],
    last: u32,
    /// One token or two; where it is one, it is there twice.
    next: [u32; 2],
    n_tokens: u8,
    /// Of the first, and of all of them.
    n_bytes: [u8; 2],
}

impl Followers {
    /// No symbol is the last one here.
    const NO_FOLLOWER: Follower =
        Follower { bytes: [0; Self::MOST_BYTES], last: NONE - 1, next: [0; 2], n_tokens: 0, n_bytes: [0; 2] };
    /// Tokens that are put in one call, or one more.
    const MOST_AT_ONCE: usize = 1 << 12;
    /// Tokens of more bytes are not guessed.
    pub(super) const MOST_BYTES: usize = 8;
    const MOST_CREDIT: usize = 64;
    /// Where fewer than half of the guesses are to be had, they cost more than they save. Then so many tokens go without, and twice as
    /// many each time again.
    const N_TO_SKIP: RangeInclusive<usize> = 1 << 10..=1 << 16;

    /// `n_entries` is a power of two above 1.
    pub(super) fn new(n_bytes: usize, n_entries: usize) -> Self {
        let n_entries = if n_bytes < Memo::WORTHWHILE.min(n_entries) { 0 } else { n_entries };
        Self {
            entries: vec![Self::NO_FOLLOWER; n_entries],
            shift: 64 - n_entries.trailing_zeros() % 64,
            credit: Self::MOST_CREDIT,
            n_to_skip: if n_entries == 0 { usize::MAX } else { 0 },
            next_skip: *Self::N_TO_SKIP.start(),
        }
    }

    /// Whether to keep and follow now; to be asked once a token.
    #[inline]
    pub(super) fn are_asked(&mut self) -> bool {
        if self.n_to_skip == 0 {
            return true;
        }
        self.n_to_skip -= 1;
        false
    }

    #[inline]
    fn place(&self, last: u32, sixteen: [u8; 16]) -> usize {
        let bits = u128::from_le_bytes(sixteen);
        let first = (bits as u64 ^ u64::from(last).rotate_right(21)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let second = ((bits >> 64) as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        ((first ^ second) >> self.shift.min(63)) as usize
    }

    /// Appends guesses to `symbols`, from `at` on behind `last`, as far as there are some. Gives the place and the last symbol behind
    /// them.
    #[inline(never)]
    pub(super) fn follow(
        &mut self,
        pretoken: &[u8],
        mut at: usize,
        mut last: u32,
        dead_ends: &DeadEnds,
        symbols: &mut Vec<u32>,
    ) -> (usize, u32) {
        let n_before = symbols.len();
        while symbols.len() - n_before < Self::MOST_AT_ONCE
            && let Some(&sixteen) = pretoken[at..].first_chunk::<16>()
        {
            let Follower { bytes, last: before, next, n_tokens, n_bytes } = self.entries[self.place(last, sixteen)];
            let [n_bytes, n_all] = n_bytes.map(usize::from);
            if bytes != sixteen[..Self::MOST_BYTES]
                || before != last
                || dead_ends.has(at + n_bytes)
                || dead_ends.has(at + n_all)
            {
                break;
            }
            symbols.extend_from_slice(&next.map(|symbol| symbol | GUESSED));
            symbols.truncate(symbols.len() - 2 + usize::from(n_tokens));
            (at, last) = (at + n_all, next[1]);
        }
        self.credit += symbols.len() - n_before;
        if self.credit > Self::MOST_CREDIT {
            self.credit = Self::MOST_CREDIT;
            self.next_skip = *Self::N_TO_SKIP.start();
        }
        if self.credit == 0 {
            (self.credit, self.n_to_skip) = (Self::MOST_CREDIT, self.next_skip);
            self.next_skip = (2 * self.next_skip).min(*Self::N_TO_SKIP.end());
        } else {
            self.credit -= 1;
        }
        (at, last)
    }

    /// Keeps that `next` stood at `at` behind `last`, and `last` and `next` behind `before`. Tokens are given with the numbers of their
    /// bytes.
    #[inline]
    pub(super) fn put(
        &mut self,
        pretoken: &[u8],
        at: usize,
        before: Option<u32>,
        last: (u32, usize),
        next: (u32, usize),
    ) {
        if let Some((bytes, entry)) = self.entry(pretoken, at, last.0)
            && next.1 <= Self::MOST_BYTES
            && (entry.bytes, entry.last, entry.next[0]) != (bytes, last.0, next.0)
        {
            *entry = Follower { bytes, last: last.0, next: [next.0; 2], n_tokens: 1, n_bytes: [next.1 as u8; 2] };
        }
        if let Some(before) = before
            && let Some((bytes, entry)) = self.entry(pretoken, at - last.1, before)
            && last.1 + next.1 <= Self::MOST_BYTES
            && (entry.bytes, entry.last, entry.next[0]) == (bytes, before, last.0)
        {
            (entry.next[1], entry.n_tokens, entry.n_bytes[1]) = (next.0, 2, (last.1 + next.1) as u8);
        }
    }

    /// The entry for what comes at `at` behind `last`, and the bytes there that it must have.
    #[inline]
    fn entry(&mut self, pretoken: &[u8], at: usize, last: u32) -> Option<([u8; Self::MOST_BYTES], &mut Follower)> {
        let sixteen = pretoken[at..].first_chunk::<16>()?;
        let place = self.place(last, *sixteen);
        Some((*sixteen.first_chunk()?, self.entries.get_mut(place)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// One symbol for each string of up to three bytes.
    fn symbol(bytes: &[u8]) -> u32 {
        bytes.iter().fold(0, |symbol, &byte| symbol << 7 | u32::from(byte))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Rows of tokens over one text, of which each is kept as it is gone through: a guess is a token that stands there, and stood
        /// behind the one before it in some row.
        #[test]
        fn guesses_are_of_the_text_and_of_neighbours_that_were_kept(
            units in prop::collection::vec((prop::collection::vec(97u8..99, 1..4), 1usize..30), 4..10),
            rows in prop::collection::vec(prop::collection::vec(1usize..4, 120), 1..4),
            n_entries in prop::sample::select(vec![2, 8, 32]),
            dead in prop::collection::hash_set(0usize..200, 0..8),
        ) {
            let text: Vec<u8> = units.iter().flat_map(|(unit, n)| unit.repeat(*n)).collect();
            // Never so short that it has no table.
            let mut followers = Followers::new(usize::MAX, n_entries);
            let mut neighbours = HashSet::new();
            for row in rows {
                let mut places = vec![];
                let mut at = 0;
                for n_bytes in row {
                    if at + n_bytes > text.len() {
                        break;
                    }
                    places.push((symbol(&text[at..at + n_bytes]), n_bytes));
                    if let &[.., last, next] = &places[..] {
                        neighbours.insert((last.0, next.0));
                        let before = places.len().checked_sub(3).map(|place| places[place].0);
                        followers.put(&text, at, before, last, next);
                    }
                    at += n_bytes;
                }
            }
            let (mut few, mut many) = ([DeadEnds::NONE; 4], vec![]);
            let mut dead_ends = DeadEnds::new(text.len(), 8, &mut few, &mut many);
            dead.into_iter().for_each(|place| dead_ends.add(place));
            for start in 1..text.len() {
                for n_bytes in 1..=start.min(3) {
                    let mut last = symbol(&text[start - n_bytes..start]);
                    let mut at = start;
                    let mut symbols = vec![];
                    followers.n_to_skip = 0;
                    let (end, behind) = followers.follow(&text, start, last, &dead_ends, &mut symbols);
                    for next in symbols.into_iter().map(|symbol| symbol & !GUESSED) {
                        prop_assert!(neighbours.contains(&(last, next)));
                        let rest = &text[at..];
                        let n_bytes = (1..4).find(|&n| rest.get(..n).is_some_and(|bytes| symbol(bytes) == next));
                        prop_assert!(n_bytes.is_some());
                        at += n_bytes.unwrap_or_default();
                        last = next;
                        prop_assert!(!dead_ends.has(at));
                    }
                    prop_assert_eq!((at, last), (end, behind));
                }
            }
        }
    }
}
