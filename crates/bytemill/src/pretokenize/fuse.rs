//! Several steps as one expression, which reads a text once.
//!
//! Many published tokenizers isolate classes of characters first: digits, or Chinese and Japanese characters. Such a step is a class C
//! that is repeated at least once, so every character of C is part of a match, and a last step F then splits the matches and the rest
//! of the text, which has no C. So the same pre-tokens come from one expression with
//!
//! - F with nothing but C in its classes, if C is repeated without limit: it splits the runs of C;
//! - or the step itself, if F has no match in C, or if a match is a single character and cannot be split;
//! - F without C in its classes. Its look-ahead `\s+(?!\S)` is satisfied before a character of C, where its text ends, so it becomes
//!   `\s+(?![^\sC])`.
//!
//! Text that has no match is divided where it changes between C and the rest ([`Fused::boundaries`]).

use super::automaton::{alternatives, is_plain};
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};

/// The first steps of a pattern as one expression.
#[derive(Clone, Debug)]
pub struct Fused {
    pub expression: String,
    pub classes: Classes,
    /// How many steps it stands for.
    pub n_steps: usize,
}

/// The classes that steps isolate. They have no character in common.
#[derive(Clone, Debug, Default)]
pub struct Classes(Vec<ClassUnicode>);

impl Classes {
    /// Appends the offsets in `text`, plus `start`, at which a character follows one of another class, or of none.
    pub fn boundaries(&self, text: &str, start: usize, ends: &mut Vec<usize>) {
        if self.0.is_empty() {
            return;
        }
        let mut last = None;
        for (at, character) in text.char_indices() {
            let class = self.0.iter().position(|class| contains(class, character));
            if last.replace(class).is_some_and(|last| last != class) {
                ends.push(start + at);
            }
        }
    }
}

const LOOK_AHEAD: &str = r"\s+(?!\S)";

/// The first of some steps as one expression: several that isolate a class, and the one after them. `None` if that is not possible.
pub fn fuse(steps: &[&str]) -> Option<Fused> {
    let isolated: Vec<Isolated> = steps.iter().map_while(|step| Isolated::new(step)).collect();
    // The last step may isolate a class too.
    let n_isolated = isolated.len().min(steps.len() - 1);
    if n_isolated == 0 {
        return None;
    }
    let mut taken = ClassUnicode::empty();
    for Isolated { class, .. } in &isolated[..n_isolated] {
        if !intersection(&taken, class).ranges().is_empty() {
            return None;
        }
        taken.union(class);
    }
    let last = alternatives(steps[n_isolated])?;
    if !last.iter().all(|&alternative| alternative == LOOK_AHEAD || is_plain(alternative)) {
        return None;
    }
    let mut all = Vec::new();
    for each in &isolated[..n_isolated] {
        let inside = last.iter().filter(|&&alternative| alternative != LOOK_AHEAD);
        let inside: Vec<String> = inside
            .map(|alternative| {
                Some(mapped(alternative, &|class| *class = intersection(class, &each.class))?.to_string())
            })
            .collect::<Option<_>>()?;
        let has_no_match = last.iter().all(|&alternative| never_matches(alternative, &each.class));
        if has_no_match || each.max == Some(1) {
            all.push(each.step.clone());
        } else if each.max.is_none() {
            all.extend(inside);
        } else {
            return None;
        }
    }
    for alternative in last {
        all.push(if alternative == LOOK_AHEAD {
            look_ahead(&taken)?
        } else {
            mapped(alternative, &|class| class.difference(&taken))?.to_string()
        });
    }
    let classes = Classes(isolated.into_iter().take(n_isolated).map(|each| each.class).collect());
    Some(Fused { expression: all.join("|"), classes, n_steps: n_isolated + 1 })
}

/// A step that isolates the characters of a class.
pub(super) struct Isolated {
    step: String,
    pub class: ClassUnicode,
    /// Most characters of a match; `None` if it is a whole run of the class.
    pub max: Option<u32>,
}

impl Isolated {
    pub fn new(step: &str) -> Option<Self> {
        let parsed = regex_syntax::parse(step).ok().filter(|_| is_plain(step))?;
        let (class, max) = match parsed.kind() {
            HirKind::Repetition(Repetition { min: 1, max, greedy: true, sub }) => (sub.kind(), *max),
            kind => (kind, Some(1)),
        };
        let HirKind::Class(Class::Unicode(class)) = class else { return None };
        let step = parsed.to_string();
        Some(Self { step, class: class.clone(), max })
    }
}

fn contains(class: &ClassUnicode, character: char) -> bool {
    class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&character))
}

fn intersection(one: &ClassUnicode, other: &ClassUnicode) -> ClassUnicode {
    let mut both = one.clone();
    both.intersect(other);
    both
}

/// The look-ahead in text without the characters of a class, which must not be white space.
fn look_ahead(taken: &ClassUnicode) -> Option<String> {
    let range =
        |range: &ClassUnicodeRange| format!(r"\x{{{:X}}}-\x{{{:X}}}", u32::from(range.start()), u32::from(range.end()));
    let has_space = taken.ranges().iter().any(|range| (range.start()..=range.end()).any(char::is_whitespace));
    let ranges: String = taken.ranges().iter().map(range).collect();
    (!has_space).then(|| format!(r"\s+(?![^\s{ranges}])"))
}

/// Whether an alternative has no match in text of a class alone.
fn never_matches(alternative: &str, class: &ClassUnicode) -> bool {
    let kept = |other: &mut ClassUnicode| *other = intersection(other, class);
    alternative == LOOK_AHEAD
        && !class.ranges().iter().any(|range| (range.start()..=range.end()).any(char::is_whitespace))
        || mapped(alternative, &kept).is_some_and(|inside| fails(&inside))
}

/// Whether an expression matches nothing.
fn fails(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => class.ranges().is_empty(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().is_empty(),
        HirKind::Repetition(repetition) => repetition.min > 0 && fails(&repetition.sub),
        HirKind::Capture(capture) => fails(&capture.sub),
        HirKind::Concat(parts) => parts.iter().any(fails),
        HirKind::Alternation(parts) => parts.iter().all(fails),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => false,
    }
}

/// An expression with its classes changed, and literals that the change would remove characters of; `None` if it has look-around.
fn mapped(alternative: &str, change: &dyn Fn(&mut ClassUnicode)) -> Option<Hir> {
    mapped_hir(&regex_syntax::parse(alternative).ok()?, change)
}

fn mapped_hir(hir: &Hir, change: &dyn Fn(&mut ClassUnicode)) -> Option<Hir> {
    let each = |parts: &[Hir]| parts.iter().map(|part| mapped_hir(part, change)).collect::<Option<Vec<Hir>>>();
    Some(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => {
            let is_kept = |character: char| {
                let mut class = ClassUnicode::new([ClassUnicodeRange::new(character, character)]);
                change(&mut class);
                !class.ranges().is_empty()
            };
            let text = std::str::from_utf8(&literal.0).ok()?;
            if text.chars().all(is_kept) { hir.clone() } else { Hir::fail() }
        }
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            change(&mut class);
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => return None,
        HirKind::Repetition(repetition) => {
            let sub = Box::new(mapped_hir(&repetition.sub, change)?);
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Capture(capture) => mapped_hir(&capture.sub, change)?,
        HirKind::Concat(parts) => Hir::concat(each(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(each(parts)?),
    })
}

#[cfg(test)]
#[path = "tests/fuse.rs"]
mod tests;
