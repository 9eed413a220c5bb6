//! Counted pre-tokens on disk, if they do not fit into memory.

use super::PRETOKENS_PER_CHECK;
use super::group_file::{GroupReader, write_groups};
use super::part::{Group, Part, n_occurrences};
use super::sorted_merge::SortedInput;
use super::stream::{Input, Output};
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use crate::train::interrupt_period::InterruptPeriod;
use std::path::{Path, PathBuf};

/// Bytes per read.
const READ_BYTES: usize = 1 << 16;

/// The pre-tokens of one partition in a file, in groups of descending counts, each sorted by bytes. The file is removed
/// on drop.
pub(super) struct PartFile {
    path: PathBuf,
    pub n_bytes: u64,
    checksum: u32,
    /// The groups, without those that were dropped.
    pub groups: Vec<Group>,
}

impl PartFile {
    pub fn write(part: Part, path: &Path, interrupt: Interrupt) -> Result<Self> {
        let mut out = Output::create(path)?;
        write_groups(&part, &mut out, interrupt)?;
        let (checksum, n_bytes) = out.checksum()?;
        out.finish(false)?;
        Ok(Self { path: path.to_owned(), n_bytes, checksum, groups: part.groups })
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
    pub(super) parts: Vec<PartFile>,
}

impl Merged {
    /// Joins the files of all partitions.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the counts stand for 2⁶⁴ bytes of text or more.
    pub(super) fn new(parts: Vec<PartFile>) -> Result<Self> {
        n_occurrences(parts.iter().flat_map(|part| &part.groups))?;
        Ok(Self { parts })
    }

    fn sum(&self, of: impl Fn(&Group) -> u64) -> u64 {
        self.parts.iter().flat_map(|part| &part.groups).map(of).sum()
    }

    /// Number of unique pre-tokens.
    #[must_use]
    pub fn n_unique(&self) -> u64 {
        self.sum(|group| group.n_pretokens as u64)
    }

    /// Bytes of all unique pre-tokens.
    #[must_use]
    pub fn n_unique_bytes(&self) -> u64 {
        self.sum(|group| group.n_bytes as u64)
    }

    /// Number of pre-tokens in the counted text.
    #[must_use]
    pub fn n_pretokens(&self) -> u64 {
        self.sum(|group| group.count * group.n_pretokens as u64)
    }

    /// Drops the pre-tokens that occur less than `min_count` times. Returns their number and their total count.
    pub fn drop_below(&mut self, min_count: u64) -> (u64, u64) {
        let before = (self.n_unique(), self.n_pretokens());
        for part in &mut self.parts {
            part.groups.truncate(part.groups.partition_point(|group| group.count >= min_count));
        }
        (before.0 - self.n_unique(), before.1 - self.n_pretokens())
    }

    /// Calls `each` with every pre-token and its count.
    ///
    /// # Errors
    /// Errors of `each`, of `interrupt` and of reading.
    pub fn visit(&self, interrupt: Interrupt, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
        for part in &self.parts {
            let Some(last) = part.groups.last() else { continue };
            let mut reader = part.read()?;
            while reader.advance()? && reader.count >= last.count {
                each(&reader.pretoken, reader.count)?;
                checks.advance(1)?;
            }
        }
        Ok(())
    }
}
