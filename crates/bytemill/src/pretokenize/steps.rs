//! Several patterns in a row: each splits every pre-token of the one before as if it were a text of its own.

use super::blocks::{Blocks, MAX_ENDS};
use super::classify::InstructionSet;
use super::custom::{CustomPattern, CustomSplits};
use super::named::NamedPattern;
use crate::error::Result;

/// Separates the expressions of several steps. A comment, so that no expression contains it by chance.
pub const THEN: &str = "(?#then)";

/// One pattern.
#[derive(Clone, Debug)]
pub enum Step {
    Named(&'static NamedPattern),
    Custom(Box<CustomPattern>),
}

impl Step {
    pub fn new(name_or_expression: &str) -> Result<Self> {
        match NamedPattern::find(name_or_expression) {
            Some(named) => Ok(Self::Named(named)),
            None => Ok(Self::Custom(Box::new(CustomPattern::new(name_or_expression)?))),
        }
    }

    fn expression(&self) -> &str {
        match self {
            Self::Named(named) => named.expression,
            Self::Custom(custom) => custom.expression(),
        }
    }

    fn splits<'t>(&'t self, text: &'t str, instruction_set: InstructionSet) -> StepSplits<'t> {
        match self {
            Self::Named(named) => StepSplits::Named(named.blocks(text, instruction_set)),
            Self::Custom(custom) => StepSplits::Custom(custom.splits(text)),
        }
    }
}

/// An iterator over the pre-tokens of one step.
enum StepSplits<'t> {
    Named(Blocks<'t>),
    Custom(CustomSplits<'t>),
}

/// Patterns in order.
#[derive(Clone, Debug)]
pub struct Steps {
    expression: String,
    steps: Vec<Step>,
}

impl Steps {
    pub fn new(expression: &str) -> Result<Self> {
        let steps: Vec<Step> = expression.split(THEN).map(Step::new).collect::<Result<_>>()?;
        let expressions: Vec<&str> = steps.iter().map(Step::expression).collect();
        Ok(Self { expression: expressions.join(THEN), steps })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    pub fn splits<'t>(&'t self, text: &'t str, instruction_set: InstructionSet) -> StepsSplits<'t> {
        let level = |(depth, step): (usize, &'t Step)| {
            let text = if depth == 0 { text } else { "" };
            Level { text, base: 0, splits: step.splits(text, instruction_set), ends: Vec::new(), n_done: 0, start: 0 }
        };
        let levels = self.steps.iter().enumerate().map(level).collect();
        StepsSplits { steps: &self.steps, levels, depth: 0, instruction_set }
    }
}

/// A step that splits one pre-token of the step before.
struct Level<'t> {
    text: &'t str,
    /// Offset of `text` in the whole text.
    base: usize,
    splits: StepSplits<'t>,
    ends: Vec<usize>,
    /// How many of `ends` are passed on.
    n_done: usize,
    /// Start of the next pre-token in `text`.
    start: usize,
}

impl Level<'_> {
    fn refill(&mut self) -> Result<bool> {
        self.n_done = 0;
        self.ends.clear();
        match &mut self.splits {
            StepSplits::Named(blocks) => Ok(blocks.fill(&mut self.ends)),
            StepSplits::Custom(custom) => custom.fill(&mut self.ends),
        }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct StepsSplits<'t> {
    steps: &'t [Step],
    levels: Vec<Level<'t>>,
    /// The current step.
    depth: usize,
    instruction_set: InstructionSet,
}

impl StepsSplits<'_> {
    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        let last = self.levels.len() - 1;
        while ends.len() < MAX_ENDS {
            let level = &mut self.levels[self.depth];
            if level.n_done == level.ends.len() {
                if !level.refill()? {
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
            let splits = self.steps[self.depth].splits(text, self.instruction_set);
            let next = &mut self.levels[self.depth];
            (next.text, next.base, next.splits, next.start, next.n_done) = (text, base + start, splits, 0, 0);
            next.ends.clear();
        }
        Ok(!ends.is_empty())
    }
}
