//! Training: [`count`] counts the unique pre-tokens of a corpus, [`merges`] learns merges from those counts.

pub mod count;
pub mod merges;
