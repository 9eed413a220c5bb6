//! The learning functions.

use super::budget::{check_limit, expected_bytes, least_bytes};
use super::learner::Learner;
use super::pretoken_slots::{PretokenSlots, Sizes};
use crate::error::Result;
use crate::sys::memory::check_available;
use crate::train::count::Counts;

/// Which of two equally frequent pairs is merged first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// The lexicographically greatest pair of byte strings.
    Bytes,
    /// The pair with the smallest ids in the numbering of Hugging Face's trainer: bytes in the order of their GPT-2
    /// characters, then merges in the order in which they were learned.
    HuggingFace,
}

/// A learned merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Left symbol: a byte, or 256 plus the index of an earlier merge.
    pub left: u32,
    /// Right symbol.
    pub right: u32,
    /// Count of the pair in the corpus when it was merged.
    pub count: u64,
}

/// Pre-tokens and their counts, for example in a file that does not fit into memory.
pub trait PretokenSource {
    /// Calls `each` with every pre-token and its count, in any order.
    ///
    /// Learning visits a source twice; both visits must yield the same pre-tokens. Counts of repeated pre-tokens are
    /// added. Empty pre-tokens and counts of zero are ignored.
    ///
    /// # Errors
    /// Errors of `each`, and errors of reading.
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()>;
}

impl PretokenSource for &Counts {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|(pretoken, count)| each(pretoken, count))
    }
}

impl PretokenSource for Counts {
    fn visit(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        (&*self).visit(each)
    }
}

/// Parameters of learning that do not depend on the source.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub n_merges: usize,
    pub ties: Ties,
    pub min_count: u64,
    pub n_threads: usize,
    pub max_bytes: Option<u64>,
}

/// Learns up to `n_merges` merges; fewer if no remaining pair occurs `min_count` times.
///
/// The result does not depend on `n_threads`. `interrupt` is called with the number of merges learned so far.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if the unique pre-tokens take 4 GiB or more; errors of `interrupt`.
pub fn learn(
    counts: &Counts,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let settings = Settings { n_merges, ties, min_count, n_threads, max_bytes: None };
    learn_sized(counts, &Sizes::of_counts(counts), settings, interrupt)
}

/// Like [`learn`], with the same result, in at most `max_bytes` of memory.
///
/// The limit includes `counts`, which are freed as soon as possible.
///
/// # Errors
/// As [`learn`]. [`Error::Invalid`](crate::Error::Invalid) with the required number of bytes if `max_bytes` is too
/// small; this is checked before any work is done.
pub fn learn_within(
    counts: Counts,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    max_bytes: Option<u64>,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let sizes = Sizes::of_counts(&counts);
    learn_sized(counts, &sizes, Settings { n_merges, ties, min_count, n_threads, max_bytes }, interrupt)
}

/// Like [`learn_within`], for pre-tokens that do not have to be in memory all at once.
///
/// The limit does not include memory of `source`, which is dropped after its second visit.
///
/// # Errors
/// As [`learn_within`]; errors of `source`; [`Error::Invalid`](crate::Error::Invalid) if the second visit yields other
/// pre-tokens than the first.
pub fn learn_from(
    mut source: impl PretokenSource,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    max_bytes: Option<u64>,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let sizes = Sizes::of(&mut source, &|| interrupt(0))?;
    learn_sized(source, &sizes, Settings { n_merges, ties, min_count, n_threads, max_bytes }, interrupt)
}

fn learn_sized(
    mut source: impl PretokenSource,
    sizes: &Sizes,
    settings: Settings,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    check_limit(&settings, sizes)?;
    check_available(expected_bytes(&settings, sizes))?;
    let slots = PretokenSlots::new(&mut source, sizes, &|| interrupt(0))?;
    drop(source);
    let n_merges = settings.n_merges;
    let mut merges = Vec::with_capacity(n_merges.min(slots.n_slots()));
    let mut learner = Learner::new(slots, settings)?;
    while merges.len() < n_merges {
        let n_learned = merges.len();
        interrupt(n_learned)?;
        match learner.next_merge(n_merges - n_learned, &|| interrupt(n_learned))? {
            Some(merge) => merges.push(merge),
            None => break,
        }
    }
    Ok(merges)
}

/// Smallest limit that [`learn_within`] accepts.
#[must_use]
pub fn least_bytes_within(counts: &Counts, n_merges: usize) -> u64 {
    least_bytes(&Sizes::of_counts(counts), n_merges)
}
