//! From expressions to rules: which of the alternatives that the matcher on masks knows an expression consists of.
//!
//! An expression is divided at its top-level `|`, and the parts are compared with the variants in [`super::rules`] as parsed
//! expressions, so that their spelling does not matter. Contractions are compared by the strings that they match. A possessive
//! quantifier means the same as a greedy one where the characters that follow are none of the repeated ones, which is so for all
//! variants but words cut by case.
//!
//! Steps before the last one must isolate classes: digits, or characters of a set outside ASCII.

use super::expression::{alternatives, is_plain};
use super::rules::{Contractions, Digits, Letters, Others, Rules, Sets, Spec, WhiteSpace};
use crate::text::unicode::CharSet;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Repetition};
use std::collections::BTreeSet;

/// The rules of some expressions, each of which splits the pre-tokens of the one before; `None` if they have none.
pub fn rules(expressions: &[&str]) -> Option<Rules> {
    let (last, before) = expressions.split_last()?;
    let mut spec = spec(last)?;
    let mut sets = Sets::default();
    for step in before {
        let (class, max) = isolated(step)?;
        if class == class_of(r"\p{N}")? && !spec.isolates_digits {
            spec.isolates_digits = true;
            spec.digits = Digits::Groups(fewer_digits(max, spec.digits)?);
        } else if max.is_none() && !spec.isolates_set && spec.letters != Letters::ByCase && is_beside(&class)? {
            spec.isolates_set = true;
            sets.isolated = Some(set(&class));
        } else {
            return None;
        }
    }
    let is_isolating = spec.isolates_digits || spec.isolates_set;
    if is_isolating && spec.white_space == WhiteSpace::ToLastNewlineOrEnd {
        return None;
    }
    if spec.has_strays() {
        // A digit would be a stray.
        if !spec.isolates_digits {
            return None;
        }
        sets.strays = Some(set(&class_of(r"[^\s\p{L}\p{M}\p{N}\p{P}\p{S}]")?));
    }
    (spec.digits != NO_DIGITS).then_some(Rules { spec, sets })
}

/// The class whose characters a step isolates, and how many of them a match has at most; `None` for a whole run.
fn isolated(step: &str) -> Option<(ClassUnicode, Option<u32>)> {
    let step = parsed(step).filter(|_| is_plain(step))?;
    let (class, max) = match step.into_kind() {
        HirKind::Repetition(Repetition { min: 1, max, greedy: true, sub }) => (sub.into_kind(), max),
        kind => (kind, Some(1)),
    };
    let HirKind::Class(Class::Unicode(class)) = class else { return None };
    Some((class, max))
}

/// No alternative matches digits.
const NO_DIGITS: Digits = Digits::Groups(0);

/// Digits in a group after a step that isolates up to `max` of them.
fn fewer_digits(max: Option<u32>, digits: Digits) -> Option<u32> {
    match (max, digits) {
        (Some(max), Digits::AfterBlank | NO_DIGITS) => Some(max),
        (Some(max), Digits::Groups(most)) if max <= most || most == 1 => Some(max.min(most)),
        (None, Digits::Groups(most)) if most > 0 => Some(most),
        _ => None,
    }
    .filter(|&most| most < MOST_DIGITS)
}

/// Groups have fewer digits.
const MOST_DIGITS: u32 = 32;

/// The rules of one expression.
fn spec(expression: &str) -> Option<Spec> {
    let mut parts = Parts(alternatives(expression)?);
    let own = parts.contractions()?;
    let (letters, joins_marks, suffix) = parts.letters()?;
    let contractions = match (own, suffix) {
        (None, None) => Contractions::None,
        // What the letters of a contraction mean to the words after them is known for these alone.
        (Some(own), None) if matches!(letters, Letters::AfterBlank | Letters::AfterAny) => own,
        // In any case, as the suffix of every published pattern.
        (None, Some(Contractions::AnyCase)) => Contractions::Suffix,
        _ => return None,
    };
    let digits = parts.digits();
    let others = parts.others(joins_marks, letters)?;
    let white_space = parts.white_space()?;
    let (isolates_digits, isolates_set) = (false, false);
    Some(Spec { contractions, letters, joins_marks, digits, others, white_space, isolates_digits, isolates_set })
}

/// Alternatives that are not known yet.
struct Parts<'e>(Vec<&'e str>);

impl Parts<'_> {
    /// Takes the contractions at the front; `None` for others than those of English.
    fn contractions(&mut self) -> Option<Option<Contractions>> {
        let mut words = BTreeSet::new();
        while let Some(these) = self.0.first().and_then(|part| strings(&parsed(part)?)) {
            words.extend(these);
            self.0.remove(0);
        }
        if words.is_empty() { Some(None) } else { Some(Some(contractions(&words)?)) }
    }

    /// Takes the letters: the variant, whether marks are letters, and the contractions that end a word.
    fn letters(&mut self) -> Option<(Letters, bool, Option<Contractions>)> {
        const LEAD: &str = r"[^\r\n\p{L}\p{N}]?";
        for (letters, joins_marks, variant) in [
            (Letters::AfterBlank, false, r" ?\p{L}+".to_owned()),
            (Letters::AfterAny, false, format!(r"{LEAD}\p{{L}}+")),
            (Letters::AfterAny, true, format!(r"{LEAD}[\p{{L}}\p{{M}}]+")),
        ] {
            if self.take(&variant) {
                return Some((letters, joins_marks, None));
            }
        }
        if self.0.len() < 2 {
            return None;
        }
        let (first, second) = (parsed(self.0[0])?, parsed(self.0[1])?);
        if first == parsed(r"[!-/:-@\[-`{-~][A-Za-z]+")? && second == parsed(r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+")? {
            self.0.drain(..2);
            return Some((Letters::AfterPunctuation, true, None));
        }
        let (upper, lower) = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]");
        let (first, suffix) = without_suffix(&first);
        let (second, same_suffix) = without_suffix(&second);
        let is_known = first == parsed(&format!("{LEAD}{upper}*{lower}+"))?
            && second == parsed(&format!("{LEAD}{upper}+{lower}*"))?
            && suffix == same_suffix
            && !self.0[..2].iter().any(|part| without_possessives(part) != **part);
        let suffix = suffix.map(|words| contractions(&words));
        if !is_known || suffix == Some(None) {
            return None;
        }
        self.0.drain(..2);
        Some((Letters::ByCase, false, suffix.flatten()))
    }

    fn digits(&mut self) -> Digits {
        if self.take(r" ?\p{N}+") {
            return Digits::AfterBlank;
        }
        let groups = (1..MOST_DIGITS).find(|most| self.take(&format!(r"\p{{N}}{{1,{most}}}")));
        groups.map_or(NO_DIGITS, Digits::Groups)
    }

    fn others(&mut self, joins_marks: bool, letters: Letters) -> Option<Others> {
        if letters == Letters::AfterPunctuation {
            return self.take(r" ?[\p{P}\p{S}]+[\r\n]*").then_some(Others::Punctuation);
        }
        let others = if joins_marks { r" ?[^\s\p{L}\p{M}\p{N}]+" } else { r" ?[^\s\p{L}\p{N}]+" };
        let variants =
            [(Others::Alone, ""), (Others::WithNewlines, r"[\r\n]*"), (Others::WithNewlinesAndSlashes, r"[\r\n/]*")];
        variants.into_iter().find(|(_, tail)| self.take(&[others, tail].concat())).map(|(others, _)| others)
    }

    /// The rest. Look-ahead is not parsed; its spellings are few.
    fn white_space(&self) -> Option<WhiteSpace> {
        let rest = self.0.join("|");
        let spellings = [
            (WhiteSpace::Runs, r"\s+(?!\S)|\s+"),
            (WhiteSpace::Runs, r"\s++$|\s+(?!\S)|\s"),
            (WhiteSpace::ToLastNewline, r"\s*[\r\n]+|\s+(?!\S)|\s+"),
            (WhiteSpace::ToLastNewline, r"\s*[\r\n]|\s+(?!\S)|\s+"),
            (WhiteSpace::ToLastNewline, r"\s*[\r\n]|\s+(?!\S)|\s"),
            (WhiteSpace::ToLastNewlineOrEnd, r"\s++$|\s*[\r\n]|\s+(?!\S)|\s"),
        ];
        let rest = rest.replace("[\r\n]", r"[\r\n]");
        spellings.into_iter().find(|&(_, spelling)| spelling == rest).map(|(white_space, _)| white_space)
    }

    /// Takes the first alternative if it means the same as `variant`.
    fn take(&mut self, variant: &str) -> bool {
        let is_same = self.0.first().and_then(|part| parsed(part)).is_some_and(|part| parsed(variant) == Some(part));
        if is_same {
            self.0.remove(0);
        }
        is_same
    }
}

/// An alternative with greedy quantifiers in the place of possessive ones; `None` if it is no regular expression.
fn parsed(alternative: &str) -> Option<Hir> {
    regex_syntax::parse(&without_possessives(alternative)).ok()
}

fn without_possessives(alternative: &str) -> String {
    let (mut kept, mut n_classes, mut last) = (String::new(), 0_usize, "");
    for part in tokens(alternative) {
        let is_possessive = n_classes == 0 && part == "+" && (["+", "*", "?"].contains(&last) || last.starts_with('{'));
        if is_possessive {
            last = "";
            continue;
        }
        match part {
            "[" => n_classes += 1,
            "]" => n_classes = n_classes.saturating_sub(1),
            _ => {}
        }
        kept.push_str(part);
        last = part;
    }
    kept
}

/// The characters of an expression, with escapes, and counts in braces, as one each.
fn tokens(expression: &str) -> impl Iterator<Item = &str> {
    let mut rest = expression;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let escaped = if first == '\\' { rest[1..].chars().next() } else { None };
        let begin = first.len_utf8() + escaped.map_or(0, char::len_utf8);
        let has_braces =
            first == '{' || escaped.is_some_and(|name| "pPx".contains(name)) && rest[begin..].starts_with('{');
        let n_bytes = if has_braces { rest.find('}').map_or(begin, |at| at + 1) } else { begin };
        let (token, after) = rest.split_at(n_bytes);
        rest = after;
        Some(token)
    })
}

/// An alternative without the optional contractions at its end, and the strings that these match.
fn without_suffix(alternative: &Hir) -> (Hir, Option<BTreeSet<String>>) {
    let HirKind::Concat(parts) = alternative.kind() else { return (alternative.clone(), None) };
    if let Some((last, rest)) = parts.split_last()
        && let HirKind::Repetition(repetition) = last.kind()
        && (repetition.min, repetition.max, repetition.greedy) == (0, Some(1), true)
        && let Some(words) = strings(&repetition.sub)
    {
        return (Hir::concat(rest.to_vec()), Some(words));
    }
    (alternative.clone(), None)
}

fn contractions(words: &BTreeSet<String>) -> Option<Contractions> {
    let of = |expression| strings(&parsed(expression)?).filter(|found| found == words);
    if of(r"'(?:[sdmt]|ll|ve|re)").is_some() {
        return Some(Contractions::LowerCase);
    }
    of(r"'(?i:[sdmt]|ll|ve|re)").map(|_| Contractions::AnyCase)
}

/// More strings than contractions have.
const MOST_STRINGS: usize = 64;

/// The strings that an expression matches if they are few, none is empty and all begin with an apostrophe.
fn strings(hir: &Hir) -> Option<BTreeSet<String>> {
    let all = strings_of(hir)?;
    all.iter().all(|string| string.starts_with('\'')).then(|| all.into_iter().collect())
}

fn strings_of(hir: &Hir) -> Option<Vec<String>> {
    let all = match hir.kind() {
        HirKind::Literal(literal) => vec![String::from_utf8(literal.0.to_vec()).ok()?],
        HirKind::Class(Class::Unicode(class)) => {
            let characters = class.ranges().iter().flat_map(|range| range.start()..=range.end());
            characters.take(MOST_STRINGS + 1).map(String::from).collect()
        }
        HirKind::Capture(capture) => strings_of(&capture.sub)?,
        HirKind::Concat(parts) => {
            let mut all = vec![String::new()];
            for part in parts {
                let ends = strings_of(part)?;
                all = all.iter().flat_map(|start| ends.iter().map(move |end| [start.as_str(), end].concat())).collect();
                if all.len() > MOST_STRINGS {
                    return None;
                }
            }
            all
        }
        HirKind::Alternation(parts) => parts.iter().map(strings_of).collect::<Option<Vec<_>>>()?.concat(),
        _ => return None,
    };
    (all.len() <= MOST_STRINGS).then_some(all)
}

fn class_of(expression: &str) -> Option<ClassUnicode> {
    match parsed(expression)?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

/// Whether a class has no character that the rules know by itself: ASCII and the letter `ſ`, white space, numbers.
fn is_beside(class: &ClassUnicode) -> Option<bool> {
    let mut known = class_of(r"[\x00-\x7Fſ\s\p{N}]")?;
    known.intersect(class);
    Some(known.ranges().is_empty())
}

fn set(class: &ClassUnicode) -> CharSet {
    CharSet::new(class.ranges().iter().map(|range| range.start().into()..=range.end().into()))
}

#[cfg(test)]
#[path = "tests/compile.rs"]
mod tests;
