//! Encoding many documents on several threads: batches, large texts, files, packed documents.
//!
//! In reading order:
//!
//! 1. `scheduler`: the pipeline under everything else (read in order, work in parallel, write in order);
//! 2. [`parallel`]: batches of texts, and large texts cut into chunks;
//! 3. [`files`]: files that are read, validated and encoded chunk by chunk;
//! 4. [`frame`]: ids that every document starts or ends with;
//! 5. [`pack`]: batches of packed documents, where a document may continue in the next batch.

pub mod files;
pub mod frame;
pub mod pack;
pub mod parallel;
pub mod scheduler;
#[cfg(test)]
mod tests;
