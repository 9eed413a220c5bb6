//! Merging long pre-tokens in linear time: not by merges, but by tokens that may stand side by side.
//!
//! Two tokens that stand side by side in the symbols of some text do so in those of their own bytes alone, and a row of
//! tokens of which each two neighbours do so is what merging makes of its bytes (docs/algorithms.md has the proof). So the symbols of every
//! prefix are found from the left: append the longest token that starts the rest and may stand beside the last one, else
//! the next shorter; where there is none, no symbol of the pre-token ends here, so go back and shorten the last one.

use super::trie::Trie;
use crate::error::Result;
use crate::pairs::{NONE, PairTable};
use crate::pulse::Pulse;
use crate::vocab::Vocab;

/// Tokens tried between two questions to the caller whether to go on.
const TRIES_A_PULSE: usize = 1 << 18;

/// How much one pre-token may take, whatever its length. What does not fit costs time and changes nothing.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Symbols that are kept when those before them are handed on: going back further starts anew without handing on.
    pub kept: usize,
    /// Blocks of 64 places in the table of dead ends: 16 bytes each.
    pub n_blocks: usize,
    /// Answers that the memo of pairs holds: 8 bytes each.
    pub n_answers: usize,
}

/// 128 + 128 + 32 KB. A memo that leaves the first-level cache is slower on text without repetitions.
const ROOM: Room = Room { kept: 1 << 15, n_blocks: 1 << 13, n_answers: 1 << 12 };

/// Set in a symbol that was put as one of a run; symbols have 21 bits.
const IN_RUN: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Symbol {
    /// The parts; a byte's are itself.
    left: u32,
    right: u32,
    /// The longest symbol that this one's bytes start with, but for itself.
    shorter: u32,
    n_bytes: u32,
}

/// What is known of a vocabulary beforehand: 16 bytes a token and 12 a node of the trie (cl100k: 5 MB).
pub struct Backtracker {
    trie: Trie,
    symbols: Vec<Symbol>,
}

impl Backtracker {
    /// `pairs` are those of `vocab`. `None` where ranks stand for no list of merges, since there the order of the merges
    /// in a token does not follow from the token.
    #[must_use]
    pub fn new(vocab: &Vocab, pairs: &PairTable) -> Option<Self> {
        if !vocab.other_splits().is_empty() {
            return None;
        }
        let bytes = (0..256).map(|byte| Symbol { left: byte, right: byte, shorter: NONE, n_bytes: 1 });
        let mut symbols: Vec<Symbol> = bytes.collect();
        let mut strings: Vec<(&[u8], u32)> = (0..256).map(|byte| (vocab.symbol(byte), byte)).collect();
        let mut reached = vec![true; 256];
        for (&(left, right), symbol) in vocab.merges().iter().zip(256..) {
            let string = vocab.symbol(symbol);
            symbols.push(Symbol { left, right, shorter: NONE, n_bytes: string.len() as u32 });
            // What its own bytes do not lead to, no text does.
            let is_reached =
                reached[left as usize] && reached[right as usize] && stay_apart(&symbols, pairs, left, right, symbol);
            reached.push(is_reached);
            if is_reached {
                strings.push((string, symbol));
            }
        }
        let trie = Trie::new(strings, |symbol, shorter| symbols[symbol as usize].shorter = shorter);
        Some(Self { trie, symbols })
    }

    /// Appends the symbols of a pre-token to `symbols`.
    ///
    /// # Errors
    /// What `pulse` gives.
    pub fn merge(&self, pairs: &PairTable, pretoken: &[u8], symbols: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
        let first = symbols.len();
        self.run(pairs, pretoken, symbols, Room { kept: usize::MAX, ..ROOM }, |_| {}, pulse)?;
        symbols[first..].iter_mut().for_each(|symbol| *symbol &= !IN_RUN);
        Ok(())
    }

    /// Appends what `make` makes of the symbols of a pre-token to `out`, with a fixed amount of memory beside it. What was in
    /// `scratch` is lost.
    ///
    /// # Errors
    /// What `pulse` gives.
    pub fn merge_into<T>(
        &self,
        pairs: &PairTable,
        pretoken: &[u8],
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        make: impl Fn(u32) -> T,
        pulse: Pulse,
    ) -> Result<()> {
        self.merge_within(ROOM, pairs, pretoken, scratch, out, make, pulse)
    }

    #[expect(clippy::too_many_arguments, reason = "one more than `merge_into`, for tests")]
    pub(super) fn merge_within<T>(
        &self,
        room: Room,
        pairs: &PairTable,
        pretoken: &[u8],
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        make: impl Fn(u32) -> T,
        pulse: Pulse,
    ) -> Result<()> {
        let start = out.len();
        scratch.clear();
        let mut hand_on = |symbols: &[u32]| out.extend(symbols.iter().map(|&symbol| make(symbol & !IN_RUN)));
        if !self.run(pairs, pretoken, scratch, room, &mut hand_on, pulse)? {
            // Back beyond what was handed on.
            out.truncate(start);
            scratch.clear();
            self.run(pairs, pretoken, scratch, Room { kept: usize::MAX, ..room }, |_| {}, pulse)?;
        }
        out.extend(scratch.iter().map(|&symbol| make(symbol & !IN_RUN)));
        Ok(())
    }

    /// Appends the symbols to `symbols`, from which the first are taken and handed on when there are more than twice
    /// `kept`. False if one that was handed on would have to be taken back.
    fn run(
        &self,
        pairs: &PairTable,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        room: Room,
        mut hand_on: impl FnMut(&[u32]),
        pulse: Pulse,
    ) -> Result<bool> {
        let first = symbols.len();
        let most = room.kept.saturating_mul(2);
        let mut few = [DeadEnds::NONE; 4];
        let mut many = Vec::new();
        let mut dead_ends = DeadEnds::new(pretoken.len(), room.n_blocks, &mut few, &mut many);
        let mut memo = Memo::new(pretoken.len(), room.n_answers);
        let mut n_tries = 0;
        let mut last = NONE;
        let mut at = 0;
        let mut candidate = self.trie.longest(pretoken);
        while at < pretoken.len() {
            n_tries += 1;
            if n_tries >= TRIES_A_PULSE {
                n_tries = 0;
                pulse()?;
            }
            let Symbol { n_bytes, shorter, .. } = self.symbols[candidate as usize];
            let mut end = at + n_bytes as usize;
            if !dead_ends.has(end)
                && (last == NONE
                    || memo.get(last, candidate, || stay_apart(&self.symbols, pairs, last, candidate, NONE)))
            {
                symbols.push(candidate);
                if last == candidate {
                    // In a run of equal tokens each may stand beside the next.
                    let token = &pretoken[at..end];
                    while n_tries < TRIES_A_PULSE
                        && pretoken[end..].starts_with(token)
                        && !dead_ends.has(end + token.len())
                    {
                        n_tries += 1;
                        symbols.push(candidate | IN_RUN);
                        end += token.len();
                    }
                }
                if symbols.len() - first >= most {
                    let kept_from = symbols.len() - room.kept;
                    hand_on(&symbols[first..kept_from]);
                    symbols.drain(first..kept_from);
                }
                at = end;
                last = candidate;
                candidate = self.trie.longest(&pretoken[at..]);
            } else if shorter != NONE {
                candidate = shorter;
            } else {
                dead_ends.add(at);
                // Its end is a dead end now, so the next try is with a shorter one. But where it was put as one of a run,
                // longer ones have not been tried.
                candidate = last;
                let in_run = symbols.pop().is_some_and(|symbol| symbol & IN_RUN != 0);
                at -= self.symbols[candidate as usize].n_bytes as usize;
                last = match &symbols[first..] {
                    [.., last] => *last & !IN_RUN,
                    [] if at == 0 => NONE,
                    [] => return Ok(false),
                };
                if in_run {
                    candidate = self.trie.longest(&pretoken[at..]);
                }
            }
        }
        Ok(true)
    }
}

/// True if two tokens that stand side by side are not joined, nor any of their parts across the border, while merges
/// below `limit` are done.
///
/// Goes backwards through the symbols that stand at the border: the one of higher rank is the one made last. The
/// left part of a symbol is merged before a pair of the same rank to the right of it, and after one to the left.
#[inline]
fn stay_apart(symbols: &[Symbol], pairs: &PairTable, mut left: u32, mut right: u32, mut limit: u32) -> bool {
    loop {
        if pairs.get(left, right) < limit {
            return false;
        }
        if left > right && left >= 256 {
            limit = left;
            left = symbols[left as usize].right;
        } else if right >= 256 {
            limit = right + 1;
            right = symbols[right as usize].left;
        } else {
            return true;
        }
    }
}

/// Places at which no symbol of the pre-token ends, as far as they are known.
///
/// What is forgotten is found out again, so this is a table of fixed size, in which the places of far away blocks
/// take each other's room.
struct DeadEnds<'t> {
    /// Numbers of blocks of 64 places, and their places.
    blocks: &'t mut [(usize, u64)],
}

impl<'t> DeadEnds<'t> {
    const NONE: (usize, u64) = (usize::MAX, 0);

    /// For a pre-token of so many bytes, at most `most` blocks, a power of two. Those that `few` has room for cost no
    /// allocation.
    fn new(n_bytes: usize, most: usize, few: &'t mut [(usize, u64); 4], many: &'t mut Vec<(usize, u64)>) -> Self {
        let n_blocks = (n_bytes / 64 + 1).next_power_of_two().min(most);
        if n_blocks <= few.len() {
            return Self { blocks: &mut few[..n_blocks] };
        }
        many.resize(n_blocks, Self::NONE);
        Self { blocks: many }
    }

    #[inline]
    fn has(&self, place: usize) -> bool {
        let (block, places) = self.blocks[(place / 64) & (self.blocks.len() - 1)];
        block == place / 64 && places >> (place % 64) & 1 == 1
    }

    fn add(&mut self, place: usize) {
        let mask = self.blocks.len() - 1;
        let block = &mut self.blocks[(place / 64) & mask];
        if block.0 != place / 64 {
            *block = (place / 64, 0);
        }
        block.1 |= 1 << (place % 64);
    }
}

/// Whether pairs stay apart, as far as it was asked before: a table in which the last that came to a place stays.
struct Memo {
    entries: Vec<u64>,
    shift: u32,
}

impl Memo {
    /// Below this many bytes there is little repetition, and filling the table would cost more than it saves.
    const WORTHWHILE: usize = 1 << 10;

    /// `n_entries` is a power of two above 1.
    fn new(n_bytes: usize, n_entries: usize) -> Self {
        let n_entries = if n_bytes < Self::WORTHWHILE.min(n_entries) { 0 } else { n_entries };
        // No entry has all bits set, since a symbol has 21.
        Self { entries: vec![u64::MAX; n_entries], shift: 64 - n_entries.trailing_zeros() % 64 }
    }

    #[inline]
    fn get(&mut self, left: u32, right: u32, answer: impl FnOnce() -> bool) -> bool {
        let key = u64::from(left) << 21 | u64::from(right);
        let place = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift.min(63);
        let Some(entry) = self.entries.get_mut(place as usize) else { return answer() };
        if *entry >> 1 != key {
            *entry = key << 1 | u64::from(answer());
        }
        *entry & 1 == 1
    }
}
