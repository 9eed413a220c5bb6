//! The alphabet of an automaton, sets of characters between which its expressions do not distinguish, and a deterministic
//! automaton over it.

use regex_automata::dfa::dense::{Builder, Config, DFA};
use regex_automata::dfa::{Automaton as _, StartKind};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, ClassUnicode, Hir, HirKind, Look, Repetition};
use std::collections::{BTreeSet, HashMap};

/// Upper bound on the number of symbols.
const MAX_SYMBOLS: usize = 128;

/// The symbol of the line feed where a line may end, which the assertion `(?m:$)` looks for.
const LINE_FEED: u8 = b'\n';

/// Code points of one entry of [`Symbols::blocks`].
const BLOCK: usize = 128;
const N_CODE_POINTS: usize = 0x11_0000;

/// Code points that are no characters.
const SURROGATES: std::ops::Range<usize> = 0xD800..0xE000;

/// The symbol of every character.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The symbols of the characters of ASCII.
    pub ascii: [u8; 128],
    /// For every block of code points, the index of its symbols in `of`, in blocks.
    blocks: Vec<u16>,
    of: Vec<u8>,
    /// The symbols that characters have.
    pub used: Vec<u8>,
    /// One more than the largest symbol.
    pub n: usize,
    /// The symbols of each class.
    members: Vec<Vec<u8>>,
}

impl Symbols {
    /// The coarsest alphabet in which each class is a set of symbols; `None` if that takes too many.
    pub fn new(classes: &[ClassUnicode]) -> Option<Self> {
        let mut borders = BTreeSet::from([0, N_CODE_POINTS]);
        for range in classes.iter().flat_map(ClassUnicode::ranges) {
            borders.extend([range.start() as usize, range.end() as usize + 1]);
        }
        let starts: Vec<usize> = borders.into_iter().collect();
        let mut within = vec![vec![false; classes.len()]; starts.len() - 1];
        for (index, class) in classes.iter().enumerate() {
            let mut ranges = class.ranges().iter().peekable();
            for (start, is_in) in starts.iter().zip(&mut within) {
                while ranges.next_if(|range| (range.end() as usize) < *start).is_some() {}
                is_in[index] = ranges.peek().is_some_and(|range| range.start() as usize <= *start);
            }
        }
        let (mut known, mut members, mut used) = (HashMap::new(), vec![Vec::new(); classes.len()], Vec::new());
        let mut all = vec![0; N_CODE_POINTS];
        for (bounds, is_in) in starts.windows(2).zip(&within) {
            let is_line_feed = bounds == [usize::from(LINE_FEED), usize::from(LINE_FEED) + 1];
            if SURROGATES.contains(&bounds[0]) && SURROGATES.contains(&(bounds[1] - 1)) {
                continue;
            }
            let symbol = *known.entry((is_line_feed, is_in)).or_insert_with(|| {
                let n = u8::try_from(used.len()).unwrap_or(u8::MAX);
                let symbol = if is_line_feed { LINE_FEED } else { n + u8::from(n >= LINE_FEED) };
                used.push(symbol);
                members.iter_mut().zip(is_in).filter(|(_, is_in)| **is_in).for_each(|(of, _)| of.push(symbol));
                symbol
            });
            if used.len() > MAX_SYMBOLS {
                return None;
            }
            all[bounds[0]..bounds[1]].fill(symbol);
        }
        let (mut blocks, mut of, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        for block in all.chunks(BLOCK) {
            let place = *places.entry(block).or_insert_with(|| {
                of.extend_from_slice(block);
                of.len() / BLOCK - 1
            });
            blocks.push(u16::try_from(place).ok()?);
        }
        let n = used.iter().max().map_or(0, |&symbol| usize::from(symbol) + 1);
        Some(Self { ascii: std::array::from_fn(|byte| all[byte]), blocks, of, used, n, members })
    }

    /// The symbols of the class with this index.
    pub fn members(&self, class: usize) -> &[u8] {
        &self.members[class]
    }

    #[inline]
    pub fn of(&self, character: char) -> u8 {
        let at = character as usize;
        self.of[usize::from(self.blocks[at / BLOCK]) * BLOCK + at % BLOCK]
    }
}

// A deterministic automaton over symbols, built by the crate `regex-automata`.

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

#[cfg(test)]
#[path = "tests/symbols.rs"]
mod tests;
