//! Counted pre-tokens, in memory or on disk, and the rounding of weighted counts.

use super::PRETOKENS_PER_CHECK;
use super::part::{Group, Order, Part, PartBuilder, n_occurrences, text_too_large};
use super::pretoken_counts::{PretokenCounts, random_seed};
use super::stream::{GroupReader, Input, Output, write_groups};
use crate::batch::parallel;
use crate::error::Result;
use crate::sys::interrupt::{Interrupt, InterruptPeriod, no_interrupt};
use std::path::{Path, PathBuf};

/// Unique pre-tokens with their counts, the most frequent first.
///
/// A pre-token takes its bytes and one more for its length. Counts are stored once per group of equally frequent
/// pre-tokens.
#[derive(Clone, Default)]
pub struct Counts {
    part: Part,
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
        let counts = Self::add_up(&[table], Scale::ONE, 1, &no_interrupt)?;
        Ok(Self { n_bytes, ..counts })
    }

    /// Adds up the tables of all threads.
    ///
    /// # Errors
    /// Errors of `interrupt`; as [`Counts::from_parts`].
    pub(super) fn add_up(
        tables: &[PretokenCounts],
        scale: Scale,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<Self> {
        // Threads share the tables by ranges; the first table that has a pre-token adds it up. All tables are ordered
        // by hash, so lookups in the other tables have good locality.
        let n_parts = if n_threads > 1 { 8 * n_threads } else { 1 };
        let parts = parallel::map(n_parts, n_threads, interrupt, |part, _| {
            let mut counts = PartBuilder::new(Order::Any);
            for (index, table) in tables.iter().enumerate() {
                let (earlier, later) = (&tables[..index], &tables[index + 1..]);
                for (entry, hash) in table.short_part(part, n_parts) {
                    if !earlier.iter().any(|table| table.get_short(entry.key, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.get_short(entry.key, hash)).sum();
                        counts.push(&entry.key.bytes()[..entry.key.n_bytes()], scale.round(entry.count + more));
                    }
                }
                for (pretoken, hash, count) in table.long_part(part, n_parts) {
                    if !earlier.iter().any(|table| table.get_long(pretoken, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.get_long(pretoken, hash)).sum();
                        counts.push(pretoken, scale.round(count + more));
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
    pub fn n_unique(&self) -> usize {
        self.part.lengths.len()
    }

    /// Bytes of all unique pre-tokens.
    pub fn n_unique_bytes(&self) -> usize {
        self.part.bytes.len()
    }

    /// Bytes of memory in use.
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

    /// Calls `each` with the pre-tokens and their counts, in the order of [`Counts::iter`] but faster.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(crate) fn visit(&self, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.part.visit(each)
    }
}

// Counted pre-tokens on disk, if they do not fit into memory.

/// Bytes per read.
const READ_BYTES: usize = 1 << 16;

/// The pre-tokens of one partition in a file, in groups of descending counts, each sorted by bytes. The file is removed
/// on drop.
pub(super) struct PartFile {
    path: PathBuf,
    n_bytes: u64,
    checksum: u32,
    groups: Vec<Group>,
}

impl PartFile {
    pub fn write(part: &Part, path: &Path) -> Result<Self> {
        let mut out = Output::create(path)?;
        write_groups(part, &mut out)?;
        let (checksum, n_bytes) = out.checksum()?;
        out.finish(false)?;
        Ok(Self { path: path.to_owned(), n_bytes, checksum, groups: part.groups.clone() })
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn read(&self) -> Result<GroupReader> {
        Ok(GroupReader::new(Input::open(&self.path, 0, self.n_bytes, READ_BYTES)?, self.checksum))
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Unique pre-tokens with their counts in files, which are removed on drop.
pub struct Merged {
    parts: Vec<PartFile>,
    min_count: u64,
}

impl Merged {
    /// Joins the files of all partitions.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the counts stand for 2⁶⁴ bytes of text or more.
    pub(super) fn new(parts: Vec<PartFile>) -> Result<Self> {
        n_occurrences(parts.iter().flat_map(|part| &part.groups))?;
        Ok(Self { parts, min_count: 1 })
    }

    /// Sums `of` over the groups with at least `min_count`.
    fn sum(&self, min_count: u64, of: impl Fn(&Group) -> u64) -> u64 {
        self.parts.iter().flat_map(|part| &part.groups).filter(|group| group.count >= min_count).map(of).sum()
    }

    /// Number of unique pre-tokens.
    pub fn n_unique(&self) -> u64 {
        self.sum(self.min_count, |group| group.n_pretokens as u64)
    }

    /// Bytes of all unique pre-tokens.
    pub fn n_unique_bytes(&self) -> u64 {
        self.sum(self.min_count, |group| group.n_bytes as u64)
    }

    /// Number of pre-tokens in the counted text.
    pub fn n_pretokens(&self) -> u64 {
        self.sum(self.min_count, |group| group.count * group.n_pretokens as u64)
    }

    /// Bytes of the files.
    pub fn n_file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.n_bytes).sum()
    }

    /// Drops the pre-tokens that occur less than `min_count` times. Returns their number and their total count.
    pub fn drop_below(&mut self, min_count: u64) -> (u64, u64) {
        let before = (self.n_unique(), self.n_pretokens());
        self.min_count = self.min_count.max(min_count);
        (before.0 - self.n_unique(), before.1 - self.n_pretokens())
    }

    /// Calls `each` with every pre-token and its count.
    ///
    /// # Errors
    /// Errors of `each`, of `interrupt` and of reading.
    pub fn visit(&self, interrupt: Interrupt, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
        for part in &self.parts {
            let mut reader = part.read()?;
            while reader.next()? && reader.count >= self.min_count {
                each(&reader.pretoken, reader.count)?;
                checks.advance(1)?;
            }
        }
        Ok(())
    }

    pub(super) fn parts(&self) -> &[PartFile] {
        &self.parts
    }
}

// Rounding of weighted counts.

/// Denominator of weighted counts. Weights are integers over a common denominator; totals are rounded once, at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    denominator: u64,
}

impl Scale {
    /// Unweighted counts.
    pub const ONE: Self = Self { denominator: 1 };

    /// Counts in units of 1 / `denominator`. A denominator of 0 is taken as 1.
    pub fn new(denominator: u64) -> Self {
        Self { denominator: denominator.max(1) }
    }

    /// Rounds to the nearest integer, half up, but to at least 1 so that no counted pre-token is lost.
    #[inline]
    pub fn round(self, total: u64) -> u64 {
        if self.denominator == 1 {
            return total;
        }
        let (quotient, remainder) = (total / self.denominator, total % self.denominator);
        // remainder ≥ denominator / 2, without overflow.
        (quotient + u64::from(remainder >= self.denominator - remainder)).max(1)
    }
}
