//! Counting the unique pre-tokens of a corpus on several threads. Reading order:
//!
//! 1. `counter`: the calling thread collects text into chunks and cuts them where pre-tokens end.
//! 2. `worker`, `pretoken_counts`: each thread counts whole chunks into its own table. Nothing is shared or locked, and
//!    since counts are sums, the result depends neither on threads nor on chunks.
//! 3. `finish`, `counts`, `part`: all threads add up the tables, in memory.
//! 4. `spill`: with a memory limit, full tables are written to disk as sorted runs and merged at the end, one partition of
//!    the hash at a time.
//! 5. `checkpoint`: counting resumes in another process from its runs.
//! 6. `file`, `stream`: files of counts.
//!
//! A [`Counter`] counts: it owns the threads and is finished once. [`Counted`] is its result, [`Counts`] in memory or [`Merged`] on
//! disk. A part is a share of those counts, in memory (`part::Part`) or on disk (`counts::PartFile`).

mod checkpoint;
mod counter;
mod counts;
mod file;
mod finish;
mod part;
mod pretoken_counts;
mod spill;
mod stream;
mod worker;

pub use counter::{CHUNK_BYTES, Counter, Totals};
pub use counts::{Counts, Merged, Scale};
pub use file::{VERSION, read_counts, read_header, visit_file, visit_range, write_counts, write_partitions};
pub use finish::{Counted, Stay};
pub use pretoken_counts::{N_PARTITIONS, random_seed};
pub use spill::SpillCost;

/// Pre-tokens that are read, written or sorted between two interrupt checks.
const PRETOKENS_PER_CHECK: usize = 1 << 14;

#[cfg(test)]
mod tests {
    mod counter;
    mod spill;
}
