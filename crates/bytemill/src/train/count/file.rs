//! Files of counts.
//!
//! Format: `bytemill counts` and a line feed (16 bytes); version and size of the header (little-endian u32 each); the
//! header (JSON); for each count, descending: the count, its number of pre-tokens, and the pre-tokens, sorted by bytes,
//! each after its length; a 0; the CRC-32 of everything before (u32). Numbers without a size are LEB128.

use super::PRETOKENS_PER_CHECK;
use super::counts::{Counts, Merged, PartFile};
use super::finish::Counted;
use super::part::Part;
use super::spill::{SortedInput, merge_sorted};
use super::stream::{GroupReader, Input, Output, damaged};
use crate::error::{Error, Result};
use crate::sys::interrupt::{Interrupt, InterruptPeriod};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

const MAGIC: &[u8; 16] = b"bytemill counts\n";

/// Version of the format.
pub const VERSION: u32 = 1;

/// Bytes of magic, version and header size.
const FRONT_BYTES: u64 = 24;
const CHECKSUM_BYTES: u64 = 4;
const READ_BYTES: usize = 1 << 18;
const MAX_HEADER_BYTES: u64 = 1 << 30;

/// Writes counts and a user-supplied header to a file.
///
/// # Errors
/// [`Error::Output`]; errors of `interrupt`.
pub fn write_counts(counted: &Counted, header: &str, path: &Path, interrupt: Interrupt) -> Result<()> {
    let mut out = Output::create(path)?;
    write_segment(&mut out, header, |out| match counted {
        Counted::Memory(counts) => write_memory(counts, out, interrupt),
        Counted::Disk(merged) => write_parts(merged.parts(), out, interrupt),
    })?;
    out.finish(false).map(drop)
}

/// Writes some partitions of counts on disk one after the other to a file, each in the format of a file of counts, and returns where
/// each of them ends.
///
/// # Errors
/// As [`write_counts`]; [`Error::Invalid`] if there are fewer partitions.
pub fn write_partitions(
    merged: &Merged,
    partitions: Range<usize>,
    header: &str,
    path: &Path,
    interrupt: Interrupt,
) -> Result<Vec<u64>> {
    let parts =
        merged.parts().get(partitions).ok_or_else(|| Error::Invalid("there is no such partition".to_owned()))?;
    let mut out = Output::create(path)?;
    let segments = parts
        .iter()
        .map(|part| write_segment(&mut out, header, |out| write_parts(std::slice::from_ref(part), out, interrupt)));
    let ends = segments.collect::<Result<_>>()?;
    out.finish(false)?;
    Ok(ends)
}

/// Writes counts in the format of a file and returns where they end.
fn write_segment(out: &mut Output, header: &str, write: impl FnOnce(&mut Output) -> Result<()>) -> Result<u64> {
    let too_long = || Error::Invalid("the header of the counts is too long".to_owned());
    let n_header = u32::try_from(header.len()).map_err(|_| too_long())?;
    out.bytes(MAGIC)?;
    out.bytes(&VERSION.to_le_bytes())?;
    out.bytes(&n_header.to_le_bytes())?;
    out.bytes(header.as_bytes())?;
    write(out)?;
    out.number(0)?;
    let (checksum, _) = out.checksum()?;
    out.bytes(&checksum.to_le_bytes())?;
    // The checksum of the next segment begins behind this one.
    Ok(out.checksum()?.1)
}

fn write_memory(counts: &Counts, out: &mut Output, interrupt: Interrupt) -> Result<()> {
    let mut all = counts.iter();
    for group in counts.groups() {
        out.group(group.count, group.n_pretokens as u64)?;
        let mut pretokens: Vec<&[u8]> = all.by_ref().take(group.n_pretokens).map(|(pretoken, _)| pretoken).collect();
        // Sorted in chunks, so that an interrupt does not wait for a large group.
        for chunk in pretokens.chunks_mut(PRETOKENS_PER_CHECK) {
            interrupt()?;
            chunk.sort_unstable();
        }
        let chunks = pretokens.chunks(PRETOKENS_PER_CHECK).map(|rest| Ok(SortedChunk { pretoken: &[], rest }));
        merge_sorted(chunks, interrupt, |chunk| out.pretoken(chunk.pretoken))?;
    }
    Ok(())
}

/// Sorted pre-tokens in memory.
struct SortedChunk<'c> {
    pretoken: &'c [u8],
    rest: &'c [&'c [u8]],
}

impl SortedInput for SortedChunk<'_> {
    fn advance(&mut self) -> Result<bool> {
        let Some((pretoken, rest)) = self.rest.split_first() else { return Ok(false) };
        (self.pretoken, self.rest) = (pretoken, rest);
        Ok(true)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.pretoken.cmp(other.pretoken)
    }
}

impl SortedInput for GroupReader {
    fn advance(&mut self) -> Result<bool> {
        self.next()
    }

    fn compare(&self, other: &Self) -> Ordering {
        other.count.cmp(&self.count).then_with(|| self.pretoken.cmp(&other.pretoken))
    }
}

fn write_parts(parts: &[PartFile], out: &mut Output, interrupt: Interrupt) -> Result<()> {
    let mut n_pretokens_of: BTreeMap<u64, u64> = BTreeMap::new();
    for group in parts.iter().flat_map(PartFile::groups) {
        *n_pretokens_of.entry(group.count).or_insert(0) += group.n_pretokens as u64;
    }
    let mut count = 0;
    merge_sorted(parts.iter().map(PartFile::read), interrupt, |reader| {
        if reader.count != count {
            count = reader.count;
            out.group(count, n_pretokens_of.get(&count).copied().unwrap_or_default())?;
        }
        out.pretoken(&reader.pretoken)
    })
}

/// Reads the header of a file of counts. Returns it and the offset where it ends.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if the file is not a file of counts, or has another version.
pub fn read_header(path: &Path) -> Result<(String, u64)> {
    read_header_at(path, 0, std::fs::metadata(path)?.len())
}

fn read_header_at(path: &Path, start: u64, n_bytes: u64) -> Result<(String, u64)> {
    let mut input = Input::open(path, start, n_bytes, 1 << 12)?;
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
    let n_header = u64::from(u32::from_le_bytes(numbers[1])).min(MAX_HEADER_BYTES);
    let mut header = Vec::new();
    input.bytes(n_header, &mut header)?;
    let header = String::from_utf8(header).map_err(|_| input.damaged())?;
    Ok((header, start + FRONT_BYTES + n_header))
}

/// Calls `each` with all pre-tokens of a file and their counts, the most frequent first.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if the file is damaged, which may be detected only at its end; errors of `each`
/// and of `interrupt`.
pub fn visit_file(path: &Path, interrupt: Interrupt, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    visit_range(path, 0..std::fs::metadata(path)?.len(), interrupt, each)
}

/// [`visit_file`] for the bytes of a file that one call of [`write_partitions`] wrote for a partition.
///
/// # Errors
/// As [`visit_file`].
pub fn visit_range(
    path: &Path,
    range: Range<u64>,
    interrupt: Interrupt,
    each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let size = std::fs::metadata(path)?.len();
    let n_range = range.end.checked_sub(range.start).filter(|_| range.end <= size).ok_or_else(|| damaged(path))?;
    let (header, start) = read_header_at(path, range.start, n_range)?;
    let end = range.end.checked_sub(CHECKSUM_BYTES).filter(|&end| end > start).ok_or_else(|| damaged(path))?;
    let mut stored = Vec::new();
    Input::open(path, end, CHECKSUM_BYTES, 16)?.bytes(CHECKSUM_BYTES, &mut stored)?;
    let checksum = stored.try_into().map(u32::from_le_bytes).map_err(|_| damaged(path))?;
    let mut input = Input::open(path, range.start, end - range.start, READ_BYTES)?;
    let mut skipped = Vec::new();
    input.bytes(FRONT_BYTES, &mut skipped)?;
    input.bytes(header.len() as u64, &mut skipped)?;
    let mut reader = GroupReader::new(input, checksum);
    let mut before = (0, Vec::new());
    let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
    while reader.next()? {
        let in_order = reader.count != before.0 || before.1 < reader.pretoken;
        if reader.pretoken.is_empty() || !in_order {
            return Err(damaged(path));
        }
        each(&reader.pretoken, reader.count)?;
        before.0 = reader.count;
        std::mem::swap(&mut before.1, &mut reader.pretoken);
        checks.advance(1)?;
    }
    Ok(())
}

/// Reads a file of counts into memory.
///
/// # Errors
/// As [`visit_file`].
pub fn read_counts(path: &Path, interrupt: Interrupt) -> Result<Counts> {
    let mut part = Part::default();
    visit_file(path, interrupt, &mut |pretoken, count| {
        part.push(pretoken, count);
        Ok(())
    })?;
    part.shrink();
    Counts::from_parts(vec![part])
}
