//! The interface of the pre-tokenizer: a pattern, and the pre-tokens of a text.
//!
//! In reading order: [`Pattern`] is how a text is split, and [`Pattern::new`] chooses the fastest matcher that an expression has.
//! [`Splits`] are the pre-tokens of one text, as their ends, many at a time: [`Splits::fill`] asks the matcher, which is one of
//! `blocks`, `spaces` and `custom`, or one of the two below. Patterns in a row are made of patterns, so they are here too:
//! [`Steps`] are one automaton for all of them or, where that gives up, [`Levels`] of patterns that take turns. [`ByteSteps`] are
//! steps on characters and then an automaton on bytes.

use super::automaton::{Automaton, ByteAutomaton, ByteScan, LazyAutomaton, Scan, Stop};
use super::blocks::{Blocks, MAX_ENDS};
use super::classify::InstructionSet;
use super::compile;
use super::custom::{CustomPattern, CustomSplits};
use super::expression::{THEN, THEN_BYTES};
use super::named::{NAMED, NamedPattern};
use super::rules::{Any, Rules};
use super::spaces::{Spaces, SpacesSplits};
use crate::error::{Error, Result};
use std::sync::Arc;

/// What finds the pre-tokens of a text, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matcher {
    /// Rules on bit masks, or a search for bytes.
    Masks,
    /// A finite automaton, which reads each byte once.
    Automaton,
    /// A backtracking engine, which is slow.
    Backtracking,
}

/// How a text is split into pre-tokens.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// The text is one pre-token.
    Whole,
    /// A pattern with a matcher of its own.
    Named(&'static NamedPattern),
    /// An expression, or several patterns in a row, with rules like those of the named patterns.
    Ruled(Arc<RuledPattern>),
    /// Before spaces.
    Spaces(Spaces),
    /// Any other expression, matched by a regex engine.
    Custom(Box<CustomPattern>),
    /// Several patterns in a row. Each splits the pre-tokens of the one before.
    Steps(Box<Steps>),
    /// Patterns in a row, and then expressions for bytes, which may divide characters.
    ByteSteps(Box<ByteSteps>),
}

/// An expression with rules on masks.
#[derive(Clone, Debug)]
pub struct RuledPattern {
    /// The expression, or several with [`THEN`] in between.
    pub expression: String,
    rules: Rules,
}

impl RuledPattern {
    pub(super) fn blocks<'t>(&'t self, text: &'t str, instruction_set: InstructionSet) -> Blocks<'t> {
        Blocks::new::<Any>(text.as_bytes(), &self.rules, instruction_set)
    }
}

impl Pattern {
    /// GPT-2's pattern.
    pub const GPT2: Self = Self::Named(&NAMED[0]);

    /// Creates a pattern from the name of a [named pattern](NAMED) or from an expression. `None` does not split. Several of them with
    /// [`THEN`] in between apply one after the other, and those after [`THEN_BYTES`] to bytes.
    ///
    /// # Errors
    /// [`crate::Error::Pattern`] if the expression does not compile.
    pub fn new(pattern: Option<&str>) -> Result<Self> {
        let Some(pattern) = pattern else { return Ok(Self::Whole) };
        if let Some((before, after)) = pattern.split_once(THEN_BYTES) {
            return Ok(Self::ByteSteps(Box::new(ByteSteps::new(before, after)?)));
        }
        if pattern.contains(THEN) {
            let steps = Steps::new(pattern)?;
            let expressions: Vec<&str> = steps.expression.split(THEN).collect();
            return Ok(match compile::rules(&expressions) {
                Some(rules) => Self::Ruled(Arc::new(RuledPattern { expression: steps.expression, rules })),
                None => Self::Steps(Box::new(steps)),
            });
        }
        if let Some(spaces) = Spaces::find(pattern) {
            return Ok(Self::Spaces(spaces));
        }
        if let Some(named) = NamedPattern::find(pattern) {
            return Ok(Self::Named(named));
        }
        let expression = pattern.to_owned();
        Ok(match compile::rules(&[pattern]) {
            Some(rules) => Self::Ruled(Arc::new(RuledPattern { expression, rules })),
            None => Self::Custom(Box::new(CustomPattern::new(pattern)?)),
        })
    }

    /// Sets whether text that the pattern does not match is dropped, as tiktoken does, or becomes pre-tokens. Only custom patterns
    /// leave text unmatched.
    #[must_use]
    pub fn dropping_unmatched(mut self, yes: bool) -> Self {
        if let Self::Custom(custom) = &mut self {
            custom.drops_unmatched = yes;
        }
        self
    }

    /// The name of the named pattern with this name or expression.
    pub fn name_for(pattern: &str) -> Option<&'static str> {
        NamedPattern::find(pattern).map(|named| named.name)
    }

    /// The expression, `None` for [`Pattern::Whole`].
    pub fn expression(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Named(named) => Some(named.expression),
            Self::Ruled(ruled) => Some(&ruled.expression),
            Self::Spaces(spaces) => Some(spaces.expression()),
            Self::Custom(custom) => Some(&custom.expression),
            Self::Steps(steps) => Some(&steps.expression),
            Self::ByteSteps(steps) => Some(&steps.expression),
        }
    }

    /// What finds the pre-tokens; of several steps the slowest.
    pub fn matcher(&self) -> Matcher {
        match self {
            Self::Whole | Self::Named(_) | Self::Ruled(_) | Self::Spaces(_) => Matcher::Masks,
            Self::Custom(custom) if custom.has_automaton() => Matcher::Automaton,
            Self::Custom(_) => Matcher::Backtracking,
            Self::Steps(steps) => steps.matcher(),
            Self::ByteSteps(steps) => steps.matcher(),
        }
    }

    /// The end of the first pre-token of a text that is not empty.
    pub(super) fn first_end(&self, text: &str) -> Result<usize> {
        if let Self::Custom(custom) = self {
            return custom.first_end(text);
        }
        let (mut splits, mut ends) = (self.splits(text), Vec::new());
        while ends.is_empty() && splits.fill(&mut ends)? {}
        Ok(ends.first().copied().unwrap_or(text.len()))
    }

    /// Splits `text` into pre-tokens, many at a time.
    pub fn splits<'t>(&'t self, text: &'t str) -> Splits<'t> {
        Splits(match self {
            Self::Whole => Source::Whole((!text.is_empty()).then_some(text.len())),
            Self::Named(named) => Source::Blocks(named.blocks(text, InstructionSet::best())),
            Self::Ruled(ruled) => Source::Blocks(ruled.blocks(text, InstructionSet::best())),
            Self::Spaces(spaces) => Source::Spaces(SpacesSplits::new(*spaces, text)),
            Self::Custom(custom) => Source::Custom(custom.splits(text)),
            Self::Steps(steps) => Source::Steps(Box::new(steps.splits(text))),
            Self::ByteSteps(steps) => Source::Bytes(Box::new(steps.splits(text))),
        })
    }

    /// [`Pattern::splits`] on masks with each instruction set of this processor, the slowest first. For tests.
    pub fn splits_by_instruction_set<'t>(&'t self, text: &'t str) -> Vec<(String, Splits<'t>)> {
        let splits = |set| match self {
            Self::Named(named) => Some(Splits(Source::Blocks(named.blocks(text, set)))),
            Self::Ruled(ruled) => Some(Splits(Source::Blocks(ruled.blocks(text, set)))),
            _ => None,
        };
        InstructionSet::available().filter_map(|set| Some((format!("{set:?}"), splits(set)?))).collect()
    }

    /// Calls `each` with every pre-token of `text` in order.
    ///
    /// # Errors
    /// As [`Splits::fill`].
    pub fn for_each<'t>(&self, text: &'t str, mut each: impl FnMut(&'t [u8])) -> Result<()> {
        let mut ends = Vec::with_capacity(MAX_ENDS);
        let mut splits = self.splits(text);
        let mut start = 0;
        while splits.fill(&mut ends)? {
            start = splits.block_start(start);
            for &end in &ends {
                each(&text.as_bytes()[start..end]);
                start = end;
            }
        }
        Ok(())
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct Splits<'t>(Source<'t>);

enum Source<'t> {
    /// The end of the text, until it is returned.
    Whole(Option<usize>),
    Blocks(Blocks<'t>),
    Spaces(SpacesSplits<'t>),
    Custom(CustomSplits<'t>),
    Steps(Box<StepsSplits<'t>>),
    Bytes(Box<BytesSplits<'t>>),
}

impl Splits<'_> {
    /// Replaces `ends` by the ends of the next pre-tokens, at most [`MAX_ENDS`]. Returns false at the end of the text. A call that returns
    /// true may add none: a long pre-token may take several calls.
    ///
    /// # Errors
    /// [`crate::Error::Pattern`] if a custom pattern exceeds its backtracking limit.
    #[inline]
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        ends.clear();
        match &mut self.0 {
            Source::Blocks(blocks) => Ok(blocks.fill(ends)),
            Source::Spaces(spaces) => Ok(spaces.fill(ends)),
            Source::Custom(custom) => custom.fill(ends),
            Source::Steps(steps) => steps.fill(ends),
            Source::Bytes(bytes) => bytes.fill(ends),
            Source::Whole(end) => {
                ends.extend(end.take());
                Ok(!ends.is_empty())
            }
        }
    }

    /// Start of the first pre-token of the last [`Splits::fill`]: `done`, the end of the pre-token before, unless text in between is
    /// dropped.
    #[inline]
    pub fn block_start(&self, done: usize) -> usize {
        if let Source::Custom(custom) = &self.0 { custom.start } else { done }
    }
}

/// Several patterns in a row: each splits every pre-token of the one before as if it were a text of its own.
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

/// Steps on characters, and then steps on bytes.
///
/// Steps that follow `ByteLevel` in a `tokenizer.json`, as in Falcon's, see one character for each byte, those of GPT-2's table. Some of
/// the bytes that begin or continue a character outside ASCII stand for numbers there, `²` for example. So these steps may divide a
/// character.
#[derive(Clone, Debug)]
pub struct ByteSteps {
    pub expression: String,
    before: Pattern,
    after: ByteAutomaton,
}

impl ByteSteps {
    /// Creates the steps from both lists of expressions. The first one may be empty.
    pub fn new(before: &str, after: &str) -> Result<Self> {
        let expression = [before, after].join(THEN_BYTES);
        let before = Pattern::new((!before.is_empty()).then_some(before))?;
        let by_name = |step| NamedPattern::find(step).map_or(step, |named| named.expression);
        let steps: Vec<&str> = after.split(THEN).map(by_name).collect();
        let after = Automaton::new(&steps).and_then(ByteAutomaton::new).ok_or_else(|| {
            Error::Pattern(format!("the steps on bytes {after:?} need backtracking, or look ahead without bound"))
        })?;
        Ok(Self { expression, before, after })
    }

    pub fn matcher(&self) -> Matcher {
        // With `max` instead, LLVM in Rust 1.95 takes it for certain that no pattern's matcher is the first one.
        match self.before.matcher() {
            Matcher::Masks | Matcher::Automaton => Matcher::Automaton,
            Matcher::Backtracking => Matcher::Backtracking,
        }
    }

    pub fn splits<'t>(&'t self, text: &'t str) -> BytesSplits<'t> {
        BytesSplits {
            before: self.before.splits(text),
            pretoken_ends: Vec::new(),
            n_done: 0,
            scan: ByteScan::new(&self.after, text.as_bytes()),
        }
    }
}

/// An iterator over the ends of a text's pre-tokens, many at a time.
pub struct BytesSplits<'t> {
    before: Splits<'t>,
    /// The ends of pre-tokens of the steps on characters, and how many of them are divided.
    pretoken_ends: Vec<usize>,
    n_done: usize,
    scan: ByteScan<'t>,
}

impl BytesSplits<'_> {
    /// Appends the ends of the next pre-tokens. Returns false at the end of the text.
    pub fn fill(&mut self, ends: &mut Vec<usize>) -> Result<bool> {
        if self.n_done == self.pretoken_ends.len() {
            self.n_done = 0;
            if !self.before.fill(&mut self.pretoken_ends)? {
                return Ok(false);
            }
        }
        while let Some(&end) = self.pretoken_ends.get(self.n_done) {
            if !self.scan.fill(end, ends) {
                break;
            }
            self.n_done += 1;
        }
        Ok(true)
    }
}
