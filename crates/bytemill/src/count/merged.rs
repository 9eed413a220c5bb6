//! Counted pre-tokens on disk, for those who have not the memory to hold them.

use super::part::{Group, Part, n_occurrences};
use super::stream::{Groups, Input, Output, write_groups};
use crate::error::Result;
use crate::pulse::Pulse;
use std::path::{Path, PathBuf};

/// Words between two questions to the caller whether to go on.
const WORDS_A_PULSE: usize = 1 << 14;

/// Bytes read of a file at once.
const READ_BYTES: usize = 1 << 16;

/// The pre-tokens of a partition, in groups of falling counts, and in each by their bytes.
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
}

impl Drop for PartFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Unique pre-tokens with their counts, in files, which are removed with this.
pub struct Merged {
    parts: Vec<PartFile>,
    least: u64,
}

impl Merged {
    pub(super) fn new(parts: Vec<PartFile>) -> Self {
        Self { parts, least: 1 }
    }

    /// The same, when it is known that they stand for a text that can be.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where the text would have 2⁶⁴ bytes or more.
    pub(super) fn checked(self) -> Result<Self> {
        n_occurrences(self.parts.iter().flat_map(|part| &part.groups))?;
        Ok(self)
    }

    fn sum(&self, is_wanted: impl Fn(&Group) -> bool, of: impl Fn(&Group) -> u64) -> u64 {
        self.parts.iter().flat_map(|part| &part.groups).filter(|group| is_wanted(group)).map(of).sum()
    }

    fn is_kept(&self, group: &Group) -> bool {
        group.count >= self.least
    }

    /// Number of unique pre-tokens.
    #[must_use]
    pub fn n_unique(&self) -> u64 {
        self.sum(|group| self.is_kept(group), |group| group.n_words as u64)
    }

    /// Bytes of all unique pre-tokens.
    #[must_use]
    pub fn n_unique_bytes(&self) -> u64 {
        self.sum(|group| self.is_kept(group), |group| group.n_bytes as u64)
    }

    /// Pre-tokens that they stand for.
    #[must_use]
    pub fn n_pretokens(&self) -> u64 {
        self.sum(|group| self.is_kept(group), |group| group.count * group.n_words as u64)
    }

    /// Bytes of the files.
    #[must_use]
    pub fn n_file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.n_bytes).sum()
    }

    /// Leaves out the pre-tokens that occur less than `least` times; says how many that were, and how often they occurred.
    pub fn drop_below(&mut self, least: u64) -> (u64, u64) {
        let is_dropped = |group: &Group| self.is_kept(group) && group.count < least;
        let n_words = self.sum(is_dropped, |group| group.n_words as u64);
        let n_times = self.sum(is_dropped, |group| group.count * group.n_words as u64);
        self.least = self.least.max(least);
        (n_words, n_times)
    }

    /// Calls `each` with every pre-token and its count.
    ///
    /// # Errors
    /// What `each` and `pulse` give, and what reading gives.
    pub fn visit(&self, pulse: Pulse, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut word = Vec::new();
        let mut n_words = 0;
        for part in &self.parts {
            let mut groups = part.read()?;
            loop {
                let count = groups.next(&mut word)?;
                if count == 0 {
                    groups.input.check(part.checksum)?;
                }
                if count < self.least {
                    break;
                }
                each(&word, count)?;
                n_words += 1;
                if n_words % WORDS_A_PULSE == 0 {
                    pulse()?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn parts(&self) -> &[PartFile] {
        &self.parts
    }
}

impl PartFile {
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn read(&self) -> Result<Groups> {
        Ok(Groups::new(Input::open(&self.path, 0, self.n_bytes, READ_BYTES)?))
    }

    pub fn checksum(&self) -> u32 {
        self.checksum
    }
}
