//! Near and exact duplicates among documents.
//!
//! In reading order:
//!
//! 1. [`words`]: a text as hashes of its normalized words;
//! 2. [`shingles`]: sets of n-grams of words or of tokens, and their Jaccard similarity;
//! 3. [`sketch`]: 128 numbers that two sets share in proportion to their similarity;
//! 4. [`batch`]: the sets and sketches of many documents, on several threads;
//! 5. [`clusters`]: pairs that bands of the sketches propose and the sets confirm, joined to clusters;
//! 6. [`units`]: hashes of the lines or paragraphs of documents.

pub mod batch;
pub mod clusters;
pub mod shingles;
pub mod sketch;
pub mod units;
pub mod words;

pub use batch::{ShingleSets, sketch_ids, sketch_texts};
pub use clusters::{Bands, Clusters, find_clusters};
pub use units::{UnitKind, Units};
