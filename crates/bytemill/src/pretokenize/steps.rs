//! Several patterns in a row: each splits every pre-token of the one before as if it were a text of its own.

use super::blocks::MAX_ENDS;
use super::custom::CustomPattern;
use super::fuse::{Fused, fuse};
use super::pattern::{Pattern, Splits};
use crate::error::Result;
use once_cell::race::OnceBox;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Separates the expressions of several steps. A comment, so that no expression contains it by chance.
pub const THEN: &str = "(?#then)";

/// Bytes of text that are split step by step: making one step of several takes as long as splitting some of them.
const N_BYTES_BEFORE: usize = 1 << 14;

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Steps {
    pub expression: String,
    steps: Vec<Pattern>,
    /// As few steps as possible, which clones share.
    fewer: Arc<OnceBox<Vec<Pattern>>>,
    n_bytes: Arc<AtomicUsize>,
}

impl Steps {
    pub fn new(expression: &str) -> Result<Self> {
        let steps: Vec<Pattern> = expression.split(THEN).map(|step| Pattern::new(Some(step))).collect::<Result<_>>()?;
        let expressions: Vec<&str> = steps.iter().filter_map(Pattern::expression).collect();
        Ok(Self { expression: expressions.join(THEN), steps, fewer: Arc::default(), n_bytes: Arc::default() })
    }

    /// As few steps as possible, once there is enough text for them.
    fn for_text(&self, text: &str) -> &[Pattern] {
        if let Some(fewer) = self.fewer.get() {
            return fewer;
        }
        let n_bytes = self.n_bytes.fetch_add(text.len(), Ordering::Relaxed) + text.len();
        if n_bytes <= N_BYTES_BEFORE { &self.steps } else { self.fewer() }
    }

    /// As few steps as possible.
    pub(super) fn fewer(&self) -> &[Pattern] {
        self.fewer.get_or_init(|| {
            let expressions: Vec<&str> = self.expression.split(THEN).collect();
            let (mut fewer, mut at) = (Vec::new(), 0);
            while at < self.steps.len() {
                let (step, n_steps) = fused(&expressions[at..]).unwrap_or_else(|| (self.steps[at].clone(), 1));
                fewer.push(step);
                at += n_steps;
            }
            Box::new(fewer)
        })
    }

    /// The same steps, never fewer. For tests.
    #[cfg(test)]
    pub fn unfused(self) -> Self {
        self.fewer.set(Box::new(self.steps.clone())).unwrap();
        self
    }

    pub fn backtracks(&self) -> bool {
        self.steps.iter().any(Pattern::backtracks)
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> StepsSplits<'t> {
        let level = |(depth, step): (usize, &'t Pattern)| {
            let text = if depth == 0 { text } else { "" };
            let splits = step.splits(text);
            Level { text, base: 0, splits, ends: Vec::new(), n_done: 0, start: 0 }
        };
        let steps = self.for_text(text);
        let levels = steps.iter().enumerate().map(level).collect();
        StepsSplits { steps, levels, depth: 0 }
    }
}

/// The first of some steps as one, and how many these are.
fn fused(steps: &[&str]) -> Option<(Pattern, usize)> {
    let Fused { expression, classes, n_steps } = fuse(steps)?;
    let pattern = CustomPattern::new(&expression).ok().filter(CustomPattern::is_automaton)?;
    Some((Pattern::Custom(Box::new(pattern.dividing_unmatched(classes))), n_steps))
}

/// A step that splits one pre-token of the step before.
struct Level<'t> {
    text: &'t str,
    /// Offset of `text` in the whole text.
    base: usize,
    splits: Splits<'t>,
    ends: Vec<usize>,
    /// How many of `ends` are passed on.
    n_done: usize,
    /// Start of the next pre-token in `text`.
    start: usize,
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct StepsSplits<'t> {
    steps: &'t [Pattern],
    levels: Vec<Level<'t>>,
    /// The current step.
    depth: usize,
}

impl StepsSplits<'_> {
    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        let last = self.levels.len() - 1;
        while ends.len() < MAX_ENDS {
            let level = &mut self.levels[self.depth];
            if level.n_done == level.ends.len() {
                level.n_done = 0;
                if !level.splits.fill(&mut level.ends)? {
                    if self.depth == 0 {
                        break;
                    }
                    self.depth -= 1;
                }
                continue;
            }
            let (start, end) = (level.start, level.ends[level.n_done]);
            level.start = end;
            level.n_done += 1;
            let base = level.base;
            if self.depth == last {
                ends.push(base + end);
                continue;
            }
            let text = &level.text[start..end];
            self.depth += 1;
            let splits = self.steps[self.depth].splits(text);
            let next = &mut self.levels[self.depth];
            (next.text, next.base, next.splits, next.start, next.n_done) = (text, base + start, splits, 0, 0);
            next.ends.clear();
        }
        Ok(!ends.is_empty())
    }
}
