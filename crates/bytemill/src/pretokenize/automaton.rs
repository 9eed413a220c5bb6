//! Custom patterns by a finite automaton, which reads each byte once and never backtracks.
//!
//! An expression is divided at its top-level `|` into alternatives. Each must be a regular expression in the narrow sense, without
//! look-around, anchors, back-references and possessive quantifiers, except that one of them may be white space with a look-ahead,
//! `\s+(?!\S)`, which most published patterns have. The automaton then looks for the alternatives before it, for `\s+` in its place, and
//! for those after it, in this order of preference.
//!
//! If `\s+` has matched, the run of white space is known, and with it what the look-ahead leaves of it: the whole run if nothing forbidden
//! follows, else all but its last character, since white space is not forbidden. A run of a single character leaves nothing: then an
//! automaton of the alternatives after it decides.
//!
//! A match begins where the one before it has ended, with few exceptions, so the automata are anchored: they report where a match ends in
//! one pass, and need not search for its start. Where none begins, every next character is tried. An expression such as `a*b` could
//! read a long run of `a` again and again, so the search gives up once it has read much in vain, and the other engine continues from there.

use regex_automata::dfa::dense::{Builder, Config, DFA};
use regex_automata::dfa::{Automaton as _, StartKind};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};

/// Bounds on the memory of an automaton and of its construction. The published patterns need 0.1 to 1.5 MB, and 2 to 30 ms.
const MAX_BYTES: usize = 8 << 20;
const MAX_BUILD_BYTES: usize = 32 << 20;

/// Matches nothing.
const NEVER: &str = r"[^\s\S]";

/// The end of a line as Oniguruma's `$` is translated, and as an assertion that an automaton knows.
pub(super) const BEFORE_LINE_END: &str = r"(?=\n|\z)";
pub(super) const LINE_END: &str = "(?m:$)";

/// Bytes that a search may read in vain.
const MAX_IN_VAIN: usize = 1 << 14;

/// An automaton, and its only start.
#[derive(Clone, Debug)]
struct Dense {
    dfa: DFA<Vec<u32>>,
    start: StateID,
}

/// What a search has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Start and end of a match that is not empty.
    Match(usize, usize),
    /// There is none up to the end of the text.
    None,
    /// There is none that begins before this position, and the search has given up.
    Unknown(usize),
}

/// An expression as an automaton.
#[derive(Clone, Debug)]
pub struct Automaton {
    /// The alternatives before the look-ahead, `\s+`, and those after it; without a look-ahead, all of them as one.
    all: Dense,
    look_ahead: Option<LookAhead>,
    /// The bytes that a match can begin with.
    firsts: [bool; 256],
}

#[derive(Clone, Debug)]
struct LookAhead {
    /// What must not follow.
    forbidden: Dense,
    /// The alternatives after it.
    rest: Dense,
}

impl Automaton {
    /// Builds the automaton of an expression; `None` for one that needs a backtracking engine, or too large an automaton.
    pub fn new(expression: &str) -> Option<Self> {
        let expression = &expression.replace(BEFORE_LINE_END, LINE_END);
        let alternatives = alternatives(expression)?;
        let forbidden: Vec<(usize, &str)> =
            alternatives.iter().enumerate().filter_map(|(at, each)| Some((at, forbidden(each)?))).collect();
        let is_plain =
            |(at, each): (usize, &&str)| forbidden.first().is_some_and(|found| found.0 == at) || is_plain(each);
        if forbidden.len() > 1 || !alternatives.iter().enumerate().all(is_plain) {
            return None;
        }
        let (all, look_ahead) = match forbidden.first() {
            None => (dense(&[expression])?, None),
            Some(&(at, class)) => {
                let [before, after] = [&alternatives[..at], &alternatives[at + 1..]].map(joined);
                let look_ahead = LookAhead { forbidden: dense(&[class])?, rest: dense(&[&after])? };
                (dense(&[&before, r"\s+", &after])?, Some(look_ahead))
            }
        };
        let leads = |byte: usize| {
            let next = all.dfa.next_state(all.start, u8::try_from(byte).unwrap_or_default());
            !all.dfa.is_dead_state(next)
        };
        let firsts = std::array::from_fn(leads);
        Some(Self { all, look_ahead, firsts })
    }

    /// The first match from `at` on that is not empty.
    #[inline]
    pub fn find(&self, text: &str, mut at: usize) -> Found {
        let mut n_in_vain = 0;
        loop {
            let (found, n_read) = self.all.search(text, at);
            let end = match (found, &self.look_ahead) {
                (Some((end, 1)), Some(look_ahead)) => look_ahead.end(text, at, end),
                _ => found.map(|(end, _)| end),
            };
            if let Some(end) = end.filter(|&end| end > at) {
                return Found::Match(at, end);
            }
            // A continuation byte begins no character, so no match.
            let rest = text.as_bytes().get(at + 1..).unwrap_or_default();
            let Some(n) = rest.iter().position(|&byte| byte & 0xC0 != 0x80 && self.firsts[usize::from(byte)]) else {
                return Found::None;
            };
            at += 1 + n;
            n_in_vain += n_read;
            if n_in_vain > MAX_IN_VAIN {
                return Found::Unknown(at);
            }
        }
    }
}

impl LookAhead {
    /// End of the match at `at`, where the white space up to `end` has matched `\s+`.
    #[inline]
    fn end(&self, text: &str, at: usize, end: usize) -> Option<usize> {
        if end == text.len() || self.forbidden.search(text, end).0.is_none() {
            return Some(end);
        }
        let last = (at..end).rfind(|&k| text.is_char_boundary(k)).unwrap_or(at);
        if last > at { Some(last) } else { self.rest.search(text, at).0.map(|(end, _)| end) }
    }
}

impl Dense {
    /// The end of the match at `at` and which of the expressions it is of, if there is one; and the number of bytes read.
    #[inline]
    fn search(&self, text: &str, at: usize) -> (Option<(usize, usize)>, usize) {
        let dfa = &self.dfa;
        let (mut state, mut found) = (self.start, None);
        for (n_read, &byte) in text.as_bytes()[at..].iter().enumerate() {
            state = dfa.next_state(state, byte);
            if dfa.is_special_state(state) {
                if dfa.is_match_state(state) {
                    // An automaton notices a match one byte late.
                    found = Some((at + n_read, dfa.match_pattern(state, 0).as_usize()));
                } else if dfa.is_dead_state(state) {
                    return (found, n_read);
                }
            }
        }
        state = dfa.next_eoi_state(state);
        if dfa.is_match_state(state) {
            found = Some((text.len(), dfa.match_pattern(state, 0).as_usize()));
        }
        (found, text.len() - at)
    }
}

fn dense(expressions: &[&str]) -> Option<Dense> {
    let config = Config::new()
        .match_kind(MatchKind::LeftmostFirst)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .dfa_size_limit(Some(MAX_BYTES))
        .determinize_size_limit(Some(MAX_BUILD_BYTES));
    let thompson = thompson::Config::new().nfa_size_limit(Some(MAX_BUILD_BYTES));
    let dfa = Builder::new().configure(config).thompson(thompson).build_many(expressions).ok()?;
    let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes)).ok()?;
    Some(Dense { dfa, start })
}

fn joined(alternatives: &[&str]) -> String {
    if alternatives.is_empty() { NEVER.to_owned() } else { alternatives.join("|") }
}

/// The class that must not follow white space, if the alternative is a look-ahead of this form. White space is not in it.
fn forbidden(alternative: &str) -> Option<&str> {
    let class = alternative.strip_prefix(r"\s+(?!")?.strip_suffix(')')?;
    let is_class = class == r"\S"
        || class
            .strip_prefix(r"[^\s")
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|rest| !rest.contains(['[', ']', '&', '~']));
    is_class.then_some(class)
}

/// Divides an expression at its top-level `|`; `None` if its brackets or parentheses do not match.
pub fn alternatives(expression: &str) -> Option<Vec<&str>> {
    let bytes = expression.as_bytes();
    let (mut found, mut start, mut n_groups, mut n_classes, mut at) = (Vec::new(), 0, 0_usize, 0_usize, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => {
                n_classes += 1;
                // A bracket right after the opening one is a character.
                let rest = expression[at + 1..].strip_prefix('^').unwrap_or(&expression[at + 1..]);
                if rest.starts_with(']') {
                    return None;
                }
            }
            b']' if n_classes > 0 => n_classes -= 1,
            _ if n_classes > 0 => {}
            b'(' => n_groups += 1,
            b')' => n_groups = n_groups.checked_sub(1)?,
            b'|' if n_groups == 0 => {
                found.push(&expression[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found.push(&expression[start..]);
    (n_classes == 0 && n_groups == 0).then_some(found)
}

/// Whether an expression has only what the automaton and the backtracking engine understand alike: characters, classes, groups, `|`,
/// ends of lines, and quantifiers that are not possessive.
pub fn is_plain(expression: &str) -> bool {
    let bytes = expression.as_bytes();
    let (mut n_classes, mut at) = (0_usize, 0);
    while at < bytes.len() {
        let next = bytes.get(at + 1).copied().unwrap_or_default();
        match bytes[at] {
            b'\\' => {
                let is_code_point = next == b'x' && bytes.get(at + 2) == Some(&b'{');
                let is_known = b"pPsSdDwWrntfv".contains(&next) || next.is_ascii_punctuation() || is_code_point;
                if !is_known || b"<>".contains(&next) {
                    return false;
                }
                at += 1;
                // The brace of a property is no quantifier's.
                if b"pPx".contains(&next) && bytes.get(at + 1) == Some(&b'{') {
                    at += expression[at..].find('}').unwrap_or_default();
                }
            }
            b'[' => n_classes += 1,
            b']' if n_classes > 0 => n_classes -= 1,
            _ if n_classes > 0 => {}
            b'(' if next == b'?' => {
                let rest = &expression[at + 2..];
                if rest.starts_with(&LINE_END[2..]) {
                    at += LINE_END.len();
                    continue;
                }
                if !(rest.starts_with(':') || rest.starts_with("i:")) {
                    return false;
                }
            }
            b'^' | b'$' => return false,
            b'+' | b'*' | b'?' | b'}' if next == b'+' => return false,
            _ => {}
        }
        at += 1;
    }
    true
}
