//! A step whose configurations are numbered. What it does in each of them is worked out once.

use super::step::{Config, Event, Step};
use std::collections::HashMap;

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
