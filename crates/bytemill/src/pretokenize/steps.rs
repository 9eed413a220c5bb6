//! Several patterns one after the other: each cuts every pre-token of the one before, as if it were a text of its own.

use super::classify::InstructionSet;
use super::{BLOCK, Pattern, Splits};
use crate::error::Result;

/// What stands between the expressions of several steps: a comment, so that it is in no expression by chance.
pub const THEN: &str = "(?#then)";

/// The patterns in order.
#[derive(Clone, Debug)]
pub struct Steps {
    expression: String,
    steps: Vec<Pattern>,
}

impl Steps {
    pub fn new(expression: &str) -> Result<Self> {
        let steps: Vec<Pattern> = expression.split(THEN).map(|step| Pattern::new(Some(step))).collect::<Result<_>>()?;
        let expressions: Vec<&str> = steps.iter().filter_map(Pattern::expression).collect();
        Ok(Self { expression: expressions.join(THEN), steps })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    pub fn splits<'t>(&'t self, text: &'t str, instruction_set: InstructionSet) -> StepSplits<'t> {
        let level = |pattern: &'t Pattern| Level {
            text: "",
            base: 0,
            splits: pattern.splits_with("", instruction_set),
            ends: Vec::new(),
            n_given: 0,
            start: 0,
        };
        let mut levels: Vec<Level<'t>> = self.steps.iter().map(level).collect();
        levels[0].text = text;
        levels[0].splits = self.steps[0].splits_with(text, instruction_set);
        StepSplits { steps: &self.steps, levels, depth: 0, instruction_set }
    }
}

/// One step at work on one pre-token of the step before.
struct Level<'t> {
    text: &'t str,
    /// Where that lies in the whole text.
    base: usize,
    splits: Splits<'t>,
    ends: Vec<usize>,
    /// How many of `ends` have been handed on.
    n_given: usize,
    /// Where the next pre-token starts, in `text`.
    start: usize,
}

/// A text on its way through the steps.
pub struct StepSplits<'t> {
    steps: &'t [Pattern],
    levels: Vec<Level<'t>>,
    /// The step at work.
    depth: usize,
    instruction_set: InstructionSet,
}

impl StepSplits<'_> {
    /// As [`Splits::fill`].
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        let last = self.levels.len() - 1;
        while ends.len() < BLOCK {
            let level = &mut self.levels[self.depth];
            if level.n_given == level.ends.len() {
                level.n_given = 0;
                if !level.splits.fill(&mut level.ends)? {
                    if self.depth == 0 {
                        break;
                    }
                    self.depth -= 1;
                }
                continue;
            }
            let (start, end) = (level.start, level.ends[level.n_given]);
            level.start = end;
            level.n_given += 1;
            let base = level.base;
            if self.depth == last {
                ends.push(base + end);
                continue;
            }
            let piece = &level.text[start..end];
            self.depth += 1;
            let next = &mut self.levels[self.depth];
            next.splits = self.steps[self.depth].splits_with(piece, self.instruction_set);
            (next.text, next.base, next.start, next.n_given) = (piece, base + start, 0, 0);
            next.ends.clear();
        }
        Ok(!ends.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(pattern: &Pattern, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        pattern.for_each(text, |pretoken| all.push(pretoken.to_owned())).unwrap();
        all
    }

    fn one_after_the_other(steps: &[&str], text: &str) -> Vec<String> {
        let Some((first, rest)) = steps.split_first() else { return vec![text.to_owned()] };
        let first = pieces(&Pattern::new(Some(first)).unwrap(), text);
        first.iter().flat_map(|piece| one_after_the_other(rest, piece)).collect()
    }

    proptest! {
        #[test]
        fn each_step_cuts_what_the_one_before_has_left(
            steps in prop::collection::vec(prop::sample::select(vec![r"\p{N}{1,3}", "gpt2", "o200k", r"\s+", "[a-c]"]), 2..5),
            text in prop::collection::vec(
                prop::sample::select(vec!["12345", " word", "ABc", "  ", "\n", "日本", "'s", "1", "!?"]), 0..200,
            ).prop_map(|pieces| pieces.concat()),
        ) {
            let pattern = Pattern::new(Some(&steps.join(THEN))).unwrap();
            prop_assert!(matches!(pattern, Pattern::Steps(_)));
            prop_assert_eq!(pieces(&pattern, &text), one_after_the_other(&steps, &text));
            let again = Pattern::new(pattern.expression()).unwrap();
            prop_assert_eq!(again.expression(), pattern.expression());
        }
    }

    #[test]
    fn a_step_that_does_not_compile_is_named() {
        let error = Pattern::new(Some("gpt2(?#then)((")).unwrap_err().to_string();
        assert!(error.contains("((") && !error.contains("then"), "{error}");
    }
}
