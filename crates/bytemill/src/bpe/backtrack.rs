//! Merging long pre-tokens in linear time: not by merges, but by tokens that can be adjacent.
//!
//! Two tokens that are adjacent in the symbols of some text are also adjacent in the symbols of their own bytes alone, and a
//! sequence of tokens in which every two neighbours can be adjacent is what merging makes of its bytes
//! (proof in docs/concepts/algorithms.md). So the symbols of every prefix are found from the left: append the longest token that
//! starts the rest and can follow the last one, else the next shorter one. If there is none, no symbol of the pre-token ends
//! here: go back and shorten the last one.

use super::backtrack_tables::{AdjacencyCache, DeadEnds};
use super::heap::check_length;
use super::live_merges::{can_be_adjacent, reachable_symbols};
use super::trie::Trie;
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::vocab::Vocab;
use crate::vocab::pair_table::{NONE, PairTable};

/// Tokens tried between two cancellation checks.
const TRIES_PER_CHECK: usize = 1 << 18;

/// Memory for one pre-token, whatever its length. What does not fit costs time and changes nothing.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Symbols kept when earlier ones are written out. Going back further restarts without writing out.
    pub n_kept: usize,
    /// Blocks of 64 offsets in the table of dead ends: 16 bytes each.
    pub n_blocks: usize,
    /// Entries of the adjacency cache, 8 bytes each.
    pub n_adjacent: usize,
}

/// 128 + 128 + 32 KB. An adjacency cache that exceeds the first-level cache is slower on text without repetitions.
const BUDGET: Budget = Budget { n_kept: 1 << 15, n_blocks: 1 << 13, n_adjacent: 1 << 12 };

#[derive(Clone, Copy)]
struct Symbol {
    /// The parts; unused for bytes.
    left: u32,
    right: u32,
    /// The longest other symbol that this one's bytes start with, or [`NONE`].
    shorter: u32,
    n_bytes: u32,
}

/// Tables of a vocabulary: 16 bytes a token and 12 a node of the trie (cl100k: 5 MB).
pub struct Backtracker {
    trie: Trie,
    symbols: Vec<Symbol>,
    pub(super) budget: Budget,
}

impl Backtracker {
    /// `None` if the vocabulary's ranks stand for no list of merges: then the order of the merges inside a token does not
    /// follow from the token.
    #[must_use]
    pub fn new(vocab: &Vocab) -> Option<Self> {
        if vocab.is_ranked() {
            return None;
        }
        // What its own bytes do not merge to, no text does.
        let reachable = reachable_symbols(vocab.merges(), vocab.pairs());
        let bytes = (0..256).map(|byte| Symbol { left: byte, right: byte, shorter: NONE, n_bytes: 1 });
        let merged = vocab.merges().iter().zip(256..).map(|(&(left, right), symbol)| {
            let n_bytes = vocab.symbol(symbol).len() as u32;
            Symbol { left, right, shorter: NONE, n_bytes }
        });
        let mut symbols: Vec<Symbol> = bytes.chain(merged).collect();
        let strings = (0..symbols.len() as u32).filter(|&symbol| reachable[symbol as usize]);
        let strings = strings.map(|symbol| (vocab.symbol(symbol), symbol)).collect();
        let trie = Trie::new(strings, |symbol, shorter| symbols[symbol as usize].shorter = shorter);
        Some(Self { trie, symbols, budget: BUDGET })
    }

    /// Appends `make(symbol)` for each symbol of a pre-token to `out`, with a fixed amount of memory beside it unless it has to
    /// go back very far. `scratch` is scratch space.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pre-token of 4 GiB, [`Error::Memory`], the error of `interrupt`.
    pub fn merge_into<T>(
        &self,
        pairs: &PairTable,
        pretoken: &[u8],
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        make: impl Fn(u32) -> T,
        interrupt: Interrupt,
    ) -> Result<()> {
        check_length(pretoken.len())?;
        let n_before = out.len();
        scratch.clear();
        let mut write = |symbols: &[u32]| append(symbols, out, &make);
        if !self.run(pairs, pretoken, scratch, self.budget.n_kept, &mut write, interrupt)? {
            // It went back beyond what was written.
            out.truncate(n_before);
            scratch.clear();
            self.run(pairs, pretoken, scratch, usize::MAX, &mut |_| Ok(()), interrupt)?;
        }
        append(scratch, out, make)
    }

    /// Appends the symbols to `symbols`; when there are more than twice `n_kept`, the first ones are removed and passed to
    /// `write`. Returns false if one that was written would have to be taken back.
    fn run(
        &self,
        pairs: &PairTable,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        n_kept: usize,
        write: &mut dyn FnMut(&[u32]) -> Result<()>,
        interrupt: Interrupt,
    ) -> Result<bool> {
        let max_symbols = n_kept.saturating_mul(2);
        let mut dead_ends = DeadEnds::new(pretoken.len(), self.budget.n_blocks);
        let mut adjacency = AdjacencyCache::new(pretoken.len(), self.budget.n_adjacent);
        let parts = |symbol: u32| (self.symbols[symbol as usize].left, self.symbols[symbol as usize].right);
        let mut n_tries = 0;
        let mut last = NONE;
        let mut start = 0;
        let mut candidate = self.trie.longest(pretoken);
        while start < pretoken.len() {
            n_tries += 1;
            if n_tries >= TRIES_PER_CHECK {
                n_tries = 0;
                interrupt()?;
            }
            let Symbol { n_bytes, shorter, .. } = self.symbols[candidate as usize];
            let end = start + n_bytes as usize;
            if !dead_ends.contains(end)
                && (last == NONE
                    || adjacency
                        .get_or_compute(last, candidate, || can_be_adjacent(parts, pairs, last, candidate, NONE)))
            {
                symbols.push(candidate);
                if symbols.len() >= max_symbols {
                    let n_written = symbols.len() - n_kept;
                    write(&symbols[..n_written])?;
                    symbols.drain(..n_written);
                }
                (start, last) = (end, candidate);
                candidate = self.trie.longest(&pretoken[start..]);
            } else if shorter != NONE {
                candidate = shorter;
            } else {
                // Its end is a dead end now, so the next try is with a shorter one.
                dead_ends.insert(start);
                candidate = last;
                symbols.pop();
                start -= self.symbols[candidate as usize].n_bytes as usize;
                last = match symbols.last() {
                    Some(&last) => last,
                    None if start == 0 => NONE,
                    None => return Ok(false),
                };
            }
        }
        Ok(true)
    }
}

/// Appends `make(symbol)` for each symbol to `out`.
pub(super) fn append<T>(symbols: &[u32], out: &mut Vec<T>, make: impl Fn(u32) -> T) -> Result<()> {
    out.try_reserve(symbols.len()).map_err(|_| Error::memory::<T>(out.len() + symbols.len()))?;
    out.extend(symbols.iter().map(|&symbol| make(symbol)));
    Ok(())
}
