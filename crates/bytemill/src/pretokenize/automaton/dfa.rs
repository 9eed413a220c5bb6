//! A deterministic automaton over symbols, built by the crate `regex-automata`.

use super::symbols::Symbols;
use regex_automata::dfa::dense::{Builder, Config, DFA};
use regex_automata::dfa::{Automaton as _, StartKind};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, ClassUnicode, Hir, HirKind, Look, Repetition};
use std::collections::HashMap;

/// Bounds on the memory of an automaton and of its construction.
const MAX_BYTES: usize = 4 << 20;
const MAX_BUILD_BYTES: usize = 16 << 20;

/// What has been read of a match, and how it can go on.
#[derive(Clone, Debug)]
pub struct State {
    /// The state after each symbol; `None` if no match has it.
    pub next: Vec<Option<usize>>,
    /// The expression of which a match ends here if this symbol follows.
    pub accept: Vec<Option<usize>>,
    /// The same at the end of the text.
    pub accept_end: Option<usize>,
}

impl State {
    /// The expression of which a match ends here whatever follows.
    pub fn accepts(&self) -> Option<usize> {
        self.accept_end.filter(|_| self.accept.iter().all(|each| *each == self.accept_end))
    }
}

/// The states; the first one is the start.
pub type States = Vec<State>;

/// The automaton of some expressions, which prefers the alternatives of the first ones.
pub fn build(expressions: &[Hir], symbols: &Symbols) -> Option<States> {
    let config = Config::new()
        .match_kind(MatchKind::LeftmostFirst)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .dfa_size_limit(Some(MAX_BYTES))
        .determinize_size_limit(Some(MAX_BUILD_BYTES));
    let thompson = thompson::Config::new()
        .utf8(false)
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(MAX_BUILD_BYTES));
    let nfa = thompson::Compiler::new().configure(thompson).build_many_from_hir(expressions).ok()?;
    let dfa = Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
    let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes)).ok()?;
    Some(states(&dfa, start, symbols.n))
}

/// The states that are reachable. One of the crate says what ended before the last symbol, besides what has been read; its twins that
/// differ only in the former become one.
fn states(dfa: &DFA<Vec<u32>>, start: StateID, n_symbols: usize) -> States {
    let row = |id: StateID| {
        let symbols = (0..n_symbols).filter_map(|symbol| u8::try_from(symbol).ok());
        symbols.map(|symbol| dfa.next_state(id, symbol)).chain([dfa.next_eoi_state(id)]).collect::<Vec<_>>()
    };
    let ended = |id: StateID| dfa.is_match_state(id).then(|| dfa.match_pattern(id, 0).as_usize());
    let mut rows = vec![row(start)];
    let mut known: HashMap<Vec<StateID>, usize> = HashMap::from([(rows[0].clone(), 0)]);
    let mut found = Vec::new();
    while let Some(ids) = rows.get(found.len()) {
        let ids = ids.clone();
        let next = |&id: &StateID| {
            let own = row(id);
            if own.iter().all(|&after| dfa.is_dead_state(after)) {
                return None;
            }
            Some(*known.entry(own.clone()).or_insert_with(|| {
                rows.push(own);
                rows.len() - 1
            }))
        };
        let next = ids[..n_symbols].iter().map(next).collect();
        let accept = ids[..n_symbols].iter().map(|&id| ended(id)).collect();
        found.push(State { next, accept, accept_end: ended(ids[n_symbols]) });
    }
    found
}

/// The classes of an expression, each character as one. False if it has what is no matter of characters.
pub fn collect_classes(hir: &Hir, into: &mut Vec<ClassUnicode>) -> bool {
    let mut add = |class: ClassUnicode| {
        if !into.contains(&class) {
            into.push(class);
        }
        true
    };
    match hir.kind() {
        HirKind::Empty => true,
        HirKind::Look(look) => *look == Look::EndLF && add(single('\n')),
        HirKind::Literal(literal) => {
            std::str::from_utf8(&literal.0).is_ok_and(|text| text.chars().all(|each| add(single(each))))
        }
        HirKind::Class(Class::Unicode(class)) => add(class.clone()),
        // What never matches.
        HirKind::Class(Class::Bytes(class)) => class.ranges().is_empty(),
        HirKind::Repetition(repetition) => collect_classes(&repetition.sub, into),
        HirKind::Capture(capture) => collect_classes(&capture.sub, into),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(|part| collect_classes(part, into)),
    }
}

/// An expression with symbols in the place of characters.
pub fn with_symbols(hir: &Hir, classes: &[ClassUnicode], symbols: &Symbols) -> Hir {
    let class = |class: &ClassUnicode| {
        let index = classes.iter().position(|each| each == class);
        let members = index.map_or(&[][..], |index| symbols.members(index));
        Hir::class(Class::Bytes(ClassBytes::new(members.iter().map(|&symbol| ClassBytesRange::new(symbol, symbol)))))
    };
    let part = |hir: &Hir| with_symbols(hir, classes, symbols);
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Look(look) => Hir::look(*look),
        HirKind::Literal(literal) => {
            Hir::concat(String::from_utf8_lossy(&literal.0).chars().map(|each| class(&single(each))).collect())
        }
        HirKind::Class(Class::Unicode(own)) => class(own),
        HirKind::Class(Class::Bytes(_)) => Hir::fail(),
        HirKind::Repetition(repetition) => {
            let &Repetition { min, max, greedy, ref sub } = repetition;
            Hir::repetition(Repetition { min, max, greedy, sub: Box::new(part(sub)) })
        }
        HirKind::Capture(capture) => part(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(part).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(part).collect()),
    }
}

fn single(character: char) -> ClassUnicode {
    ClassUnicode::new([regex_syntax::hir::ClassUnicodeRange::new(character, character)])
}
