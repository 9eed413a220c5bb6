//! Merging long pre-tokens in linear time: not by merges, but by tokens that can be adjacent.
//!
//! Two tokens that are adjacent in the symbols of some text are also adjacent in the symbols of their own bytes alone, and a
//! sequence of tokens in which every two neighbours can be adjacent is what merging makes of its bytes
//! (proof in docs/concepts/algorithms.md). So the symbols of every prefix are found from the left: append the longest token that
//! starts the rest and can follow the last one, else the next shorter one. If there is none, no symbol of the pre-token ends
//! here: go back and shorten the last one.

use super::heap::check_length;
use super::live_merges::{MergeTimes, can_be_adjacent, reachable_symbols};
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
    /// Set if merges come before those of their parts; then all symbols are reachable.
    times: Option<MergeTimes>,
    pub(super) budget: Budget,
}

impl Backtracker {
    /// `None` if the vocabulary's ranks stand for no list of merges: then the order of the merges inside a token does not
    /// follow from the token.
    pub fn new(vocab: &Vocab) -> Option<Self> {
        if vocab.is_ranked() {
            return None;
        }
        // What its own bytes do not merge to, no text does.
        let times = MergeTimes::new(vocab);
        let reachable = match times {
            None => reachable_symbols(vocab.merges(), vocab.pairs()),
            Some(_) => vec![true; vocab.symbol_ids().len()],
        };
        let bytes = (0..256).map(|byte| Symbol { left: byte, right: byte, shorter: NONE, n_bytes: 1 });
        let merged = vocab.merges().iter().zip(256..).map(|(&(left, right), symbol)| {
            let n_bytes = vocab.symbol(symbol).len() as u32;
            Symbol { left, right, shorter: NONE, n_bytes }
        });
        let mut symbols: Vec<Symbol> = bytes.chain(merged).collect();
        let strings = (0..symbols.len() as u32).filter(|&symbol| reachable[symbol as usize]);
        // Bytes may have no token.
        let bytes: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        let string =
            |symbol: u32| bytes.get(symbol as usize).map_or_else(|| vocab.symbol(symbol), std::slice::from_ref);
        let strings = strings.map(|symbol| (string(symbol), symbol)).collect();
        let trie = Trie::new(strings, |symbol, shorter| symbols[symbol as usize].shorter = shorter);
        Some(Self { trie, symbols, times, budget: BUDGET })
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
        let is_compatible = |left, right| match &self.times {
            None => can_be_adjacent(parts, pairs, left, right, NONE),
            Some(times) => times.can_be_adjacent(|left, right| pairs.get(left, right), left, right),
        };
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
                && (last == NONE || adjacency.get_or_compute(last, candidate, || is_compatible(last, candidate)))
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

// The two caches of backtracking, both of fixed size: offsets that lead nowhere, and which symbols can be adjacent.

/// Offsets known to end no symbol of the pre-token.
///
/// The table has a fixed size: blocks of offsets far apart overwrite each other, and backtracking finds a lost offset again.
pub(super) struct DeadEnds {
    /// Block numbers, and a bit for each of a block's 64 offsets.
    blocks: Vec<(usize, u64)>,
    max_blocks: usize,
    n_bytes: usize,
    /// The greatest offset inserted so far.
    furthest: usize,
}

impl DeadEnds {
    /// For a pre-token of `n_bytes`, with at most `max_blocks` blocks, a power of two. Allocates with the first dead end.
    pub(super) fn new(n_bytes: usize, max_blocks: usize) -> Self {
        Self { blocks: Vec::new(), max_blocks, n_bytes, furthest: 0 }
    }

    #[inline]
    pub(super) fn contains(&self, offset: usize) -> bool {
        if offset > self.furthest || self.blocks.is_empty() {
            return false;
        }
        let (block, offsets) = self.blocks[(offset / 64) & (self.blocks.len() - 1)];
        block == offset / 64 && offsets >> (offset % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, offset: usize) {
        if self.blocks.is_empty() {
            let n_blocks = (self.n_bytes / 64 + 1).next_power_of_two().min(self.max_blocks);
            self.blocks.resize(n_blocks, (usize::MAX, 0));
        }
        let mask = self.blocks.len() - 1;
        let block = &mut self.blocks[(offset / 64) & mask];
        if block.0 != offset / 64 {
            *block = (offset / 64, 0);
        }
        block.1 |= 1 << (offset % 64);
        self.furthest = self.furthest.max(offset);
    }
}

/// Direct-mapped cache: whether two symbols can be adjacent.
pub(super) struct AdjacencyCache {
    entries: Vec<u64>,
    shift: u32,
}

impl AdjacencyCache {
    /// Shorter pre-tokens have little repetition, and filling the table would cost more than it saves.
    const MIN_BYTES: usize = 1 << 10;

    /// `n_entries` is a power of two above 1.
    pub(super) fn new(n_bytes: usize, n_entries: usize) -> Self {
        let n_entries = if n_bytes < Self::MIN_BYTES.min(n_entries) { 0 } else { n_entries };
        // No entry has all bits set, since a symbol has 21.
        Self { entries: vec![u64::MAX; n_entries], shift: 64 - n_entries.trailing_zeros() % 64 }
    }

    #[inline]
    pub(super) fn get_or_compute(&mut self, left: u32, right: u32, compute: impl FnOnce() -> bool) -> bool {
        let key = u64::from(left) << 21 | u64::from(right);
        let index = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift.min(63);
        let Some(entry) = self.entries.get_mut(index as usize) else { return compute() };
        if *entry >> 1 != key {
            *entry = key << 1 | u64::from(compute());
        }
        *entry & 1 == 1
    }
}

// The longest token that a text starts with, by a trie in a double array.

const ROOT: u32 = 0;
/// The parent of a free slot.
const FREE: u32 = u32::MAX;
/// Free slots tried for the children of one node before new ones are appended.
const MAX_TRIES: usize = 32;

#[derive(Clone, Copy)]
struct Node {
    /// The child for byte b is at index `children + b` if that slot names this node as its parent.
    children: u32,
    parent: u32,
}

/// A trie of byte strings. A step is one addition, one load and one comparison.
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// For each node, the value of the longest string that is a prefix of its path.
    longest: Vec<u32>,
}

impl Trie {
    /// A trie of different strings with values; every single byte must be among the strings. `prefix` is called for each string
    /// with its value and that of the longest other string that is a prefix of it.
    pub(super) fn new(mut strings: Vec<(&[u8], u32)>, mut prefix: impl FnMut(u32, u32)) -> Self {
        strings.sort_unstable();
        let mut slots = Slots { nodes: vec![Node { children: 0, parent: FREE }], first: ROOT as usize + 1 };
        let mut longest = vec![u32::MAX];
        // Nodes whose children are not placed yet: the strings below each, the length of their common prefix, the node, and the
        // value of the longest string so far.
        let mut waiting = vec![(0..strings.len(), 0, ROOT, u32::MAX)];
        let mut children: Vec<(u8, usize)> = Vec::with_capacity(256);
        while let Some((mut below, depth, node, mut value)) = waiting.pop() {
            let (string, own) = strings[below.start];
            if string.len() == depth {
                prefix(own, value);
                value = own;
                below.start += 1;
            }
            longest[node as usize] = value;
            if below.is_empty() {
                continue;
            }
            children.clear();
            let mut at = below.start;
            while at < below.end {
                let byte = strings[at].0[depth];
                children.push((byte, at));
                at += strings[at..below.end].partition_point(|(string, _)| string[depth] == byte);
            }
            let base = slots.take(&children, node);
            longest.resize(slots.nodes.len(), u32::MAX);
            let ends = children.iter().skip(1).map(|&(_, start)| start).chain([below.end]);
            for (&(byte, start), end) in children.iter().zip(ends) {
                waiting.push((start..end, depth + 1, base + u32::from(byte), value));
            }
        }
        let mut nodes = slots.nodes;
        // More slots at the end, so that no byte leads outside.
        nodes.resize(nodes.len() + 256, Node { children: 0, parent: FREE });
        Self { nodes, longest }
    }

    /// The value of the longest string that `text` starts with; unspecified for an empty text.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> u32 {
        let mut at = ROOT;
        let mut children = self.nodes[0].children;
        for &byte in text {
            let next = children + u32::from(byte);
            let node = self.nodes[next as usize];
            if node.parent != at {
                break;
            }
            (at, children) = (next, node.children);
        }
        self.longest[at as usize]
    }
}

/// The array while it is filled.
struct Slots {
    nodes: Vec<Node>,
    /// Slots before this one are taken, or not worth another try.
    first: usize,
}

impl Slots {
    /// Slots the children of a node where all their slots are free; returns the index for byte 0.
    fn take(&mut self, children: &[(u8, usize)], node: u32) -> u32 {
        let slot_of = |base: usize, byte: u8| base + usize::from(byte);
        let first_byte = usize::from(children[0].0);
        let is_free = |slot: usize| self.nodes.get(slot).is_none_or(|node| slot > 0 && node.parent == FREE);
        let mut free = (self.first..self.nodes.len()).filter(|&slot| is_free(slot)).peekable();
        self.first = free.peek().copied().unwrap_or(self.nodes.len());
        let mut bases = free.take(MAX_TRIES).filter_map(|slot| slot.checked_sub(first_byte));
        let found = bases.find(|&base| children.iter().all(|&(byte, _)| is_free(slot_of(base, byte))));
        let base = found.unwrap_or_else(|| {
            self.first += 1;
            self.nodes.len().max(first_byte) - first_byte
        });
        for &(byte, _) in children {
            let slot = slot_of(base, byte);
            if slot >= self.nodes.len() {
                self.nodes.resize(slot + 1, Node { children: 0, parent: FREE });
            }
            self.nodes[slot].parent = node;
        }
        self.nodes[node as usize].children = base as u32;
        base as u32
    }
}
