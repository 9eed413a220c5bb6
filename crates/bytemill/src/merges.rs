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

mod learner;
mod pair_map;
mod parts;
mod queue;
mod symbols;
mod track;
mod words;

use crate::count::Counts;
use crate::error::Result;
use learner::Learner;

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
    let mut learner = Learner::new(counts, ties, min_count.max(1), n_threads, &|| pulse(0))?;
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        pulse(merges.len())?;
        if let Some(pair) = learner.take_most_frequent() {
            merges.push(learner.merge(pair));
        } else if !learner.track_more(n_merges - merges.len(), &|| pulse(merges.len()))? {
            break;
        }
    }
    Ok(merges)
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
    let _ = max_bytes;
    learn(&counts, n_merges, ties, min_count, n_threads, pulse)
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
    let mut items = Vec::new();
    source.visit(&mut |word, count| {
        items.push((word.to_vec(), count));
        Ok(())
    })?;
    learn_within(Counts::from_items(items.into_iter())?, n_merges, ties, min_count, n_threads, max_bytes, pulse)
}

/// Fewest bytes with which [`learn_from`] can do: of `n_words` different words of `n_bytes` together that stand for
/// `n_pretokens`. [`learn_within`] needs as many, or more while it still has the counts.
#[must_use]
pub fn least_bytes(n_words: u64, n_bytes: u64, n_pretokens: u64, n_merges: usize) -> u64 {
    let n_slots = n_words + n_bytes + 1;
    let _ = n_pretokens;
    4 * n_slots + 120 * n_slots.min(n_merges as u64) + (8 << 20)
}

#[cfg(test)]
mod tests;
