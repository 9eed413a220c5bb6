//! Tables written to disk as sorted runs, and runs merged.
//!
//! A run holds the entries of one table, the pre-tokens of each partition of the hash behind those of the one before, and
//! sorted: the short ones first, then the long ones, both by their bytes. So partitions are merged one after the other, or
//! several at a time, and of each run no more than a buffer is in memory.

use super::stream::{Input, Output, damaged};
use crate::error::{Error, Result};
use crate::hash::PACKED_BYTES;
use crate::pulse::Pulse;
use crate::tally::{N_PARTITIONS, Table};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};

/// Bytes of a run's index: for each partition where it ends and its checksum, and a checksum of all that.
const INDEX_BYTES: u64 = 12 * N_PARTITIONS as u64 + 4;

/// Words between two questions to the caller whether to go on.
const WORDS_A_PULSE: usize = 1 << 14;

/// A run on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub n_bytes: u64,
    /// Checksum of its index, which holds those of the partitions.
    pub checksum: u32,
}

/// Writes the entries of a table.
pub fn write_table(table: &Table, path: &Path, durable: bool, pulse: Pulse) -> Result<Run> {
    let mut writer = RunWriter::create(path)?;
    let mut short = Vec::new();
    let mut long: Vec<(&[u8], u64)> = Vec::new();
    for partition in 0..N_PARTITIONS {
        pulse()?;
        short.clear();
        short.extend(table.short_of(partition).map(|slot| (slot.key.order(), slot.count)));
        short.sort_unstable();
        for &(order, count) in &short {
            let bytes = order.to_be_bytes();
            writer.entry(&bytes[..usize::from(bytes[15])], count)?;
        }
        long.clear();
        long.extend(table.long.of(partition));
        long.sort_unstable();
        for &(word, count) in &long {
            writer.entry(word, count)?;
        }
        writer.end_partition()?;
    }
    writer.finish(durable)
}

struct RunWriter {
    out: Output,
    path: PathBuf,
    index: Vec<u8>,
}

impl RunWriter {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self { out: Output::create(path)?, path: path.to_owned(), index: Vec::new() })
    }

    fn entry(&mut self, word: &[u8], count: u64) -> Result<()> {
        self.out.number(count)?;
        self.out.word(word)
    }

    fn end_partition(&mut self) -> Result<()> {
        let (checksum, end) = self.out.checksum()?;
        self.index.extend_from_slice(&end.to_le_bytes());
        self.index.extend_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn finish(mut self, durable: bool) -> Result<Run> {
        let checksum = crc32fast::hash(&self.index);
        self.out.bytes(&self.index)?;
        self.out.bytes(&checksum.to_le_bytes())?;
        let n_bytes = self.out.finish(durable)?;
        Ok(Run { path: self.path, n_bytes, checksum })
    }
}

/// Where the partitions of a run are.
pub struct Index {
    path: PathBuf,
    /// The end of each partition, and its checksum.
    ends: Vec<(u64, u32)>,
}

impl Run {
    /// Reads the index. Where the file is another than was written, that is [`Error::Invalid`].
    pub fn index(&self) -> Result<Index> {
        let wrong = || damaged(&self.path);
        let size = std::fs::metadata(&self.path)?.len();
        let start = self.n_bytes.checked_sub(INDEX_BYTES).filter(|_| size == self.n_bytes).ok_or_else(wrong)?;
        let mut bytes = Vec::new();
        Input::open(&self.path, start, INDEX_BYTES, 1 << 10)?.bytes(INDEX_BYTES, &mut bytes)?;
        let (entries, checksum) = bytes.split_at(12 * N_PARTITIONS);
        let found = crc32fast::hash(entries);
        if found != self.checksum || checksum != found.to_le_bytes() {
            return Err(wrong());
        }
        let (entries, _) = entries.as_chunks::<12>();
        let ends = entries.iter().map(|entry| {
            let (end, checksum) = entry.split_at(8);
            let end = end.try_into().map(u64::from_le_bytes).map_err(|_| wrong())?;
            Ok((end, checksum.try_into().map(u32::from_le_bytes).map_err(|_| wrong())?))
        });
        let index = Index { path: self.path.clone(), ends: ends.collect::<Result<_>>()? };
        let ascending = index.ends.is_sorted_by_key(|&(end, _)| end);
        if ascending && index.ends.last().is_some_and(|&(end, _)| end == start) { Ok(index) } else { Err(wrong()) }
    }
}

impl Index {
    fn open(&self, partition: usize, buffer_bytes: usize) -> Result<(Input, u32)> {
        let start = if partition == 0 { 0 } else { self.ends[partition - 1].0 };
        let (end, checksum) = self.ends[partition];
        Ok((Input::open(&self.path, start, end - start, buffer_bytes)?, checksum))
    }
}

/// The entry that a run has come to.
struct Head {
    word: Vec<u8>,
    count: u64,
    input: Input,
    checksum: u32,
}

impl Head {
    /// Goes on to the next entry; false where there is none.
    fn advance(&mut self) -> Result<bool> {
        if self.input.is_done() {
            self.input.check(self.checksum)?;
            return Ok(false);
        }
        self.count = self.input.number()?;
        self.input.word(&mut self.word)?;
        Ok(true)
    }

    fn order(&self) -> (bool, &[u8]) {
        (self.word.len() > PACKED_BYTES, &self.word)
    }
}

impl Ord for Head {
    /// The greatest is the one that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Calls `each` with the words of a partition in order, and the sums of their counts.
pub fn merge_partition(
    runs: &[Index],
    partition: usize,
    buffer_bytes: usize,
    pulse: Pulse,
    mut each: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for run in runs {
        let (input, checksum) = run.open(partition, buffer_bytes)?;
        let mut head = Head { word: Vec::new(), count: 0, input, checksum };
        if head.advance()? {
            heads.push(head);
        }
    }
    let (mut word, mut total) = (Vec::new(), 0u64);
    let mut n_words = 0;
    while let Some(mut head) = heads.peek_mut() {
        if head.word == word {
            let overflow = || Error::Invalid("the counts are too large: they add up to 2^64".to_owned());
            total = total.checked_add(head.count).ok_or_else(overflow)?;
        } else {
            if total > 0 {
                each(&word, total)?;
            }
            std::mem::swap(&mut word, &mut head.word);
            total = head.count;
            n_words += 1;
            if n_words % WORDS_A_PULSE == 0 {
                pulse()?;
            }
        }
        if !head.advance()? {
            PeekMut::pop(head);
        }
    }
    if total > 0 {
        each(&word, total)?;
    }
    Ok(())
}

/// Makes one run of several.
pub fn merge_runs(runs: &[Run], path: &Path, buffer_bytes: usize, durable: bool, pulse: Pulse) -> Result<Run> {
    let indexes = runs.iter().map(Run::index).collect::<Result<Vec<_>>>()?;
    let mut writer = RunWriter::create(path)?;
    for partition in 0..N_PARTITIONS {
        pulse()?;
        merge_partition(&indexes, partition, buffer_bytes, pulse, |word, count| writer.entry(word, count))?;
        writer.end_partition()?;
    }
    writer.finish(durable)
}
