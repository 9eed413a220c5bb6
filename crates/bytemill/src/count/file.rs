//! Counts in a file.
//!
//! `bytemill counts` and a line feed (16 bytes), the version and the size of the header (u32 each, little-endian), the
//! header (JSON); then for each count that occurs, falling, the count, how many words have it, and the words in the order
//! of their bytes, each behind its length; then a 0; then the CRC-32 of all that (u32). Numbers without a size are LEB128.

use super::counts::Counts;
use super::merged::Merged;
use super::part::Part;
use super::stream::{Groups, Input, Output};
use super::{Counted, part};
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

const MAGIC: &[u8; 16] = b"bytemill counts\n";

/// Version of the format.
pub const VERSION: u32 = 1;

const FRONT_BYTES: u64 = 24;
const CHECKSUM_BYTES: u64 = 4;
const READ_BYTES: usize = 1 << 18;

/// Most bytes that a header may have.
const MOST_HEADER_BYTES: u64 = 1 << 30;

/// Words that are sorted, or written, between two questions to the caller whether to go on.
const WORDS_A_PULSE: usize = 1 << 15;

/// Writes counts and a header of the caller's as a file.
///
/// # Errors
/// [`Error::Output`]; what `pulse` gives.
pub fn write_counts(counted: &Counted, header: &str, path: &Path, pulse: Pulse) -> Result<()> {
    let mut out = Output::create(path)?;
    let too_long = || Error::Invalid("the header of the counts is too long".to_owned());
    let n_header = u32::try_from(header.len()).map_err(|_| too_long())?;
    out.bytes(MAGIC)?;
    out.bytes(&VERSION.to_le_bytes())?;
    out.bytes(&n_header.to_le_bytes())?;
    out.bytes(header.as_bytes())?;
    match counted {
        Counted::Memory(counts) => write_memory(counts, &mut out, pulse)?,
        Counted::Disk(merged) => write_merged(merged, &mut out, pulse)?,
    }
    out.number(0)?;
    let (checksum, _) = out.checksum()?;
    out.bytes(&checksum.to_le_bytes())?;
    out.finish(false).map(drop)
}

fn write_memory(counts: &Counts, out: &mut Output, pulse: Pulse) -> Result<()> {
    let mut first = 0;
    for &part::Group { count, n_words, .. } in counts.groups() {
        out.number(count)?;
        out.number(n_words as u64)?;
        let mut words: Vec<&[u8]> = counts.range(first..first + n_words).map(|(word, _)| word).collect();
        first += n_words;
        // Sorted piece by piece, so that nobody waits for long who wants to interrupt.
        for piece in words.chunks_mut(WORDS_A_PULSE) {
            pulse()?;
            piece.sort_unstable();
        }
        let mut pieces: BinaryHeap<Reverse<&[&[u8]]>> = words.chunks(WORDS_A_PULSE).map(Reverse).collect();
        let mut n_written = 0;
        while let Some(mut piece) = pieces.peek_mut() {
            // Words of one group are all different, so pieces are ordered by their first words.
            let Some((word, rest)) = piece.0.split_first() else {
                PeekMut::pop(piece);
                continue;
            };
            out.word(word)?;
            if rest.is_empty() {
                PeekMut::pop(piece);
            } else {
                *piece = Reverse(rest);
            }
            n_written += 1;
            if n_written % WORDS_A_PULSE == 0 {
                pulse()?;
            }
        }
    }
    Ok(())
}

/// The word that a file has come to.
struct Head {
    count: u64,
    word: Vec<u8>,
    groups: Groups,
    checksum: u32,
}

impl Ord for Head {
    /// The greatest is the one that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.count.cmp(&other.count).then_with(|| other.word.cmp(&self.word))
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

impl Head {
    /// Goes on to the next word; false where there is none.
    fn advance(&mut self) -> Result<bool> {
        self.count = self.groups.next(&mut self.word)?;
        if self.count == 0 {
            self.groups.input.check(self.checksum)?;
        }
        Ok(self.count > 0)
    }
}

fn write_merged(merged: &Merged, out: &mut Output, pulse: Pulse) -> Result<()> {
    let mut n_words_of: BTreeMap<u64, u64> = BTreeMap::new();
    let mut heads = BinaryHeap::new();
    for part in merged.parts() {
        for group in part.groups() {
            *n_words_of.entry(group.count).or_insert(0) += group.n_words as u64;
        }
        let mut head = Head { count: 0, word: Vec::new(), groups: part.read()?, checksum: part.checksum() };
        if head.advance()? {
            heads.push(head);
        }
    }
    let (mut count, mut n_written) = (0, 0);
    while let Some(mut head) = heads.peek_mut() {
        if head.count != count {
            count = head.count;
            out.number(count)?;
            out.number(n_words_of.get(&count).copied().unwrap_or_default())?;
        }
        out.word(&head.word)?;
        if !head.advance()? {
            PeekMut::pop(head);
        }
        n_written += 1;
        if n_written % WORDS_A_PULSE == 0 {
            pulse()?;
        }
    }
    Ok(())
}

/// The header of a file, and where it ends.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] where the file is none of counts, or of another version.
pub fn read_header(path: &Path) -> Result<(String, u64)> {
    let size = std::fs::metadata(path)?.len();
    let mut input = Input::open(path, 0, size, 1 << 12)?;
    let not_counts = || Error::Invalid(format!("{} is no file of counts", path.display()));
    let mut front = Vec::new();
    input.bytes(FRONT_BYTES, &mut front).map_err(|_| not_counts())?;
    let (magic, numbers) = front.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(not_counts());
    }
    let (numbers, _) = numbers.as_chunks::<4>();
    let version = u32::from_le_bytes(numbers[0]);
    if version != VERSION {
        return Err(Error::Invalid(format!(
            "{} is of version {version} of the format; this version of bytemill reads version {VERSION}",
            path.display()
        )));
    }
    let n_header = u64::from(u32::from_le_bytes(numbers[1])).min(MOST_HEADER_BYTES);
    let mut header = Vec::new();
    input.bytes(n_header, &mut header)?;
    let header = String::from_utf8(header).map_err(|_| input.damaged())?;
    Ok((header, FRONT_BYTES + n_header))
}

/// Calls `each` with all words of a file and their counts, the most frequent first.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] where the file is not what was written, which may be known only at its end; what
/// `each` and `pulse` give.
pub fn visit_file(path: &Path, pulse: Pulse, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let size = std::fs::metadata(path)?.len();
    let (header, start) = read_header(path)?;
    let damaged = || super::stream::damaged(path);
    let n_bytes = size.checked_sub(CHECKSUM_BYTES).filter(|&end| end > start).ok_or_else(damaged)?;
    let mut stored = Vec::new();
    Input::open(path, n_bytes, CHECKSUM_BYTES, 16)?.bytes(CHECKSUM_BYTES, &mut stored)?;
    let checksum = stored.try_into().map(u32::from_le_bytes).map_err(|_| damaged())?;
    let mut input = Input::open(path, 0, n_bytes, READ_BYTES)?;
    let mut word = Vec::new();
    input.bytes(FRONT_BYTES, &mut word)?;
    input.bytes(header.len() as u64, &mut word)?;
    let mut groups = Groups::new(input);
    let mut before = (0, Vec::new());
    let mut n_words = 0;
    loop {
        let count = groups.next(&mut word)?;
        if count == 0 {
            return groups.input.check(checksum);
        }
        let in_order = count != before.0 || before.1 < word;
        if word.is_empty() || !in_order {
            return Err(damaged());
        }
        each(&word, count)?;
        before.0 = count;
        std::mem::swap(&mut before.1, &mut word);
        n_words += 1;
        if n_words % WORDS_A_PULSE == 0 {
            pulse()?;
        }
    }
}

/// The counts of a file, in memory.
///
/// # Errors
/// As [`visit_file`].
pub fn read_counts(path: &Path, pulse: Pulse) -> Result<Counts> {
    let mut part = Part::default();
    visit_file(path, pulse, &mut |word, count| {
        part.push(word, count);
        Ok(())
    })?;
    part.shrink();
    Counts::from_part(part).checked()
}
