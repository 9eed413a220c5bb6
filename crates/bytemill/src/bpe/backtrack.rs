//! Merging long pre-tokens in linear time: not by merges, but by tokens that may stand side by side.
//!
//! Two tokens that stand side by side in the symbols of some text do so in those of their own bytes alone, and a row of
//! tokens of which each two neighbours do so is what merging makes of its bytes (docs/algorithms.md has the proof). So the symbols of every
//! prefix are found from the left: append the longest token that starts the rest and may stand beside the last one, else
//! the next shorter; where there is none, no symbol of the pre-token ends here, so go back and shorten the last one.
//!
//! In which order tokens are tried changes nothing but the time. So what stood in the same place before is tried first.

use super::memo::{DeadEnds, Followers, GUESSED, Memo};
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
    /// Answers that the memo of what follows holds: 24 bytes each.
    pub n_followers: usize,
}

/// 128 + 128 + 32 + 24 KB. A memo that leaves the first-level cache is slower on text without repetitions.
const ROOM: Room = Room { kept: 1 << 15, n_blocks: 1 << 13, n_answers: 1 << 12, n_followers: 1 << 10 };

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
        symbols[first..].iter_mut().for_each(|symbol| *symbol &= !GUESSED);
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
        let mut hand_on = |symbols: &[u32]| out.extend(symbols.iter().map(|&symbol| make(symbol & !GUESSED)));
        if !self.run(pairs, pretoken, scratch, room, &mut hand_on, pulse)? {
            // Back beyond what was handed on.
            out.truncate(start);
            scratch.clear();
            self.run(pairs, pretoken, scratch, Room { kept: usize::MAX, ..room }, |_| {}, pulse)?;
        }
        out.extend(scratch.iter().map(|&symbol| make(symbol & !GUESSED)));
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
        let mut followers = Followers::new(pretoken.len(), room.n_followers);
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
                let are_asked = followers.are_asked();
                if are_asked {
                    self.keep(&mut followers, pretoken, at, &symbols[first..]);
                }
                if last == candidate && !(are_asked && end - at <= Followers::MOST_BYTES) {
                    // In a run of equal tokens each may stand beside the next.
                    let token = &pretoken[at..end];
                    while n_tries < TRIES_A_PULSE
                        && pretoken[end..].starts_with(token)
                        && !dead_ends.has(end + token.len())
                    {
                        n_tries += 1;
                        symbols.push(candidate | GUESSED);
                        end += token.len();
                    }
                }
                at = end;
                last = candidate;
                if are_asked {
                    let n_before = symbols.len();
                    (at, last) = followers.follow(pretoken, at, last, &dead_ends, symbols);
                    n_tries += symbols.len() - n_before;
                }
                if symbols.len() - first >= most {
                    let kept_from = symbols.len() - room.kept;
                    hand_on(&symbols[first..kept_from]);
                    symbols.drain(first..kept_from);
                }
                candidate = self.trie.longest(&pretoken[at..]);
            } else if shorter != NONE {
                candidate = shorter;
            } else {
                dead_ends.add(at);
                // Its end is a dead end now, so the next try is with a shorter one. But where it was a guess, longer ones have
                // not been tried.
                candidate = last;
                let is_guessed = symbols.pop().is_some_and(|symbol| symbol & GUESSED != 0);
                at -= self.symbols[candidate as usize].n_bytes as usize;
                last = match &symbols[first..] {
                    [.., last] => *last & !GUESSED,
                    [] if at == 0 => NONE,
                    [] => return Ok(false),
                };
                if is_guessed {
                    candidate = self.trie.longest(&pretoken[at..]);
                }
            }
        }
        Ok(true)
    }

    /// Keeps that the last of these symbols stands at `at` behind those before it.
    #[inline(never)]
    fn keep(&self, followers: &mut Followers, pretoken: &[u8], at: usize, symbols: &[u32]) {
        if let &[.., last, next] = symbols {
            let before = symbols.len().checked_sub(3).map(|place| symbols[place] & !GUESSED);
            let [last, next] = [last, next].map(|symbol| symbol & !GUESSED);
            let n_bytes = |symbol: u32| self.symbols[symbol as usize].n_bytes as usize;
            followers.put(pretoken, at, before, (last, n_bytes(last)), (next, n_bytes(next)));
        }
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
