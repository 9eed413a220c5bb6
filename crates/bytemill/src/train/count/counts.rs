//! Counted pre-tokens in memory.

use super::part::{Group, Part, PartBuilder, n_occurrences, text_too_large};
use super::pretoken_counts::{PretokenCounts, random_seed};
use super::scale::scaled;
use crate::batch::parallel;
use crate::error::Result;
use crate::sys::interrupt::{Interrupt, no_interrupt};

/// Unique pre-tokens with their counts, the most frequent first.
///
/// A pre-token takes its bytes and one more for its length. Counts are stored once per group of equally frequent
/// pre-tokens.
#[derive(Clone, Default)]
pub struct Counts {
    pub(super) part: Part,
    /// Bytes of the counted text.
    pub n_bytes: u64,
    /// Number of pre-tokens in the counted text.
    pub n_pretokens: u64,
}

impl Counts {
    /// User-supplied counts. Counts of equal pre-tokens are added; empty pre-tokens and counts of zero are ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the counts stand for 2⁶⁴ bytes of text or more, because pair counts
    /// might overflow.
    pub fn from_items(items: impl Iterator<Item = (Vec<u8>, u64)>) -> Result<Self> {
        let mut table = PretokenCounts::new(random_seed());
        let mut n_bytes = 0u64;
        for (pretoken, count) in items.filter(|(pretoken, count)| !pretoken.is_empty() && *count > 0) {
            let text_bytes = count.checked_mul(pretoken.len() as u64).and_then(|more| n_bytes.checked_add(more));
            n_bytes = text_bytes.ok_or_else(text_too_large)?;
            table.add(&pretoken, count)?;
        }
        let counts = Self::add_up(&[table], 1, 1, &no_interrupt)?;
        Ok(Self { n_bytes, ..counts })
    }

    /// Adds up the tables of all threads, whose weights are in units of 1 / `denominator`.
    ///
    /// # Errors
    /// Errors of `interrupt`; as [`Counts::from_parts`].
    pub(super) fn add_up(
        tables: &[PretokenCounts],
        denominator: u64,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Self> {
        // Threads share the tables by ranges; the first table that has a pre-token adds it up. All tables are ordered
        // by hash, so lookups in the other tables have good locality.
        let n_parts = if n_threads > 1 { 8 * n_threads } else { 1 };
        let parts = parallel::map(n_parts, n_threads, interrupt, |part, _| {
            let mut counts = PartBuilder::default();
            for (index, table) in tables.iter().enumerate() {
                let (earlier, later) = (&tables[..index], &tables[index + 1..]);
                // Short pre-tokens before long ones: together, those with the same pairs take fewer cache lines in learning.
                let of_part = |is_long| table.part(part, n_parts).filter(move |entry| entry.is_long() == is_long);
                for entry in of_part(false).chain(of_part(true)) {
                    if !earlier.iter().any(|earlier| earlier.count_of(table, entry) > 0) {
                        let more: u64 = later.iter().map(|later| later.count_of(table, entry)).sum();
                        counts.push(table.bytes_of(entry, &mut [0; 16]), scaled(entry.count + more, denominator));
                    }
                }
            }
            Ok(counts.finish())
        })?;
        Self::from_parts(parts)
    }

    /// Joins parts.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the counts stand for 2⁶⁴ bytes of text or more.
    pub(super) fn from_parts(parts: Vec<Part>) -> Result<Self> {
        let part = Part::concat(parts);
        let n_pretokens = n_occurrences(part.groups.iter())?;
        Ok(Self { part, n_bytes: 0, n_pretokens })
    }

    /// Number of unique pre-tokens.
    #[must_use]
    pub fn n_unique(&self) -> usize {
        self.part.lengths.len()
    }

    /// Bytes of all unique pre-tokens.
    #[must_use]
    pub fn n_unique_bytes(&self) -> usize {
        self.part.bytes.len()
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.part.memory()
    }

    /// The different counts, descending, and their numbers of pre-tokens.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.part.groups
    }

    /// Removes the pre-tokens that occur less than `min_count` times. Returns their number and their total count.
    pub fn drop_below(&mut self, min_count: u64) -> (u64, u64) {
        let n_unique = self.n_unique();
        let n_kept = self.part.groups.partition_point(|group| group.count >= min_count);
        let dropped = self.part.groups[n_kept..].iter().map(|group| group.count * group.n_pretokens as u64).sum();
        self.part.truncate(n_kept);
        self.n_pretokens = self.n_pretokens.saturating_sub(dropped);
        ((n_unique - self.n_unique()) as u64, dropped)
    }

    /// The pre-tokens and their counts, the most frequent first. Equally frequent ones have any order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.part.iter()
    }
}
