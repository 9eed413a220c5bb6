//! Several steps as one table of transitions.

use super::dfa::{Symbols, build, collect_classes, with_symbols};
use super::step::{Event, LookAhead, START, Step, Transducer};
use crate::pretokenize::expression::{BEFORE_LINE_END, LINE_END, alternatives, forbidden, is_plain};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Symbols that the steps together may have to read again: so many in a run of one symbol, as the spaces at the start of a line are, and so
/// many otherwise.
const MAX_PENDING_RUN: usize = 32;
const MAX_PENDING: usize = 2;

/// Upper bound on the number of transitions. The published patterns have 60 to 15,000.
const MAX_TRANSITIONS: usize = 1 << 16;

/// Matches nothing.
const NEVER: &str = r"[^\s\S]";

/// What reading a symbol does if the flags of [`Automaton::table`] do not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Action {
    /// The pre-tokens that end: how many symbols before the current one, the first end first.
    pub cuts: Vec<usize>,
    /// Of the cuts of the first step, the last one.
    pub first_step_cut: Option<usize>,
    /// Where the new configuration begins in [`Automaton::table`]; `None` if the automaton gives up.
    pub next: Option<u32>,
}

/// One or several expressions as an automaton.
#[derive(Clone, Debug)]
pub struct Automaton {
    pub(super) symbols: Symbols,
    /// For every configuration, an entry per symbol: [`ENDS`], [`ENDED`], [`CUTS`] and, in the bits above the flags, where the next
    /// configuration begins; or [`ACTS`] and the index of an action.
    pub(super) table: Vec<u32>,
    pub(super) actions: Vec<Action>,
    /// For every configuration, the pre-tokens that end before the end of the text, in symbols before it.
    pub(super) finals: Vec<Vec<usize>>,
    /// Text may lie between two matches.
    pub has_gaps: bool,
}

/// A pre-token ends before the symbol.
pub const ENDS: u32 = 1;
/// One ends before the symbol before it.
pub const ENDED: u32 = 2;
pub const ACTS: u32 = 4;
/// The last of these ends is a cut of the first step of several.
pub const CUTS: u32 = 8;
pub const N_FLAGS: u32 = 4;

impl Automaton {
    /// Builds the automaton of expressions of which each splits what the one before has left; `None` if one of them needs another
    /// engine, or the automaton would be too large.
    pub fn new(expressions: &[&str]) -> Option<Self> {
        let parts: Vec<Parts> = expressions.iter().map(|expression| Parts::new(expression)).collect::<Option<_>>()?;
        let mut classes = Vec::new();
        for hir in parts.iter().flat_map(|parts| parts.all.iter().chain(&parts.forbidden)) {
            if !collect_classes(hir, &mut classes) {
                return None;
            }
        }
        let symbols = Symbols::new(&classes)?;
        let step = |parts: &Parts| Some(Transducer::new(parts.step(&classes, &symbols)?, symbols.n));
        let mut steps = parts.iter().map(step).collect::<Option<Vec<_>>>()?;
        let mut numbered = Numbered { max: MAX_TRANSITIONS / symbols.n, ..Numbered::default() };
        numbered.number(vec![START; steps.len()], &steps);
        let (mut table, mut finals) = (Vec::new(), Vec::new());
        while let Some((number, configs)) = numbered.next() {
            table.resize(numbered.numbers.len() * symbols.n, 0);
            finals.resize(numbered.numbers.len(), Vec::new());
            for &symbol in &symbols.used {
                let (action, next) = transition(&mut steps, configs.clone(), symbol);
                numbered.has_gaps |= steps.iter().zip(&next).any(|(step, &config)| step.config(config).is_in_gap);
                let next = numbered.number(next, &steps).map(|number| number * symbols.n);
                let next = next.map(u32::try_from).transpose().ok()?;
                table[number * symbols.n + usize::from(symbol)] = numbered.entry(Action { next, ..action })?;
            }
            finals[number] = final_cuts(&mut steps, configs);
        }
        Some(Self { symbols, table, actions: numbered.actions, finals, has_gaps: numbered.has_gaps })
    }

    /// Whether some text takes more to remember than there is room for.
    pub fn can_give_up(&self) -> bool {
        self.actions.iter().any(|action| action.next.is_none())
    }
}

/// What the steps do with a symbol: the cuts, and the configurations after it.
fn transition(steps: &mut [Transducer], mut configs: Vec<usize>, symbol: u8) -> (Action, Vec<usize>) {
    let n_pending = steps.iter().zip(&configs).map(|(step, &config)| step.config(config).pending.len()).sum();
    let (mut events, mut first_step_cut) = (vec![Event::Symbol(symbol)], None);
    let several = steps.len() > 1;
    for (index, (step, config)) in steps.iter_mut().zip(&mut configs).enumerate() {
        let n_own = step.config(*config).pending.len();
        events = step.read_all(config, &events);
        if index == 0 && several {
            first_step_cut = distances(&events, n_own).pop();
        }
    }
    (Action { cuts: distances(&events, n_pending), first_step_cut, next: None }, configs)
}

/// The cuts before the end of a text that ends in some configurations.
fn final_cuts(steps: &mut [Transducer], mut configs: Vec<usize>) -> Vec<usize> {
    let n_pending = steps.iter().zip(&configs).map(|(step, &config)| step.config(config).pending.len()).sum();
    let mut events = vec![Event::Cut];
    for (step, config) in steps.iter_mut().zip(&mut configs) {
        events = step.read_all(config, &events);
    }
    distances(&events, n_pending).into_iter().filter(|&distance| distance > 0).collect()
}

/// How many symbols before the current one the cuts are, of which `n_pending` had not been passed on.
fn distances(events: &[Event], n_pending: usize) -> Vec<usize> {
    let (mut found, mut n_passed) = (Vec::new(), 0);
    for event in events {
        match event {
            Event::Cut => found.push(n_pending - n_passed),
            Event::Symbol(_) => n_passed += 1,
        }
    }
    found
}

/// The expressions of one step: those of [`Step::all`], and the class that a look-ahead forbids.
struct Parts {
    all: Vec<Hir>,
    forbidden: Option<Hir>,
}

impl Parts {
    fn new(expression: &str) -> Option<Self> {
        let expression = &expression.replace(BEFORE_LINE_END, LINE_END);
        let alternatives = alternatives(expression)?;
        let look_aheads: Vec<(usize, &str)> =
            alternatives.iter().enumerate().filter_map(|(at, each)| Some((at, forbidden(each)?))).collect();
        let look_ahead = look_aheads.first();
        let is_known = |(at, each): (usize, &&str)| look_ahead.is_some_and(|found| found.0 == at) || is_plain(each);
        if look_aheads.len() > 1 || !alternatives.iter().enumerate().all(is_known) {
            return None;
        }
        let parsed = |expression: &str| regex_syntax::parse(expression).ok();
        let Some(&(at, class)) = look_ahead else {
            return Some(Self { all: vec![parsed(expression)?], forbidden: None });
        };
        let [before, after] = [&alternatives[..at], &alternatives[at + 1..]].map(joined);
        Some(Self { all: vec![parsed(&before)?, parsed(r"\s+")?, parsed(&after)?], forbidden: Some(parsed(class)?) })
    }

    fn step(&self, classes: &[ClassUnicode], symbols: &Symbols) -> Option<Step> {
        let all: Vec<Hir> = self.all.iter().map(|hir| with_symbols(hir, classes, symbols)).collect();
        let look_ahead = match self.forbidden.as_ref().map(Hir::kind) {
            None => None,
            Some(HirKind::Class(Class::Unicode(class))) => {
                let mut forbidden = vec![false; symbols.n];
                let members = symbols.members(classes.iter().position(|each| each == class)?);
                members.iter().for_each(|&symbol| forbidden[usize::from(symbol)] = true);
                Some(LookAhead { forbidden, rest: build(&all[2..], symbols)? })
            }
            Some(_) => return None,
        };
        Some(Step { all: build(&all, symbols)?, look_ahead })
    }
}

fn joined(alternatives: &[&str]) -> String {
    if alternatives.is_empty() { NEVER.to_owned() } else { alternatives.join("|") }
}

/// The configurations of all steps, and the actions, by number.
#[derive(Default)]
struct Numbered {
    /// Upper bound on the number of configurations.
    max: usize,
    numbers: HashMap<Vec<usize>, usize>,
    /// Those whose transitions are not known yet. Those after runs come first, so that they are there if there are too many.
    queue: BinaryHeap<Reverse<(bool, usize, Vec<usize>)>>,
    actions: Vec<Action>,
    action_numbers: HashMap<Action, usize>,
    has_gaps: bool,
}

impl Numbered {
    fn next(&mut self) -> Option<(usize, Vec<usize>)> {
        self.queue.pop().map(|Reverse((_, number, configs))| (number, configs))
    }

    /// `None` if there is too much to remember.
    fn number(&mut self, configs: Vec<usize>, steps: &[Transducer]) -> Option<usize> {
        if let Some(&number) = self.numbers.get(&configs) {
            return Some(number);
        }
        let mut pending = steps.iter().zip(&configs).flat_map(|(step, &config)| &step.config(config).pending);
        let (n_pending, first) = (pending.clone().count(), pending.clone().next());
        let is_mixed = pending.any(|symbol| Some(symbol) != first);
        let number = self.numbers.len();
        if n_pending > if is_mixed { MAX_PENDING } else { MAX_PENDING_RUN } || number == self.max {
            return None;
        }
        self.queue.push(Reverse((is_mixed, number, configs.clone())));
        self.numbers.insert(configs, number);
        Some(number)
    }

    /// The entry of [`Automaton::table`] for an action.
    fn entry(&mut self, action: Action) -> Option<u32> {
        let flags = match action.cuts[..] {
            [] => Some(0),
            [0] => Some(ENDS),
            [1] => Some(ENDED),
            [1, 0] => Some(ENDED | ENDS),
            _ => None,
        };
        // The later steps end a pre-token where the first one does.
        let is_last_cut = action.first_step_cut == action.cuts.last().copied();
        if let (Some(next), Some(flags)) = (action.next, flags)
            && (action.first_step_cut.is_none() || is_last_cut)
        {
            let cuts = if action.first_step_cut.is_some() { CUTS } else { 0 };
            return Some(next << N_FLAGS | flags | cuts);
        }
        let number = self.actions.len();
        let number = *self.action_numbers.entry(action).or_insert_with_key(|action| {
            self.actions.push(action.clone());
            number
        });
        Some(u32::try_from(number).ok()? << N_FLAGS | ACTS)
    }
}
