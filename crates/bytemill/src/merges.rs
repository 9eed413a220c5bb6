//! Learning merges from counted pre-tokens.
//!
//! # The words
//!
//! All unique pre-tokens lie in one array of slots, a slot a byte, with a separator before each. A token takes the
//! slots of its parts: the first holds its symbol, the last (where it has more than one) its symbol with a flag, those
//! between hold a filler. So the next token is found by the width of this one, the previous one by the slot before,
//! and a merge writes three slots: no links, and nothing moves.
//!
//! Whenever pairs are counted afresh (below), every token gets one slot, and words that have become one token are
//! dropped. All symbols there are then have a width of one, and those made later the width of their parts. So passes
//! go through the slots one by one, and the words shrink: 63 MB of slots for 100 MB of multilingual text are 17 MB when
//! pairs are counted for the fourth time.
//!
//! # The occurrences
//!
//! Joining a and b to c touches, for each occurrence `x a b y`, the pairs (x, a) and (b, y), which lose it, and (x, c)
//! and (c, y), which gain it. c is new, so *all* occurrences of a pair with c arise here or, for (c, y), vanish here:
//! the count of a pair is complete when it first appears and only falls afterwards. From this follow
//!
//! - the queue need not be corrected when a count falls: an entry that says too much is put back when it comes up;
//! - a pair below a threshold can be forgotten altogether, as long as the threshold is: when no pair at or above it is
//!   left, it is lowered and the pairs are counted afresh. All but a few thousand pairs are never kept this way;
//! - changes of a merge are added up by neighbour, in an array, and reach the table of pairs once for each neighbour.
//!
//! Counting afresh is divided among threads by ranges of words. Counts are sums, and a pair's places are put together in
//! the order of the ranges, so neither merges nor places depend on how many there are.
//!
//! Occurrences are visited in the order of their places, so `a a a` becomes `c a` and never `a c`, and a list may name
//! places that have changed since: a glance at the slots tells.

mod budget;
mod groups;
mod learner;
mod pair_map;
mod parts;
mod queue;
mod scarce;
mod sieve;
mod slot;
mod symbols;
mod track;
mod words;

use crate::count::Counts;
use crate::error::Result;
use budget::Budget;
use learner::Learner;
use words::{Sizes, Words, n_groups};

/// Which of two equally frequent pairs is merged first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// The lexicographically greatest pair of byte strings.
    Bytes,
    /// The pair of the smallest ids, as Hugging Face's trainer numbers tokens: the bytes by the code point of their
    /// GPT-2 character, then the merges in order.
    HuggingFace,
}

/// A merge that was learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Symbol of the left part: a byte, or 256 + the number of an earlier merge.
    pub left: u32,
    /// Symbol of the right part.
    pub right: u32,
    /// How often the pair stood in the corpus when it was merged.
    pub count: u64,
}

/// Words and their counts from anywhere, such as a file too large for memory.
pub trait WordSource {
    /// Calls `each` with every word and its count, in any order; its errors end the visit and are handed on.
    ///
    /// Called twice, and must give the same words both times. A word may come several times: its counts add up. Words that
    /// are empty or have a count of zero are passed over.
    ///
    /// # Errors
    /// What `each` gives, and what reading gives.
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>;
}

/// Learns up to `n_merges` merges; fewer where no pair is left that occurs `min_count` times.
///
/// The result does not depend on `n_threads`. `pulse` is asked with the number of merges so far.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) where the unique pre-tokens are 4 GiB or more together; what `pulse` gives.
pub fn learn(
    counts: &Counts,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    pulse: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let words = Words::new(counts, n_threads, &|| pulse(0))?;
    let budget = Budget::new(None, 0, n_slots(counts), n_merges)?;
    learn_in(words, n_merges, ties, min_count, n_threads, budget, pulse)
}

/// As [`learn`], with the same result, in at most `max_bytes` of memory.
///
/// `counts` are part of these, and are freed as soon as they are not needed.
///
/// # Errors
/// As [`learn`]; [`Error::Invalid`](crate::Error::Invalid) before the work is begun where `max_bytes` are too few: it says
/// how many would do.
pub fn learn_within(
    counts: Counts,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    max_bytes: Option<u64>,
    pulse: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let budget = Budget::new(max_bytes, least_bytes_within(&counts, n_merges), n_slots(&counts), n_merges)?;
    let words = Words::new(&counts, n_threads, &|| pulse(0))?;
    drop(counts);
    learn_in(words, n_merges, ties, min_count, n_threads, budget, pulse)
}

/// As [`learn_within`], of words that need never be in memory all together.
///
/// What `source` keeps in memory itself is not part of `max_bytes`. It is dropped after its second visit.
///
/// # Errors
/// As [`learn_within`]; what `source` gives, and [`Error::Invalid`](crate::Error::Invalid) where it gives other words the
/// second time.
pub fn learn_from(
    mut source: impl WordSource,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    max_bytes: Option<u64>,
    pulse: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let sizes = Sizes::of(&mut source, &|| pulse(0))?;
    let least = budget::least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_merges, 0);
    let budget = Budget::new(max_bytes, least, sizes.n_slots(), n_merges)?;
    let words = Words::from_source(&mut source, sizes, &|| pulse(0))?;
    drop(source);
    learn_in(words, n_merges, ties, min_count, n_threads, budget, pulse)
}

fn learn_in(
    words: Words,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    budget: Budget,
    pulse: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let mut merges = Vec::with_capacity(n_merges.min(words.n_slots()));
    let mut learner = Learner::new(words, n_merges, ties, min_count.max(1), n_threads, budget);
    while merges.len() < n_merges {
        let n_done = merges.len();
        pulse(n_done)?;
        match learner.next(n_merges - n_done, &|| pulse(n_done))? {
            Some(merge) => merges.push(merge),
            None => break,
        }
    }
    Ok(merges)
}

/// Bytes that [`Counts`] take for a pre-token, beside its own.
const WORD_BYTES: u64 = 24;

/// Fewest bytes with which [`learn_from`] can do, of `n_words` different words of `n_bytes` together that stand for
/// `n_pretokens`: or a little more than those, as the number of different counts is not known.
#[must_use]
pub fn least_bytes(n_words: u64, n_bytes: u64, n_pretokens: u64, n_merges: usize) -> u64 {
    // The sum of n different counts is n (n + 1) / 2 at least.
    let n_groups = (2 * u128::from(n_pretokens)).isqrt() as u64;
    budget::least_bytes(n_words + n_bytes + 1, n_groups.min(n_words), n_merges, 0)
}

/// Fewest bytes with which [`learn_within`] can do.
#[must_use]
pub fn least_bytes_within(counts: &Counts, n_merges: usize) -> u64 {
    let held = counts.n_unique_bytes() as u64 + WORD_BYTES * counts.n_unique() as u64;
    budget::least_bytes(n_slots(counts), n_groups(counts) as u64, n_merges, held)
}

fn n_slots(counts: &Counts) -> u64 {
    (counts.n_unique_bytes() + counts.n_unique() + 1) as u64
}

#[cfg(test)]
mod tests;
