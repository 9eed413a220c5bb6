//! Bytes without which an expression has no match, so that short texts need not be searched.

use super::automaton::{BEFORE_LINE_END, LINE_END};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSet([bool; 256]);

impl ByteSet {
    /// Whether a byte is in the set.
    #[inline]
    pub fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }

    fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut set = Self([false; 256]);
        bytes.into_iter().for_each(|byte| set.0[usize::from(byte)] = true);
        set
    }

    fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|byte| self.0[byte] || other.0[byte]))
    }

    /// How many texts have one of the bytes, by and large: those of ASCII, then all.
    fn weight(&self) -> (usize, usize) {
        let count = |bytes: &[bool]| bytes.iter().filter(|&&is_in| is_in).count();
        (count(&self.0[..128]), count(&self.0))
    }
}

/// A small set of bytes of which every match of an expression has at least one; `None` if none is known.
pub fn needed_bytes(expression: &str) -> Option<ByteSet> {
    needed(&regex_syntax::parse(&expression.replace(BEFORE_LINE_END, LINE_END)).ok()?)
}

fn needed(hir: &Hir) -> Option<ByteSet> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => None,
        HirKind::Literal(literal) => Some(ByteSet::of(literal.0.first().copied())).filter(|_| !literal.0.is_empty()),
        HirKind::Class(Class::Unicode(class)) => Some(first_bytes(class)),
        HirKind::Repetition(repetition) if repetition.min > 0 => needed(&repetition.sub),
        HirKind::Repetition(_) => None,
        HirKind::Capture(capture) => needed(&capture.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(needed).min_by_key(ByteSet::weight),
        HirKind::Alternation(parts) => {
            let all: Vec<ByteSet> = parts.iter().map(needed).collect::<Option<_>>()?;
            all.into_iter().reduce(|one, other| one.or(&other))
        }
    }
}

/// The first bytes of the characters of a class in UTF-8, which grow with the code points.
fn first_bytes(class: &ClassUnicode) -> ByteSet {
    let first = |character: char| character.encode_utf8(&mut [0; 4]).as_bytes()[0];
    ByteSet::of(class.ranges().iter().flat_map(|range| first(range.start())..=first(range.end())))
}

#[cfg(test)]
#[path = "tests/needed_bytes.rs"]
mod tests;
