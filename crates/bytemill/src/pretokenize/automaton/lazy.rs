//! An automaton that is built once there is enough text for it.

use super::Automaton;
use crate::pretokenize::expression::THEN;
use once_cell::race::OnceBox;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of text that are split without an automaton: building it takes as long as splitting some of them.
const N_BYTES_BEFORE: usize = 1 << 16;

/// The automaton of an expression, or of several with [`THEN`] in between, which clones share.
#[derive(Clone, Debug, Default)]
pub struct LazyAutomaton {
    built: Arc<OnceBox<Option<Automaton>>>,
    n_bytes: Arc<AtomicUsize>,
}

impl LazyAutomaton {
    /// The automaton, if there is one.
    pub fn get(&self, expression: &str) -> Option<&Automaton> {
        let build = || Box::new(Automaton::new(&expression.split(THEN).collect::<Vec<_>>()));
        self.built.get_or_init(build).as_ref()
    }

    /// The automaton, unless the texts so far were too short for it.
    pub fn for_text(&self, expression: &str, text: &str) -> Option<&Automaton> {
        if let Some(built) = self.built.get() {
            return built.as_ref();
        }
        let n_bytes = self.n_bytes.fetch_add(text.len(), Ordering::Relaxed) + text.len();
        if n_bytes > N_BYTES_BEFORE { self.get(expression) } else { None }
    }

    /// None, however long the texts are.
    #[cfg(test)]
    pub fn never() -> Self {
        let never = Self::default();
        never.built.set(Box::new(None)).unwrap();
        never
    }
}
