//! Clusters of near duplicates.
//!
//! The sketches are divided into bands of some rows. Two documents with the same numbers in a band are a *candidate* pair. A
//! candidate is confirmed by the Jaccard similarity of its shingle sets, and only confirmed pairs are joined. So the clusters are
//! the connected components of the graph of confirmed candidates. They depend neither on the order in which pairs are found nor
//! on the number of threads, and a pair inside a cluster need not be looked at again.
//!
//! Candidates whose sketches share far fewer numbers than the threshold predicts are dropped before their sets are read: four
//! standard deviations below, which loses 3 of 100,000 pairs that are just at the threshold.

use super::shingles::jaccard;
use super::sketch::{SIZE, n_shared};
use crate::batch::scheduler::{map, pipeline};
use crate::error::{Error, Result};
use crate::sys::hash::fold;
use crate::sys::interrupt::{Interrupt, InterruptPeriod};
use std::collections::HashMap;

/// Documents of whole buckets that a thread takes at a time.
const CHUNK: usize = 1 << 12;

/// Comparisons of sketches between two cancellation checks.
const CHECK_PERIOD: usize = 1 << 16;

/// How candidates are found and confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Bands {
    /// Number of bands.
    pub n_bands: usize,
    /// Numbers of the sketch in a band.
    pub n_rows: usize,
    /// Lowest Jaccard similarity of near duplicates.
    pub threshold: f64,
}

/// Documents with their sketches and shingle sets, by number.
#[derive(Clone, Copy)]
struct Documents<'d> {
    sketches: &'d [[u32; SIZE]],
    shingles: &'d [u64],
    ends: &'d [u64],
}

impl<'d> Documents<'d> {
    fn set(&self, document: u32) -> &'d [u64] {
        let document = document as usize;
        let start = document.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.shingles[start as usize..self.ends[document] as usize]
    }
}

/// The clusters, and how they were found.
#[derive(Debug, Default, PartialEq)]
pub struct Clusters {
    /// For each document the first document of its cluster.
    pub first: Vec<u32>,
    /// For each document the Jaccard similarity to the first document of its cluster.
    pub similarity: Vec<f64>,
    /// Confirmed pairs that joined the clusters, with their similarities.
    pub pairs: Vec<(u32, u32, f64)>,
    /// Candidate pairs of different clusters whose sketches were compared.
    pub n_candidates: u64,
    /// Candidate pairs whose sets were compared.
    pub n_compared: u64,
}

/// Finds the clusters of documents by their sketches and shingle sets. `progress` is called with the number of bands done.
///
/// # Errors
/// [`Error::Invalid`] if the parts do not fit together, [`Error::Memory`], and the errors of `interrupt`.
pub fn find_clusters(
    sketches: &[u32],
    shingles: &[u64],
    ends: &[u64],
    bands: Bands,
    n_threads: usize,
    interrupt: Interrupt,
    progress: impl Fn(usize),
) -> Result<Clusters> {
    let (sketches, rest) = sketches.as_chunks::<SIZE>();
    let fits = rest.is_empty()
        && sketches.len() == ends.len()
        && u32::try_from(ends.len()).is_ok()
        && ends.is_sorted()
        && ends.last().copied().unwrap_or(0) == shingles.len() as u64;
    if !fits {
        return Err(Error::Invalid("sketches, shingles and ends do not fit together".to_owned()));
    }
    if bands.n_bands == 0 || bands.n_rows == 0 || bands.n_bands.saturating_mul(bands.n_rows) > SIZE {
        return Err(Error::Invalid(format!("bands times rows must be 1 to {SIZE}")));
    }
    if !(0.0 < bands.threshold && bands.threshold <= 1.0) {
        return Err(Error::Invalid("the threshold must be above 0 and at most 1".to_owned()));
    }
    let documents = Documents { sketches, shingles, ends };
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let all: Vec<u32> = (0..ends.len() as u32).collect();
    let mut found = Clusters { first: all, ..Clusters::default() };
    // Equal sets first: each is then represented by its first document, as its pairs are those of the others.
    let equal = Search { documents, rows: 0..SIZE, threshold: 1.0, min_shared: SIZE };
    found.join(&equal, |_| true, n_threads, interrupt)?;
    let represented = found.first.clone();
    progress(0);
    for band in 0..bands.n_bands {
        let rows = band * bands.n_rows..(band + 1) * bands.n_rows;
        let search = Search { documents, rows, threshold: bands.threshold, min_shared: min_shared(bands.threshold) };
        found.join(&search, |document| represented[document as usize] == document, n_threads, interrupt)?;
        progress(band + 1);
    }
    found.measure(documents, n_threads, interrupt)?;
    Ok(found)
}

/// The number of shared bins below which a pair is dropped.
fn min_shared(threshold: f64) -> usize {
    let deviation = (threshold * (1.0 - threshold) / SIZE as f64).sqrt();
    ((threshold - 4.0 * deviation).max(0.0) * SIZE as f64).ceil() as usize
}

/// One pass over the documents: those with equal rows of the sketch are candidates.
struct Search<'d> {
    documents: Documents<'d>,
    rows: std::ops::Range<usize>,
    threshold: f64,
    min_shared: usize,
}

/// Pairs found in some buckets.
#[derive(Default)]
struct Found {
    range: std::ops::Range<usize>,
    pairs: Vec<(u32, u32, f64)>,
    n_candidates: u64,
    n_compared: u64,
}

impl Search<'_> {
    /// A hash of the rows. Documents of different rows with one hash are candidates too, which costs time only.
    fn key(&self, document: u32) -> u64 {
        let rows = &self.documents.sketches[document as usize][self.rows.clone()];
        rows.iter().fold(0x9E37_79B9_7F4A_7C15, |key, &row| fold(key ^ u64::from(row), 0xA076_1D64_78BD_642F))
    }

    fn confirm(&self, a: u32, b: u32, found: &mut Found) -> Option<f64> {
        found.n_candidates += 1;
        let sketches = self.documents.sketches;
        if n_shared(&sketches[a as usize], &sketches[b as usize]) < self.min_shared {
            return None;
        }
        let (one, other) = (self.documents.set(a), self.documents.set(b));
        found.n_compared += 1;
        let similarity = jaccard(one, other);
        (similarity >= self.threshold).then_some(similarity)
    }

    /// Finds pairs that join the clusters of a bucket: for clusters with a confirmed pair, at least a chain of pairs.
    fn search_bucket(
        &self,
        bucket: &[(u64, u32)],
        first: &[u32],
        found: &mut Found,
        checks: &mut InterruptPeriod,
    ) -> Result<()> {
        // The clusters of the bucket so far, each with its documents.
        let mut clusters: Vec<Vec<u32>> = Vec::new();
        let mut number = HashMap::new();
        for &(_, document) in bucket {
            let next = clusters.len();
            let index = *number.entry(first[document as usize]).or_insert(next);
            if index == next {
                clusters.push(Vec::new());
            }
            clusters[index].push(document);
        }
        let mut joined: Vec<Vec<u32>> = Vec::new();
        for mut cluster in clusters {
            // Those that it joins become part of it, in the place of the first.
            let mut home = None;
            let mut index = 0;
            while index < joined.len() {
                let mut pair = None;
                'search: for &b in &cluster {
                    for &a in &joined[index] {
                        checks.advance(1)?;
                        if let Some(similarity) = self.confirm(a, b, found) {
                            pair = Some((a, b, similarity));
                            break 'search;
                        }
                    }
                }
                if let Some((a, b, similarity)) = pair {
                    found.pairs.push((a.min(b), a.max(b), similarity));
                    match home {
                        None => {
                            home = Some(index);
                        }
                        Some(home) => {
                            let other = joined.remove(index);
                            joined[home].extend(other);
                            continue;
                        }
                    }
                }
                index += 1;
            }
            match home {
                Some(home) => joined[home].append(&mut cluster),
                None => joined.push(cluster),
            }
        }
        Ok(())
    }
}

impl Clusters {
    /// Joins the clusters by the pairs of one search among the documents that `takes_part` accepts.
    fn join(
        &mut self,
        search: &Search,
        takes_part: impl Fn(u32) -> bool,
        n_threads: usize,
        interrupt: Interrupt,
    ) -> Result<()> {
        let mut keys: Vec<(u64, u32)> = Vec::new();
        keys.try_reserve_exact(self.first.len()).map_err(|_| Error::memory::<(u64, u32)>(self.first.len()))?;
        #[expect(clippy::cast_possible_truncation, reason = "find_clusters checks it")]
        for document in 0..self.first.len() as u32 {
            // Documents without shingles are no duplicates.
            let set = search.documents.set(document);
            if !set.is_empty() && takes_part(document) {
                keys.push((search.key(document), document));
            }
            if document.is_multiple_of(1 << 20) {
                interrupt()?;
            }
        }
        keys.sort_unstable();
        let (before, mut after) = (self.first.clone(), std::mem::take(&mut self.first));
        let mut start = 0;
        pipeline(
            n_threads,
            interrupt,
            |chunk: &mut Found, _| {
                chunk.range = start..end_of_bucket(&keys, start + CHUNK);
                start = chunk.range.end;
                Ok(!chunk.range.is_empty())
            },
            |chunk, interrupt| {
                let mut checks = InterruptPeriod::new(interrupt, CHECK_PERIOD);
                let buckets = keys[chunk.range.clone()].chunk_by(|(a, _), (b, _)| a == b);
                for bucket in buckets.filter(|bucket| bucket.len() > 1) {
                    search.search_bucket(bucket, &before, chunk, &mut checks)?;
                }
                interrupt()
            },
            |chunk| {
                for &(a, b, _) in &chunk.pairs {
                    unite(&mut after, a, b);
                }
                self.pairs.append(&mut chunk.pairs);
                self.n_candidates += std::mem::take(&mut chunk.n_candidates);
                self.n_compared += std::mem::take(&mut chunk.n_compared);
                Ok(())
            },
        )?;
        // Parents are smaller, so they are resolved first.
        for document in 0..after.len() {
            after[document] = after[after[document] as usize];
        }
        self.first = after;
        Ok(())
    }

    /// Computes the similarities to the first documents.
    fn measure(&mut self, documents: Documents, n_threads: usize, interrupt: Interrupt) -> Result<()> {
        let first = &self.first;
        let n_chunks = first.len().div_ceil(CHUNK);
        let measured = map(n_chunks, n_threads, interrupt, |chunk, interrupt| {
            interrupt()?;
            let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(first.len());
            #[expect(clippy::cast_possible_truncation, reason = "find_clusters checks it")]
            let similarity = |document: usize| match first[document] {
                itself if itself as usize == document => 1.0,
                first => jaccard(documents.set(first), documents.set(document as u32)),
            };
            Ok(range.map(similarity).collect::<Vec<_>>())
        })?;
        self.similarity = measured.concat();
        Ok(())
    }
}

/// The end of the bucket that contains the entry before `at`.
fn end_of_bucket(keys: &[(u64, u32)], at: usize) -> usize {
    let Some(&(key, _)) = keys.get(at.saturating_sub(1)) else { return keys.len() };
    at + keys[at..].iter().take_while(|entry| entry.0 == key).count()
}

/// Joins the clusters of two documents. The parent of a document is a document before it, or itself.
fn unite(parents: &mut [u32], a: u32, b: u32) {
    let (a, b) = (root(parents, a), root(parents, b));
    parents[a.max(b) as usize] = a.min(b);
}

fn root(parents: &mut [u32], mut document: u32) -> u32 {
    while parents[document as usize] != document {
        let above = parents[parents[document as usize] as usize];
        parents[document as usize] = above;
        document = above;
    }
    document
}

#[cfg(test)]
#[path = "tests/clusters.rs"]
mod tests;
