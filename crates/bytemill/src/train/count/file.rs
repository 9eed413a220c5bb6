//! Files of counts.
//!
//! Format: `bytemill counts` and a line feed (16 bytes); version and size of the header (little-endian u32 each); the
//! header (JSON); for each count, descending: the count, its number of pre-tokens, and the pre-tokens, sorted by bytes,
//! each after its length; a 0; the CRC-32 of everything before (u32). Numbers without a size are LEB128.

use super::PRETOKENS_PER_CHECK;
use super::counts::Counts;
use super::finish::Counted;
use super::group_file::{GroupReader, write_groups};
use super::merged::Merged;
use super::part::Part;
use super::sorted_merge::{SortedInput, merge_sorted};
use super::stream::{Input, Output, damaged};
use crate::error::{Error, Result};
use crate::sys::interrupt::Interrupt;
use crate::train::interrupt_period::InterruptPeriod;
use std::collections::BTreeMap;
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
    let too_long = || Error::Invalid("the header of the counts is too long".to_owned());
    let n_header = u32::try_from(header.len()).map_err(|_| too_long())?;
    out.bytes(MAGIC)?;
    out.bytes(&VERSION.to_le_bytes())?;
    out.bytes(&n_header.to_le_bytes())?;
    out.bytes(header.as_bytes())?;
    match counted {
        Counted::Memory(counts) => write_groups(&counts.part, &mut out, interrupt)?,
        Counted::Disk(merged) => write_merged(merged, &mut out, interrupt)?,
    }
    let (checksum, _) = out.checksum()?;
    out.bytes(&checksum.to_le_bytes())?;
    out.finish(false).map(drop)
}

fn write_merged(merged: &Merged, out: &mut Output, interrupt: Interrupt) -> Result<()> {
    let mut n_pretokens_of: BTreeMap<u64, u64> = BTreeMap::new();
    for group in merged.parts.iter().flat_map(|part| &part.groups) {
        *n_pretokens_of.entry(group.count).or_insert(0) += group.n_pretokens as u64;
    }
    let mut count = 0;
    merge_sorted(merged.parts.iter().map(|part| part.read()), interrupt, |reader| {
        // The files still hold the groups that were dropped.
        let Some(&n_pretokens) = n_pretokens_of.get(&reader.count) else { return Ok(()) };
        if reader.count != count {
            count = reader.count;
            out.group(count, n_pretokens)?;
        }
        out.pretoken(&reader.pretoken)
    })?;
    out.number(0)
}

/// Reads the header of a file of counts.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if the file is not a file of counts, or has another version.
pub fn read_header(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path)?.len();
    read_front(&mut Input::open(path, 0, size, 1 << 12)?, path)
}

/// Reads everything before the counts, and returns the header.
fn read_front(input: &mut Input, path: &Path) -> Result<String> {
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
    String::from_utf8(header).map_err(|_| input.damaged())
}

/// Calls `each` with all pre-tokens of a file and their counts, the most frequent first.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if the file is damaged, which may be detected only at its end; errors of `each`
/// and of `interrupt`.
pub fn visit_file(path: &Path, interrupt: Interrupt, each: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let size = std::fs::metadata(path)?.len();
    let n_bytes = size.checked_sub(CHECKSUM_BYTES).ok_or_else(|| damaged(path))?;
    let mut stored = Vec::new();
    Input::open(path, n_bytes, CHECKSUM_BYTES, 16)?.bytes(CHECKSUM_BYTES, &mut stored)?;
    let checksum = stored.try_into().map(u32::from_le_bytes).map_err(|_| damaged(path))?;
    let mut input = Input::open(path, 0, n_bytes, READ_BYTES)?;
    read_front(&mut input, path)?;
    let mut reader = GroupReader::new(input, checksum);
    let mut before = (0, Vec::new());
    let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
    while reader.advance()? {
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
