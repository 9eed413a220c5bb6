//! How one expression divides a text that arrives symbol by symbol, in the pre-tokens that the expressions before it have cut.
//!
//! This is the search for matches one after the other, written down as a function of what is still undecided: where the search of the
//! current match has got to, and the symbols that it has read beyond what is known of them.

use super::dfa::{State, States};
use std::collections::{HashMap, VecDeque};

/// The expression `\s+` of a look-ahead among those of [`Step::all`].
const WHITE_SPACE: usize = 1;

/// What one step passes to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pre-token ends here, before the symbol that is passed next.
    Cut,
    Symbol(u8),
}

/// An expression.
#[derive(Debug)]
pub struct Step {
    /// The alternatives before `\s+(?!…)`, `\s+`, and those after it; without a look-ahead, all of them as one.
    pub all: States,
    pub look_ahead: Option<LookAhead>,
}

#[derive(Debug)]
pub struct LookAhead {
    /// Whether a symbol must not follow.
    pub forbidden: Vec<bool>,
    /// The alternatives after it.
    pub rest: States,
}

/// What is undecided between two symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// No match began at the symbol before `start`, the one at which the current search begins.
    pub is_in_gap: bool,
    /// The search is for [`LookAhead::rest`].
    is_rest: bool,
    state: usize,
    /// A match from `start` on is known. Its symbols are passed on.
    is_matched: bool,
    /// The last match is of the white space before a look-ahead.
    run: Run,
    /// The symbols read but not passed on: those from `start` on if no match is known, else those after it. The last symbol of the
    /// white space before a look-ahead is the first of them.
    pub pending: Vec<u8>,
}

/// White space before a look-ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Run {
    #[default]
    None,
    One,
    Several,
}

impl Step {
    /// Passes on what is decided once `event` has arrived.
    pub fn read(&self, config: &mut Config, event: Event, out: &mut Vec<Event>) {
        match event {
            Event::Symbol(symbol) => self.read_symbols(config, VecDeque::from([symbol]), out),
            Event::Cut => self.finish(config, out),
        }
    }

    /// The pre-token of the step before has ended.
    fn finish(&self, config: &mut Config, out: &mut Vec<Event>) {
        loop {
            if let Some(expression) = self.state(config).accept_end {
                self.matched(config, expression, out);
            }
            if config.pending.is_empty() {
                break;
            }
            let mut again = VecDeque::new();
            self.decide(config, None, &mut again, out);
            self.read_symbols(config, again, out);
        }
        if *config != Config::default() {
            out.push(Event::Cut);
            *config = Config::default();
        }
    }

    fn read_symbols(&self, config: &mut Config, mut input: VecDeque<u8>, out: &mut Vec<Event>) {
        while let Some(symbol) = input.pop_front() {
            let state = self.state(config);
            if let Some(expression) = state.accept[usize::from(symbol)] {
                self.matched(config, expression, out);
            }
            let Some(next) = state.next[usize::from(symbol)] else {
                self.decide(config, Some(symbol), &mut input, out);
                continue;
            };
            config.state = next;
            config.pending.push(symbol);
            if let Some(expression) = self.state(config).accepts() {
                self.matched(config, expression, out);
            }
        }
    }

    fn state(&self, config: &Config) -> &State {
        match &self.look_ahead {
            Some(look_ahead) if config.is_rest => &look_ahead.rest[config.state],
            _ => &self.all[config.state],
        }
    }

    /// A match ends after the symbols read so far.
    fn matched(&self, config: &mut Config, expression: usize, out: &mut Vec<Event>) {
        let Some((&last, others)) = config.pending.split_last() else { return };
        let is_before_look_ahead = self.look_ahead.is_some() && !config.is_rest && expression == WHITE_SPACE;
        if is_before_look_ahead && others.is_empty() && !config.is_matched {
            config.run = Run::One;
            return;
        }
        if config.is_in_gap && !config.is_matched {
            out.push(Event::Cut);
        }
        config.is_matched = true;
        out.extend(others.iter().copied().map(Event::Symbol));
        config.pending.clear();
        if is_before_look_ahead {
            config.run = Run::Several;
            config.pending.push(last);
        } else {
            config.run = Run::None;
            out.push(Event::Symbol(last));
        }
    }

    /// No match goes on with `next`, or the pre-token of the step before has ended. Puts what must be read again before the rest of the input.
    fn decide(&self, config: &mut Config, next: Option<u8>, input: &mut VecDeque<u8>, out: &mut Vec<Event>) {
        let mut again: Vec<u8> = config.pending.drain(..).chain(next).collect();
        let &mut Config { is_in_gap, is_matched, run, .. } = config;
        let is_forbidden =
            |symbol: u8| self.look_ahead.as_ref().is_some_and(|look_ahead| look_ahead.forbidden[usize::from(symbol)]);
        let after = Config::default();
        *config = match run {
            Run::None if is_matched => {
                out.push(Event::Cut);
                after
            }
            Run::None => {
                out.push(Event::Symbol(again.remove(0)));
                Config { is_in_gap: true, ..after }
            }
            _ if !again.get(1).is_some_and(|&symbol| is_forbidden(symbol)) => {
                if is_in_gap && !is_matched {
                    out.push(Event::Cut);
                }
                out.extend([Event::Symbol(again.remove(0)), Event::Cut]);
                after
            }
            Run::Several => {
                out.push(Event::Cut);
                after
            }
            Run::One => Config { is_in_gap, is_rest: true, ..after },
        };
        again.into_iter().rev().for_each(|symbol| input.push_front(symbol));
    }
}

// A step whose configurations are numbered. What it does in each of them is worked out once.

/// The configuration at the start of a text.
pub const START: usize = 0;

/// A step, and what is known of it.
#[derive(Debug)]
pub struct Transducer {
    step: Step,
    /// One more than the largest symbol.
    n_symbols: usize,
    configs: Vec<Config>,
    numbers: HashMap<Config, usize>,
    /// For each configuration, what each event does in it; the last one is [`Event::Cut`].
    known: Vec<Vec<Option<Transition>>>,
}

#[derive(Clone, Debug)]
struct Transition {
    next: usize,
    passed: Vec<Event>,
}

impl Transducer {
    pub fn new(step: Step, n_symbols: usize) -> Self {
        let mut new = Self { step, n_symbols, configs: Vec::new(), numbers: HashMap::new(), known: Vec::new() };
        new.number(Config::default());
        new
    }

    pub fn config(&self, number: usize) -> &Config {
        &self.configs[number]
    }

    /// Passes on what is decided once these events have arrived.
    pub fn read_all(&mut self, config: &mut usize, events: &[Event]) -> Vec<Event> {
        let mut out = Vec::new();
        for &event in events {
            let column = match event {
                Event::Symbol(symbol) => usize::from(symbol),
                Event::Cut => self.n_symbols,
            };
            let transition = match &self.known[*config][column] {
                Some(known) => known,
                None => {
                    let (mut after, mut passed) = (self.configs[*config].clone(), Vec::new());
                    self.step.read(&mut after, event, &mut passed);
                    let next = self.number(after);
                    self.known[*config][column].insert(Transition { next, passed })
                }
            };
            *config = transition.next;
            out.extend_from_slice(&transition.passed);
        }
        out
    }

    fn number(&mut self, config: Config) -> usize {
        let new = self.configs.len();
        *self.numbers.entry(config).or_insert_with_key(|config| {
            self.configs.push(config.clone());
            self.known.push(vec![None; self.n_symbols + 1]);
            new
        })
    }
}
