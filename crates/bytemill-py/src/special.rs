//! Special tokens, their rules and normalizers, from Python arguments.

use crate::signals::{TokenizerError, to_python};
use bytemill::encode::Shape;
use bytemill::special::Rules;
use bytemill::text::normalize::{CharsMap, Normalizer, Prefix, Step};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;

/// An id among the arguments. The error names its `token`.
pub fn id_of(id: &Bound<'_, PyAny>, token: &Bound<'_, PyAny>) -> PyResult<u32> {
    id.extract::<u32>().map_err(|_| match (id.repr(), token.repr()) {
        (Ok(id), Ok(token)) => TokenizerError::new_err(format!(
            "special token {token} has the id {id}; ids must be integers of at least 0"
        )),
        _ => PyTypeError::new_err("special token ids must be integers"),
    })
}

/// Special tokens and their ids, from a mapping of token to id.
pub fn specials(special_tokens: &Bound<'_, PyMapping>) -> PyResult<Vec<(String, u32)>> {
    let mut all = Vec::new();
    for item in special_tokens.items()? {
        let (token, id): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        all.push((token.extract()?, id_of(&id, &token)?));
    }
    Ok(all)
}

/// Takes away the tokens whose id an earlier one has.
pub fn take_aliases(special: &mut Vec<(String, u32)>) -> Vec<(String, u32)> {
    let mut seen = HashSet::new();
    special.extract_if(.., |(_, id)| !seen.insert(*id)).collect()
}

/// Flags of the rules of a special token.
const SINGLE_WORD: u32 = 1;
const LSTRIP: u32 = 2;
const RSTRIP: u32 = 4;
const LATE: u32 = 8;
const VERBATIM: u32 = 16;
const ORDINARY: u32 = 32;

/// The rules of special tokens, from a mapping of token to flags.
pub fn rules(special_rules: Option<&Bound<'_, PyMapping>>) -> PyResult<Vec<(String, Rules)>> {
    let Some(special_rules) = special_rules else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for item in special_rules.items()? {
        let (token, bits): (String, u32) = item.extract()?;
        let has = |bit| bits & bit != 0;
        let rule = Rules {
            single_word: has(SINGLE_WORD),
            lstrip: has(LSTRIP),
            rstrip: has(RSTRIP),
            late: has(LATE),
            verbatim: has(VERBATIM),
            ordinary: has(ORDINARY),
        };
        all.push((token, rule));
    }
    Ok(all)
}

/// A shape of pre-tokens: white space is dropped, a space is before each, the suffix, unknown ones vanish, or are fused within.
pub type ShapeArguments = (bool, bool, Option<String>, bool, bool);

/// The shape of pre-tokens.
pub fn shape_of((drops_white_space, space_before, suffix, drops_unknown, fuses_within): ShapeArguments) -> Shape {
    let suffix = suffix.map(|suffix| suffix.into_bytes().into());
    Shape { drops_white_space, space_before, suffix, drops_unknown, fuses_within }
}

/// What [`shape_of`] makes a shape of.
pub fn arguments_of(shape: &Shape) -> ShapeArguments {
    let suffix = shape.suffix.as_ref().map(|suffix| String::from_utf8_lossy(suffix).into_owned());
    (shape.drops_white_space, shape.space_before, suffix, shape.drops_unknown, shape.fuses_within)
}

/// A step of a normalizer as a tuple of strings: its name and its arguments.
pub type StepArguments = Vec<String>;

/// The first argument of the step of SentencePiece's compiled rules: their bytes in hexadecimal. What they leave alone follows.
fn rules_of(hexadecimal: &str) -> PyResult<CharsMap> {
    let digits: Option<Vec<u8>> =
        hexadecimal.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, odd) = digits.as_deref().unwrap_or(&[0]).as_chunks::<2>();
    if !odd.is_empty() {
        return Err(PyValueError::new_err("the compiled rules of a normalizer are not hexadecimal"));
    }
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    CharsMap::new(&bytes).map_err(to_python)
}

/// A normalizer from its steps. The last one may be `("Metaspace", "always")` or `("Metaspace", "first")`.
pub fn normalizer(steps: &[StepArguments]) -> PyResult<Normalizer> {
    let mut all = Vec::new();
    let mut prefix = None;
    for step in steps {
        let names: Vec<&str> = step.iter().map(String::as_str).collect();
        let step = match &names[..] {
            ["NFC"] => Step::Nfc,
            ["NFD"] => Step::Nfd,
            ["NFKC"] => Step::Nfkc,
            ["NFKD"] => Step::Nfkd,
            ["Lowercase"] => Step::Lowercase,
            ["StripAccents"] => Step::StripAccents,
            ["TrimSpaces", side @ ("left" | "right")] => Step::TrimSpaces { left: *side == "left" },
            ["JoinSpaces"] => Step::JoinSpaces,
            ["JoinWhiteSpace"] => Step::JoinWhiteSpace,
            ["CharsMap", rules, kept @ ..] => {
                let kept = kept.iter().map(|text| (*text).to_owned()).collect();
                Step::CharsMap(Arc::new(rules_of(rules)?.keeping(kept)))
            }
            ["Replace", from, to] if !from.is_empty() => {
                Step::Replace { from: (*from).to_owned(), to: (*to).to_owned() }
            }
            ["Prepend", text] => Step::Prepend((*text).to_owned()),
            ["Strip", side @ ("left" | "right" | "both")] => {
                Step::Strip { left: *side != "right", right: *side != "left" }
            }
            ["Metaspace", scheme @ ("always" | "first")] if prefix.is_none() => {
                prefix = Some(if *scheme == "always" { Prefix::Always } else { Prefix::First });
                continue;
            }
            _ => {
                // An argument may be compiled rules of a megabyte.
                let shown: Vec<String> = names.iter().map(|name| name.chars().take(40).collect()).collect();
                return Err(PyValueError::new_err(format!("unknown step of a normalizer: {shown:?}")));
            }
        };
        if prefix.is_some() {
            return Err(PyValueError::new_err("Metaspace is the last step of a normalizer"));
        }
        all.push(step);
    }
    Ok(Normalizer::new(all, prefix))
}

/// The steps that [`normalizer`] makes a normalizer of.
pub fn steps_of(normalizer: &Normalizer) -> Vec<StepArguments> {
    fn arguments(step: &Step) -> StepArguments {
        let names: &[&str] = match step {
            Step::Nfc => &["NFC"],
            Step::Nfd => &["NFD"],
            Step::Nfkc => &["NFKC"],
            Step::Nfkd => &["NFKD"],
            Step::Lowercase => &["Lowercase"],
            Step::StripAccents => &["StripAccents"],
            Step::TrimSpaces { left } => &["TrimSpaces", if *left { "left" } else { "right" }],
            Step::JoinSpaces => &["JoinSpaces"],
            Step::JoinWhiteSpace => &["JoinWhiteSpace"],
            Step::CharsMap(rules) => {
                let name = ["CharsMap".to_owned(), hexadecimal(&rules.to_bytes())];
                return name.into_iter().chain(rules.kept().iter().cloned()).collect();
            }
            Step::Replace { from, to } => &["Replace", from, to],
            Step::Prepend(text) => &["Prepend", text],
            Step::Strip { left: true, right: false } => &["Strip", "left"],
            Step::Strip { left: false, right: true } => &["Strip", "right"],
            Step::Strip { .. } => &["Strip", "both"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
    let prefix = normalizer.prefix().map(|prefix| match prefix {
        Prefix::Always => ["Metaspace", "always"],
        Prefix::First => ["Metaspace", "first"],
    });
    let prefix = prefix.map(|names| names.map(str::to_owned).to_vec());
    normalizer.steps().iter().map(arguments).chain(prefix).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
