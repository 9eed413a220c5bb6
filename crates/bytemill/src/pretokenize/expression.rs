//! What is read from the text of an expression without parsing it.

/// Separates the expressions of several steps. A comment, so that no expression contains it by chance.
pub const THEN: &str = "(?#then)";

/// Separates the steps on characters from those on bytes. A comment, as [`THEN`].
pub const THEN_BYTES: &str = "(?#bytes)";

/// The end of a line as Oniguruma's `$` is translated, and as an assertion that an automaton knows.
pub(super) const BEFORE_LINE_END: &str = r"(?=\n|\z)";
pub(super) const LINE_END: &str = "(?m:$)";

/// The class that must not follow white space, if the alternative is a look-ahead of this form. White space is not in it.
pub fn forbidden(alternative: &str) -> Option<&str> {
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

/// Whether an expression has only what an automaton and the backtracking engine understand alike: characters, classes, groups, `|`,
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
