//! Several patterns in a row: each splits every pre-token of the one before as if it were a text of its own.

use super::blocks::MAX_ENDS;
use super::pattern::{Matcher, Pattern, Splits};
use crate::error::Result;

/// Separates the expressions of several steps. A comment, so that no expression contains it by chance.
pub const THEN: &str = "(?#then)";

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Steps {
    pub expression: String,
    steps: Vec<Pattern>,
}

impl Steps {
    pub fn new(expression: &str) -> Result<Self> {
        let steps: Vec<Pattern> = expression.split(THEN).map(|step| Pattern::new(Some(step))).collect::<Result<_>>()?;
        let expressions: Vec<&str> = steps.iter().filter_map(Pattern::expression).collect();
        Ok(Self { expression: expressions.join(THEN), steps })
    }

    pub fn matcher(&self) -> Matcher {
        self.steps.iter().map(Pattern::matcher).max().unwrap_or(Matcher::Masks)
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> StepsSplits<'t> {
        let level = |(depth, step): (usize, &'t Pattern)| {
            let text = if depth == 0 { text } else { "" };
            let splits = step.splits(text);
            Level { text, base: 0, splits, ends: Vec::new(), n_done: 0, start: 0 }
        };
        let levels = self.steps.iter().enumerate().map(level).collect();
        StepsSplits { steps: &self.steps, levels, depth: 0 }
    }
}

/// Bytes of a pre-token that the steps after it split at once, which takes less time than taking turns.
const SHORT: usize = 64;

/// Appends the ends of the pre-tokens that some steps split a short text into, plus `base`.
fn split_short(steps: &[Pattern], text: &str, base: usize, ends: &mut Vec<usize>) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        ends.push(base + text.len());
        return Ok(());
    };
    let mut start = 0;
    let mut each = |end| {
        let pretoken = &text[start..end];
        let base = base + start;
        start = end;
        split_short(rest, pretoken, base, ends)
    };
    if let Pattern::Custom(custom) = step {
        return custom.for_each_end(text, each);
    }
    let (mut splits, mut these) = (step.splits(text), Vec::new());
    while splits.fill(&mut these)? {
        these.iter().try_for_each(|&end| each(end))?;
    }
    Ok(())
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
        while ends.len() + SHORT <= MAX_ENDS {
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
            if text.len() <= SHORT {
                split_short(&self.steps[self.depth + 1..], text, base + start, ends)?;
                continue;
            }
            self.depth += 1;
            let splits = self.steps[self.depth].splits(text);
            let next = &mut self.levels[self.depth];
            (next.text, next.base, next.splits, next.start, next.n_done) = (text, base + start, splits, 0, 0);
            next.ends.clear();
        }
        Ok(!ends.is_empty())
    }
}
