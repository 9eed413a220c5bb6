//! Several patterns in a row: each splits every pre-token of the one before as if it were a text of its own.

use super::automaton::{LazyAutomaton, Scan, Stop};
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
    /// All of them at once.
    automaton: LazyAutomaton,
}

impl Steps {
    pub fn new(expression: &str) -> Result<Self> {
        let steps: Vec<Pattern> = expression.split(THEN).map(|step| Pattern::new(Some(step))).collect::<Result<_>>()?;
        let expressions: Vec<&str> = steps.iter().filter_map(Pattern::expression).collect();
        Ok(Self { expression: expressions.join(THEN), steps, automaton: LazyAutomaton::default() })
    }

    /// The same steps one after the other. For tests.
    #[cfg(test)]
    pub fn one_by_one(expression: &str) -> Result<Self> {
        Ok(Self { automaton: LazyAutomaton::never(), ..Self::new(expression)? })
    }

    pub fn matcher(&self) -> Matcher {
        match self.automaton.get(&self.expression) {
            Some(_) => Matcher::Automaton,
            None => self.steps.iter().map(Pattern::matcher).max().unwrap_or(Matcher::Masks),
        }
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> StepsSplits<'t> {
        match self.automaton.for_text(&self.expression, text) {
            Some(automaton) => {
                StepsSplits { steps: &self.steps, text, scan: Some(Scan::new(automaton, text)), levels: None }
            }
            None => {
                StepsSplits { steps: &self.steps, text, scan: None, levels: Some(Levels::new(&self.steps, text, 0)) }
            }
        }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct StepsSplits<'t> {
    steps: &'t [Pattern],
    text: &'t str,
    scan: Option<Scan<'t>>,
    /// A pre-token of the first step for which the automaton has given up, or the whole text.
    levels: Option<Levels<'t>>,
}

impl StepsSplits<'_> {
    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        let Self { steps, text, scan, levels } = self;
        loop {
            if let Some(slow) = levels {
                let is_more = slow.fill(ends)?;
                let Some(scan) = scan else { return Ok(is_more) };
                // The automaton had found some of them.
                ends.retain(|&end| end > scan.last_end);
                if is_more {
                    return Ok(true);
                }
                scan.restart(slow.end());
                *levels = None;
            }
            let Some(scan) = scan else { return Ok(false) };
            if scan.last_end == text.len() {
                return Ok(!ends.is_empty());
            }
            if scan.fill(ends) != Stop::Lost {
                return Ok(true);
            }
            let from = scan.last_cut;
            let to = from + steps[0].first_end(&text[from..])?;
            *levels = Some(Levels::new(&steps[1..], &text[from..to], from));
            if !ends.is_empty() {
                return Ok(true);
            }
        }
    }
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

/// Steps that take turns: each splits what the one before has found last.
struct Levels<'t> {
    steps: &'t [Pattern],
    levels: Vec<Level<'t>>,
    /// The current step.
    depth: usize,
}

impl<'t> Levels<'t> {
    /// Splits a text that begins at an offset of the whole text.
    fn new(steps: &'t [Pattern], text: &'t str, base: usize) -> Self {
        let level = |(depth, step): (usize, &'t Pattern)| {
            let text = if depth == 0 { text } else { "" };
            let splits = step.splits(text);
            Level { text, base, splits, ends: Vec::new(), n_done: 0, start: 0 }
        };
        Self { steps, levels: steps.iter().enumerate().map(level).collect(), depth: 0 }
    }

    /// Where its text ends in the whole text.
    fn end(&self) -> usize {
        self.levels[0].base + self.levels[0].text.len()
    }

    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
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
