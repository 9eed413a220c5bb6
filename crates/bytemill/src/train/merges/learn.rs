//! The learning functions.

use super::base::Base;
use super::budget::{Budget, least_bytes};
use super::learner::{Learner, Merge, Settings};
use super::pretoken_slots::{PretokenSlots, PretokenSource, Sizes};
use super::symbols::Ties;
use crate::error::Result;
use crate::sys::memory::check_available;
use crate::train::count::Counts;

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
    let budget = Budget::new(None, 0, n_slots(counts), n_merges, counts_bytes(counts), 0)?;
    let settings = Settings { n_merges, ties, min_count, n_threads };
    learn_slots(counts, &Sizes::of_counts(counts), settings, budget, None, interrupt)
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
    let least = least_bytes_within(&counts, n_merges);
    let budget = Budget::new(max_bytes, least, n_slots(&counts), n_merges, counts_bytes(&counts), 0)?;
    let sizes = Sizes::of_counts(&counts);
    learn_slots(counts, &sizes, Settings { n_merges, ties, min_count, n_threads }, budget, None, interrupt)
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
    let least = least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_merges, 0, 0);
    let budget = Budget::new(max_bytes, least, sizes.n_slots(), n_merges, 0, 0)?;
    learn_slots(source, &sizes, Settings { n_merges, ties, min_count, n_threads }, budget, None, interrupt)
}

/// Like [`learn_from`], but continues the vocabulary `base`: see [`Base`].
///
/// Symbols below [`Base::n_symbols`] are those of `base`; new merges follow. With the limit `max_bytes` comes the memory of
/// `source`, which is part of it.
///
/// # Errors
/// As [`learn_from`]; errors of [`Base::segment`].
#[expect(clippy::too_many_arguments, reason = "the arguments of `learn_from` and what it continues")]
pub fn learn_more(
    mut source: impl PretokenSource,
    base: &dyn Base,
    n_merges: usize,
    ties: Ties,
    min_count: u64,
    n_threads: usize,
    max_bytes: Option<(u64, u64)>,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    let sizes = Sizes::of(&mut source, &|| interrupt(0))?;
    let (max_bytes, counts_bytes) = max_bytes.unzip();
    let counts_bytes = counts_bytes.unwrap_or(0);
    let n_base = base.n_symbols() - 256;
    let least = least_bytes(sizes.n_slots(), sizes.n_groups() as u64, n_merges, counts_bytes, n_base);
    let budget = Budget::new(max_bytes, least, sizes.n_slots(), n_merges, counts_bytes, n_base)?;
    learn_slots(source, &sizes, Settings { n_merges, ties, min_count, n_threads }, budget, Some(base), interrupt)
}

fn learn_slots(
    mut source: impl PretokenSource,
    sizes: &Sizes,
    settings: Settings,
    budget: Budget,
    base: Option<&dyn Base>,
    interrupt: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Vec<Merge>> {
    check_available(budget.expected_bytes(sizes, settings.n_threads))?;
    let slots = PretokenSlots::new(&mut source, sizes, &|| interrupt(0))?;
    drop(source);
    let n_merges = settings.n_merges;
    let mut merges = Vec::with_capacity(n_merges.min(slots.n_slots()));
    let mut learner = Learner::new(slots, settings, budget, base, &|| interrupt(0))?;
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

/// Bytes of memory of counts, for [`learn_more`].
pub fn counts_bytes(counts: &Counts) -> u64 {
    counts.n_unique_bytes() as u64 + PRETOKEN_BYTES * counts.n_unique() as u64
}

/// Bytes of [`Counts`] per pre-token, in addition to its own bytes.
const PRETOKEN_BYTES: u64 = 24;

/// Smallest limit that [`learn_within`] accepts.
pub fn least_bytes_within(counts: &Counts, n_merges: usize) -> u64 {
    least_bytes(n_slots(counts), counts.groups().len() as u64, n_merges, counts_bytes(counts), 0)
}

/// A slot per byte, a separator before each pre-token and one after the last.
fn n_slots(counts: &Counts) -> u64 {
    (counts.n_unique_bytes() + counts.n_unique() + 1) as u64
}
